"""What a takeover owes the owner of before, the resume and the host, whatever it is told (PS-170 to PS-179)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Send, Stop, Tell
from statemachines.persistent_sessions import takeover_message as message
from statemachines.persistent_sessions import takeover_record as takeover
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import DATABASE, ConfirmRows, EpochRows, RowsConfirmed
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.times import MS, Times
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing

SESSION: Final = "session"
CLIENT: Final = "client"
OWNER: Final = "new-owner"
OLD: Final = "old-owner"
TOKEN: Final = 2
TICK_MS: Final = 4
REPEAT, BEGIN, END = 2, 5, 7
"""Ticks between two questions, and until an owner that does not begin, or does not end, is given up."""
TIMES: Final = Times(
    repeat_ms=REPEAT * TICK_MS, begin_ms=BEGIN * TICK_MS, end_ms=END * TICK_MS, marker_ms=REPEAT * TICK_MS + 1,
    poll_ms=1, handover=1,
)  # fmt: skip
BEYOND: Final = (EpochRows("writer", 1, (Queued(0, "no row"),)),)
ONE: Final = (EpochRows("writer", 1, (Queued(1, "first"),)),)
TWO: Final = (EpochRows("writer", 1, (Queued(1, "first"), Queued(2, "second"))),)
Said = tuple[Any, ...]


class TakeoverFacts(msgspec.Struct, frozen=True, gc=False):
    """The `phase`: it waits for the old owner to begin or to end, for the subscription (begun), or for the database
    (confirm).  `asked` the old owner, and `began` to wait, so many ticks ago."""

    phase: str = "new"
    asked: int = 0
    began: int = 0

    @property
    def is_asking(self) -> bool:
        """It waits for the old owner."""
        return self.phase in ("begin", "end")


class OldOwnerAndStore(Counterpart):
    """an old owner and a database that say anything at any time, also of another takeover, and a resume"""

    owes, ends = "OWES", "OWES an end"

    def __init__(self, left: bool) -> None:
        self.patience = {"begin": REPEAT if left else BEGIN, "end": END, "confirm": END}
        super().__init__(list_rules(self.patience))

    def begins(self) -> TakeoverFacts:
        return TakeoverFacts()

    def says(self, known: TakeoverFacts) -> Iterator[Any]:
        if known.phase == "new":
            yield takeover.StartTakeover()
            return
        if known.phase == "over":
            return
        if known.phase == "begun":
            yield takeover.FinishTakeover()
        for client, token in ((CLIENT, TOKEN), (CLIENT, TOKEN - 1), ("another", TOKEN)):
            yield message.TakeoverBegun(client, token)
            yield message.TakeoverRefused(client, token)
            yield from (message.TakeoverEnded(client, token, found) for found in ((), BEYOND, ONE, TWO))
        yield from (RowsConfirmed(found) for found in ((), ONE))
        if not known.is_asking:
            yield takeover.SayAgain(OLD)
        if known.phase != "begin":
            yield takeover.BeginTimeout(OLD)
        if known.phase in ("begin", "begun"):
            yield takeover.EndTimeout(OLD)

    def learns(self, known: TakeoverFacts, event: Any, said: Said) -> TakeoverFacts:
        if Stop() in said:
            return TakeoverFacts("over")
        if isinstance(event, takeover.SayAgain) and known.is_asking:
            return replace(known, asked=0)
        if not is_wanted(known, event):
            return known
        match event:
            case takeover.StartTakeover():
                return TakeoverFacts("begin")
            case message.TakeoverBegun():
                return TakeoverFacts("begun")
            case takeover.FinishTakeover():
                return TakeoverFacts("end")
        return replace(known, phase="confirm", asked=0)

    def ages(self, known: TakeoverFacts, ticks: int) -> TakeoverFacts:
        if known.phase not in self.patience:
            return known
        asked = known.asked + ticks if known.is_asking else 0
        return replace(known, asked=min(asked, REPEAT + 1), began=min(known.began + ticks, END + 1))

    def is_late(self, known: TakeoverFacts) -> int:
        if known.asked > REPEAT:
            return NAMES.index("asks again") + 1
        return NAMES.index("gives up") + 1 if known.began > self.patience.get(known.phase, END) else 0


WANTED: Final[dict[type[Any], tuple[str, ...]]] = {
    takeover.StartTakeover: ("new",),
    takeover.FinishTakeover: ("begun",),
    message.TakeoverBegun: ("begin",),
    message.TakeoverEnded: ("end",),
    message.TakeoverRefused: ("begin", "end"),
    RowsConfirmed: ("confirm",),
    takeover.SayAgain: ("begin", "end"),
    takeover.BeginTimeout: ("begin",),
    takeover.EndTimeout: ("end", "confirm"),
}
"""What is said -> the phases in which it counts."""


def is_wanted(known: TakeoverFacts, event: Any) -> bool:
    """Whether it waits for this, and it is about this takeover."""
    ours = not hasattr(event, "client") or (event.client, event.token) == (CLIENT, TOKEN)
    return ours and known.phase in WANTED[type(event)]


# -- what it must say -----------------------------------------------------------------------------------------------


def ask_old(known: TakeoverFacts) -> Said:
    """The question that the old owner has not answered."""
    question = message.EndTakeover if known.phase == "end" else message.BeginTakeover
    return (Send(OLD, question(CLIENT, OWNER, TOKEN)),)


def end(why: str) -> Said:
    return (Tell(takeover.TakenOver(SESSION, OLD, why)), Stop())


def confirms(known: TakeoverFacts, event: message.TakeoverEnded, said: Said) -> bool:
    """The first row that can be one, since no more is kept."""
    if event.found in (ONE, TWO):
        return said == (Ask(DATABASE, ConfirmRows(SESSION, TOKEN, ONE)),)
    return said == end("handed")


def hands_on(known: TakeoverFacts, event: RowsConfirmed, said: Said) -> bool:
    return said == (Tell(takeover.HandedOver(event.found)), *end("handed"))


def list_rules(patience: dict[str, int]) -> tuple[Rule, ...]:
    """The rules of a takeover that waits so many ticks in each phase."""

    def gives_up(known: TakeoverFacts, event: Any, said: Said) -> bool:
        return said == end("silent") and known.began == patience[known.phase]

    return (
        rule("begins", "PS-170", "it asks the old owner to begin",
             lambda known, event, said: said == ask_old(known), takeover.StartTakeover),
        rule("asks again", "PS-171", "it asks again every repeat_ms what is not answered",
             lambda known, event, said: said == ask_old(known) and known.asked == REPEAT, takeover.SayAgain),
        rule("waits", "PS-172", "it says nothing when the old owner has begun",
             lambda known, event, said: said == (), message.TakeoverBegun),
        rule("finishes", "PS-174", "it asks the old owner to end once the session is subscribed",
             lambda known, event, said: said == ask_old(TakeoverFacts("end")), takeover.FinishTakeover),
        rule("confirms", "PS-175", "it asks the database which rows are stored, as far as they are bounded",
             confirms, message.TakeoverEnded),
        rule("hands on", "PS-176", "it hands on what the database confirms, and is over",
             hands_on, RowsConfirmed),
        rule("is refused", "PS-173, PS-178", "it is over when the old owner refuses",
             lambda known, event, said: said == end("refused"), message.TakeoverRefused),
        rule("gives up", "PS-173, PS-178", "it gives up an old owner that is silent in begin_ms or end_ms, or has left",
             gives_up, takeover.BeginTimeout, takeover.EndTimeout),
        Rule("ignores", "PS-179", "it does nothing for what it does not wait for",
             lambda known, event: not is_wanted(known, event), lambda known, event, said: said == ()),
    )  # fmt: skip


def rule(name: str, clause: str, text: str, keeps: Any, *kinds: type[Any]) -> Rule:
    """The rule that binds the takeover when it waits for an event of these kinds."""
    return Rule(name, clause, text, lambda known, event: isinstance(event, kinds) and is_wanted(known, event), keeps)


NAMES: Final = tuple(one.name for one in list_rules({}))

SYSTEMS: Final[dict[str, tuple[str, bool]]] = {
    "takeover-told": ("what a takeover owes the owner of before, the resume and the host", False),
    "takeover-left": ("the same, where the client has left the owner of before", True),
}
"""Name -> (about, whether the client has left the old owner)."""


def system(name: str) -> System:
    """The system called so."""
    about, left = SYSTEMS[name]
    record = takeover.TakeoverRecord(SESSION, CLIENT, OWNER, TOKEN, OLD, TIMES, left=left)
    timing = Timing(TICK_MS * MS, ("again", "begin", "end"))
    machine = Machine(TAKEOVER, record, timing=timing, says_so=False)
    return contract(name, about, machine, OldOwnerAndStore(left), TickClock(TICK_MS * MS))
