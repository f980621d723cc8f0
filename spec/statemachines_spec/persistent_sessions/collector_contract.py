"""What a collector owes the database and its host, whatever it is told (PS-80 to PS-88, PS-120, PS-121)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Tell
from statemachines.persistent_sessions import collector_record as collector
from statemachines.persistent_sessions import collector_request as asked
from statemachines.persistent_sessions.collector import COLLECTOR
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.times import MS
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing

TICK_MS: Final = 4
ROUND: Final = 2
"""Ticks between two rounds."""
MOST: Final = 1
"""Clients, rows and messages that are counted."""
GRACES: Final = Graces(round_ms=ROUND * TICK_MS, page=2)
LAST: Final = "last"
"""The client, and the place of the message, that a page ends with."""
KEY: Final = asked.RowKey("session", "writer", 1, 1)
GARBAGE: Final = asked.RowDeletion(KEY, asked.Only.ALWAYS)
UNNEEDED: Final = asked.MessageDeletion("message", asked.Only.UNREFERENCED)
OLD_MS: Final = GRACES.message_ms
CLIENTS: Final = tuple(
    asked.ClientsRead(tuple(asked.StoredClient(client, over) for client, over in page))
    for page in ((), ((LAST, False),), ((LAST, True),), (("first", True), (LAST, True)))
)
ROWS: Final = tuple(
    asked.RowsRead(rows) for rows in ((), (asked.StoredRow(KEY, 0),), (asked.StoredRow(KEY, 0, taken=True),))
)
MESSAGES: Final = (
    asked.MessagesRead(()), asked.MessagesRead((asked.StoredMessage("message", OLD_MS, referenced=True),), LAST),
    asked.MessagesRead((asked.StoredMessage("message", OLD_MS),), LAST),
)  # fmt: skip
DELETED: Final = tuple(
    asked.PageDeleted(rows, messages)
    for rows, messages in ((0, ()), (1, ()), (0, (("message", 0),)), (0, (("message", 1),)))
)
ANSWERS: Final = (
    *CLIENTS, asked.ClientForgotten(False), asked.ClientForgotten(True), *ROWS, *MESSAGES, *DELETED,
    asked.CollectFailed(),
)  # fmt: skip
Said = tuple[Any, ...]


class CollectorFacts(msgspec.Struct, frozen=True, gc=False):
    """The `phase`: what it waits for, or that it rests, and has `rested` for so many ticks.  Its pages begin behind the
    client `seen`, behind a row (`after`), and behind the place `last`.  It has to forget the clients `todo`; it has
    forgotten so many `clients`, and deleted so many `rows` and `messages`."""

    phase: str = "idle"
    rested: int = 0
    seen: str = ""
    after: asked.RowKey | None = None
    last: str = ""
    todo: tuple[str, ...] = ()
    clients: int = 0
    rows: int = 0
    messages: int = 0


class DatabaseAndHost(Counterpart):
    """a database that answers anything at any time, also what nobody waits for, and a host"""

    owes, ends = "OWES", "OWES an end"

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> CollectorFacts:
        return CollectorFacts()

    def says(self, known: CollectorFacts) -> Iterator[Any]:
        yield collector.Collect()
        if known.phase != "idle":
            yield collector.RoundDue("")
        yield from ANSWERS

    def learns(self, known: CollectorFacts, event: Any, said: Said) -> CollectorFacts:
        return expect(known, event)[0]

    def ages(self, known: CollectorFacts, ticks: int) -> CollectorFacts:
        return replace(known, rested=min(known.rested + ticks, ROUND + 1)) if known.phase == "idle" else known

    def is_late(self, known: CollectorFacts) -> int:
        return 1 if known.rested > ROUND else 0


WANTED: Final[dict[type[Any], tuple[str, ...]]] = {
    collector.RoundDue: ("idle",),
    collector.Collect: ("idle",),
    asked.ClientsRead: ("find",),
    asked.ClientForgotten: ("forget",),
    asked.RowsRead: ("read",),
    asked.MessagesRead: ("scan",),
    asked.PageDeleted: ("delete", "remove"),
    asked.CollectFailed: ("find", "forget", "read", "delete", "scan", "remove"),
}
"""What is said -> the phases in which it counts."""


def is_wanted(known: CollectorFacts, event: Any) -> bool:
    """Whether it waits for this."""
    return known.phase in WANTED[type(event)]


# -- what it must say, and what is known then -----------------------------------------------------------------------

Next = tuple[CollectorFacts, Said]


def ask(request: Any) -> Said:
    return (Ask(DATABASE, request),)


def find(known: CollectorFacts) -> Next:
    return replace(known, phase="find"), ask(asked.ReadClients(known.seen, GRACES.page, GRACES.dead_ms))


def forget(known: CollectorFacts) -> Next:
    if not known.todo:
        return find(known)
    return replace(known, phase="forget"), ask(asked.ForgetClient(known.todo[0], GRACES.dead_ms))


def read(known: CollectorFacts) -> Next:
    return replace(known, phase="read"), ask(asked.ReadRows(known.after, GRACES.page, waiting=False))


def scan(known: CollectorFacts) -> Next:
    return replace(known, phase="scan"), ask(asked.ReadMessages(known.last, GRACES.page, GRACES.message_ms))


def rest(known: CollectorFacts, *, whole: bool) -> Next:
    """The round is over."""
    ended = collector.RoundEnded(known.rows, known.messages, whole, known.clients)
    return replace(known, phase="idle", rested=0, todo=(), clients=0, rows=0, messages=0), (Tell(ended),)


def count_deleted(known: CollectorFacts, event: asked.PageDeleted) -> Next:
    if known.phase == "delete":
        return read(replace(known, rows=known.rows + event.rows))
    lost = tuple(Tell(collector.MessageLost(message, rows)) for message, rows in event.messages if rows)
    then, asks = scan(replace(known, messages=known.messages + len(event.messages)))
    return then, (*lost, *asks)


def expect(known: CollectorFacts, event: Any) -> Next:
    """What is known when the collector has taken the event, and what it must have said."""
    if not is_wanted(known, event):
        return known, ()
    match event:
        case asked.ClientsRead(page):
            todo = tuple(one.client for one in page if one.over)
            known = replace(known, seen=LAST if page else "", todo=todo)
            return forget(known) if page else read(known)
        case asked.ClientForgotten(done):
            return forget(replace(known, todo=known.todo[1:], clients=known.clients + done))
        case asked.RowsRead(page):
            known = replace(known, after=KEY if page else None)
            if event == ROWS[-1]:
                return replace(known, phase="delete"), ask(asked.DeletePage(rows=(GARBAGE,)))
            return read(known) if page else scan(known)
        case asked.MessagesRead(page):
            known = replace(known, last=LAST if page else "")
            if event == MESSAGES[-1]:
                return replace(known, phase="remove"), ask(asked.DeletePage(messages=(UNNEEDED,)))
            return scan(known) if page else rest(known, whole=True)
        case asked.PageDeleted():
            return count_deleted(known, event)
        case asked.CollectFailed():
            return rest(known, whole=False)
    return find(replace(known, rested=0))


def keeps_time(known: CollectorFacts, event: Any, said: Said) -> bool:
    return known.rested == ROUND and said == expect(known, event)[1]


def rule(name: str, clause: str, text: str, *kinds: type[Any], keeps: Any = None) -> Rule:
    """The rule that binds the collector when it waits for an event of these kinds."""
    return Rule(name, clause, text, lambda known, event: isinstance(event, kinds) and is_wanted(known, event),
                keeps or (lambda known, event, said: said == expect(known, event)[1]))  # fmt: skip


RULES: Final = (
    rule("begins in time", "PS-80", "it begins a round after round_ms", collector.RoundDue, keeps=keeps_time),
    rule("begins", "PS-80", "it begins a round when it is asked to", collector.Collect),
    rule("finds clients", "PS-82, PS-120", "it forgets the clients of a page that are over, and reads on",
         asked.ClientsRead),
    rule("forgets", "PS-121", "it forgets one client after the other", asked.ClientForgotten),
    rule("deletes rows", "PS-81, PS-82", "it deletes the rows of a page that are garbage, and reads on",
         asked.RowsRead),
    rule("removes messages", "PS-82, PS-84", "it removes the messages of a page that nobody needs, and reads on",
         asked.MessagesRead),
    rule("goes on", "PS-83, PS-85", "it reads on when a page is deleted, and says what clients miss",
         asked.PageDeleted),
    rule("breaks off", "PS-86", "it ends the round when nobody knows what became of its request",
         asked.CollectFailed),
    Rule("ignores", "PS-80, PS-86, PS-87", "it does nothing for what it does not wait for",
         lambda known, event: not is_wanted(known, event), lambda known, event, said: said == ()),
)  # fmt: skip

SYSTEMS: Final[dict[str, tuple[str]]] = {
    "collector-told": ("what a collector owes the database and its host",),
}
"""Name -> (about)."""


def system(name: str) -> System:
    """The system called so."""
    machine = Machine(
        COLLECTOR,
        collector.CollectorRecord(GRACES),
        timing=Timing(TICK_MS * MS, ("round",)),
        bound=lambda record: max(record.clients, record.rows, record.messages) <= MOST,
        says_so=False,
    )
    return contract(name, *SYSTEMS[name], machine, DatabaseAndHost(), TickClock(TICK_MS * MS))
