"""What a collector owes the database and its host, whatever it is told (PS-80 to PS-88, PS-120, PS-121)."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Ask, Tell
from statemachines.persistent_sessions import collector as asked
from statemachines.persistent_sessions import collector as collector
from statemachines.persistent_sessions.collector import COLLECTOR, Graces
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.times import MS
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.table_contract import Duty, PhaseClock, TableContract, TableFacts

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
WORDS: Final = (
    collector.Collect(), collector.RoundDue(""), *CLIENTS, asked.ClientForgotten(False), asked.ClientForgotten(True),
    *ROWS, *MESSAGES, *DELETED, asked.CollectFailed(),
)  # fmt: skip
Said = tuple[Any, ...]


class CollectorFacts(TableFacts, frozen=True, gc=False):
    """Its pages begin behind the client `seen`, behind a row (`after`), and behind the place `last`.  It has to forget
    the clients `todo`; it has forgotten so many `clients`, and deleted so many `rows` and `messages`."""

    seen: str = ""
    after: asked.RowKey | None = None
    last: str = ""
    todo: tuple[str, ...] = ()
    clients: int = 0
    rows: int = 0
    messages: int = 0


class DatabaseAndHost(TableContract):
    """a database that answers anything at any time, also what nobody waits for, and a host"""

    def expect(self, known: CollectorFacts, event: Any) -> tuple[CollectorFacts, Said]:
        """A round that is over counts nothing."""
        then, said = super().expect(known, event)
        return replace(then, todo=(), clients=0, rows=0, messages=0) if then.phase == "idle" else then, said


def find(known: CollectorFacts, event: asked.ClientsRead) -> CollectorFacts:
    todo = tuple(one.client for one in event.clients if one.over)
    phase = ("forget" if todo else "find") if event.clients else "read"
    return replace(known, phase=phase, seen=LAST if event.clients else "", todo=todo)


def forget(known: CollectorFacts, event: asked.ClientForgotten) -> CollectorFacts:
    todo = known.todo[1:]
    return replace(known, phase="forget" if todo else "find", todo=todo, clients=known.clients + event.done)


def read(known: CollectorFacts, event: asked.RowsRead) -> CollectorFacts:
    phase = "delete" if event == ROWS[-1] else "read" if event.rows else "scan"
    return replace(known, phase=phase, after=KEY if event.rows else None)


def scan(known: CollectorFacts, event: asked.MessagesRead) -> CollectorFacts:
    phase = "remove" if event == MESSAGES[-1] else "scan" if event.messages else "idle"
    return replace(known, phase=phase, last=LAST if event.messages else "")


def ask(known: CollectorFacts, event: Any) -> Said:
    """What it asks next, or that its round is over."""
    if known.phase == "idle":
        whole = not isinstance(event, asked.CollectFailed)
        return (Tell(collector.RoundEnded(known.rows, known.messages, whole, known.clients)),)
    requests = {
        "find": asked.ReadClients(known.seen, GRACES.page, GRACES.dead_ms),
        "forget": asked.ForgetClient(next(iter(known.todo), ""), GRACES.dead_ms),
        "read": asked.ReadRows(known.after, GRACES.page, waiting=False),
        "delete": asked.DeletePage(rows=(GARBAGE,)),
        "scan": asked.ReadMessages(known.last, GRACES.page, GRACES.message_ms),
        "remove": asked.DeletePage(messages=(UNNEEDED,)),
    }
    return (Ask(DATABASE, requests[known.phase]),)


def tell_lost(known: CollectorFacts, event: asked.PageDeleted) -> Said:
    lost = tuple(Tell(collector.MessageLost(message, rows)) for message, rows in event.messages if rows)
    return (*lost, *ask(known, event))


# fmt: off
OWED: Final = (
    Duty("begins in time", "PS-80", "it begins a round after round_ms", collector.RoundDue, "idle", ask, "find"),
    Duty("begins", "PS-80", "it begins a round when it is asked to", collector.Collect, "idle", ask, "find"),
    Duty("finds clients", "PS-82, PS-120", "it forgets the clients of a page that are over, and reads on",
         asked.ClientsRead, "find", ask, then=find),
    Duty("forgets", "PS-121", "it forgets one client after the other",
         asked.ClientForgotten, "forget", ask, then=forget),
    Duty("deletes rows", "PS-81, PS-82", "it deletes the rows of a page that are garbage, and reads on",
         asked.RowsRead, "read", ask, then=read),
    Duty("removes messages", "PS-82, PS-84", "it removes the messages of a page that nobody needs, and reads on",
         asked.MessagesRead, "scan", ask, then=scan),
    Duty("goes on", "PS-83, PS-85", "it reads on when a page is deleted, and says what clients miss",
         asked.PageDeleted, "delete", ask, "read",
         then=lambda known, event: replace(known, rows=known.rows + event.rows)),
    Duty("goes on", "", "", asked.PageDeleted, "remove", tell_lost, "scan",
         then=lambda known, event: replace(known, messages=known.messages + len(event.messages))),
    Duty("breaks off", "PS-86", "it ends the round when nobody knows what became of its request",
         asked.CollectFailed, "find forget read delete scan remove", ask, "idle"),
    Duty("ignores", "PS-80, PS-86, PS-87", "it does nothing for what it does not wait for", collector.Collect),
    Duty("ignores", "", "", object),
)
# fmt: on
CLOCKS: Final = (PhaseClock(collector.RoundDue, "idle", ROUND, "begins in time"),)

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
    counterpart = DatabaseAndHost(OWED, CLOCKS, WORDS, CollectorFacts("idle"))
    return contract(name, *SYSTEMS[name], machine, counterpart, TickClock(TICK_MS * MS))
