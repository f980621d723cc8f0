"""What a takeover owes the owner of before, the resume and the host, whatever it is told (PS-170 to PS-179)."""

from __future__ import annotations

from typing import Any, Final

from statemachines.kernel import Ask, Send, Stop, Tell
from statemachines.persistent_sessions import takeover_record as message
from statemachines.persistent_sessions import takeover_record as takeover
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import DATABASE, ConfirmRows, EpochRows, RowsConfirmed
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.times import MS, Times
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.table_contract import Duty, PhaseClock, TableContract, say_nothing

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


def end(why: str, *before: Any) -> tuple[Any, ...]:
    return (*before, Tell(takeover.TakenOver(SESSION, OLD, why)), Stop())


def is_ours(known: Any, event: Any) -> bool:
    """It is about this takeover."""
    return (event.client, event.token) == (CLIENT, TOKEN)


def confirm(known: Any, event: message.TakeoverEnded) -> tuple[Any, ...]:
    """The first row that can be one, since no more is kept."""
    return (Ask(DATABASE, ConfirmRows(SESSION, TOKEN, ONE)),) if event.found in (ONE, TWO) else end("handed")


BEGIN_ASKED: Final = (Send(OLD, message.BeginTakeover(CLIENT, OWNER, TOKEN)),)
END_ASKED: Final = (Send(OLD, message.EndTakeover(CLIENT, OWNER, TOKEN)),)
# fmt: off
ROWS: Final = (
    Duty("begins", "PS-170", "it asks the old owner to begin",
         takeover.StartTakeover, "new", lambda known, event: BEGIN_ASKED, "begin"),
    Duty("asks again", "PS-171", "it asks again every repeat_ms what is not answered",
         takeover.SayAgain, "begin", lambda known, event: BEGIN_ASKED),
    Duty("asks again", "PS-171", "", takeover.SayAgain, "end", lambda known, event: END_ASKED),
    Duty("waits", "PS-172", "it says nothing when the old owner has begun",
         message.TakeoverBegun, "begin", say_nothing, "begun", is_ours),
    Duty("finishes", "PS-174", "it asks the old owner to end once the session is subscribed",
         takeover.FinishTakeover, "begun", lambda known, event: END_ASKED, "end"),
    Duty("confirms", "PS-175", "it asks the database which rows are stored, as far as they are bounded",
         message.TakeoverEnded, "end", confirm, "confirm", is_ours),
    Duty("hands on", "PS-176", "it hands on what the database confirms, and is over",
         RowsConfirmed, "confirm", lambda known, event: end("handed", Tell(takeover.HandedOver(event.found)))),
    Duty("is refused", "PS-173, PS-178", "it is over when the old owner refuses",
         message.TakeoverRefused, "begin end", lambda known, event: end("refused"), when=is_ours),
    Duty("gives up", "PS-173, PS-178", "it gives up an old owner that is silent in begin_ms or end_ms, or has left",
         takeover.BeginTimeout, "begin", lambda known, event: end("silent")),
    Duty("gives up", "PS-173, PS-178", "", takeover.EndTimeout, "end confirm", lambda known, event: end("silent")),
    Duty("ignores", "PS-179", "it does nothing for what it does not wait for", object),
)
WORDS: Final = (
    takeover.StartTakeover(), takeover.FinishTakeover(), RowsConfirmed(()), RowsConfirmed(ONE),
    *(kind(OLD) for kind in (takeover.SayAgain, takeover.BeginTimeout, takeover.EndTimeout)),
    *(
        one
        for of in ((CLIENT, TOKEN), (CLIENT, TOKEN - 1), ("another", TOKEN))
        for one in (message.TakeoverBegun(*of), message.TakeoverRefused(*of),
                    *(message.TakeoverEnded(*of, found) for found in ((), BEYOND, ONE, TWO)))
    ),
)
# fmt: on


class OldOwnerAndStore(TableContract):
    """an old owner and a database that say anything at any time, also of another takeover, and a resume"""


SYSTEMS: Final[dict[str, tuple[str, bool]]] = {
    "takeover-told": ("what a takeover owes the owner of before, the resume and the host", False),
    "takeover-left": ("the same, where the client has left the owner of before", True),
}
"""Name -> (about, whether the client has left the old owner)."""


def system(name: str) -> System:
    """The system called so."""
    about, left = SYSTEMS[name]
    record = takeover.TakeoverRecord(SESSION, CLIENT, OWNER, TOKEN, OLD, TIMES, left=left)
    machine = Machine(TAKEOVER, record, timing=Timing(TICK_MS * MS, ("again", "begin", "end")), says_so=False)
    clocks = (
        PhaseClock(takeover.SayAgain, "begin end", REPEAT, "asks again"),
        PhaseClock(takeover.BeginTimeout, "begin", REPEAT if left else BEGIN, "gives up"),
        PhaseClock(takeover.EndTimeout, "end confirm", END, "gives up"),
    )
    return contract(name, about, machine, OldOwnerAndStore(ROWS, clocks, WORDS, mute="new"), TickClock(TICK_MS * MS))
