"""What is asked of the database, and what it answers (page: "Parties and tables")."""

from __future__ import annotations

from typing import ClassVar

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Map, Request, TraceColumns
from statemachines.persistent_sessions.in_flight_record import TAKEN, InFlightRecord
from statemachines.persistent_sessions.message import Count, Queued, is_over

DATABASE = "database"

Position = tuple[int, int]
"""(epoch, number): the last that was taken of a writer."""
Mark = tuple[int, int]
"""(token, n) of a marker."""


class SessionState(msgspec.Struct, frozen=True, gc=False):
    """What answers for all that was taken.  `taken`: of each writer the last number that was taken; `packets` in
    flight; `queued` behind them; `places`: how many ever were in flight."""

    taken: Map[str, Position] = Map()
    packets: Map[int, InFlightRecord] = Map()
    queued: tuple[Queued, ...] = ()
    places: int = 0


class EpochRows(msgspec.Struct, frozen=True, gc=False):
    """What is visible of one epoch of a writer: `rows` in the order of their numbers, and markers."""

    writer: str
    epoch: Count
    rows: tuple[Queued, ...] = ()
    markers: tuple[Mark, ...] = ()


# -- of a writer ----------------------------------------------------------------------------------------------------


class BeginEpoch(Request, frozen=True, gc=False):
    """A writer begins: under an epoch that nobody had."""

    columns: ClassVar = TraceColumns(key="session")

    session: str
    writer: str


class EpochBegun(Answer, frozen=True, gc=False):
    """To `BeginEpoch`."""

    columns: ClassVar = TraceColumns(term="epoch")

    epoch: int


class PutRows(Request, frozen=True, gc=False):
    """Store these rows, whose numbers follow each other, if the epoch still is that of the writer: all, or none."""

    columns: ClassVar = TraceColumns(key="message", term="epoch", grant="", first="first_number", last="last_number")

    session: str
    writer: str
    epoch: int
    rows: tuple[Queued, ...]

    @property
    def message(self) -> str:
        """The message of the first row."""
        return self.rows[0].message

    @property
    def first_number(self) -> int:
        """The number of the first row."""
        return self.rows[0].number

    @property
    def last_number(self) -> int:
        """The number of the last row."""
        return self.rows[-1].number


class RowStored(Answer, frozen=True, gc=False):
    """To `PutRows` and `PutMarker`: it is durable, all of it; rows since `stored_ns` (0: unknown)."""

    columns: ClassVar = TraceColumns(last="stored_ns")

    stored_ns: int = 0


class RowFenced(Answer, frozen=True, gc=False):
    """To what a writer asks: the epoch was raised, and nothing was done; it is `epoch` now."""

    columns: ClassVar = TraceColumns(term="epoch")

    epoch: int


class RowsDuplicate(Answer, frozen=True, gc=False):
    """To `PutRows`: another node has stored the messages of the rows with these numbers for the session; nothing was
    done."""

    numbers: tuple[int, ...]


class RowUnclear(Answer, frozen=True, gc=False):
    """To `PutRows` and `PutMarker`: perhaps it was done, perhaps not; nothing was done in part."""


class ReadRow(Request, frozen=True, gc=False):
    """Was this row stored?  Read from what is committed, not from a replica."""

    columns: ClassVar = TraceColumns(key="writer", term="epoch", first="number")

    session: str
    writer: str
    epoch: int
    number: int


class RowRead(Answer, frozen=True, gc=False):
    """To `ReadRow`."""

    columns: ClassVar = TraceColumns(first="there", last="stored_ns")

    found: bool
    stored_ns: int = 0
    """Since when (0: unknown)."""

    @property
    def there(self) -> int:
        """1: it was found."""
        return int(self.found)


class PutMarker(Request, frozen=True, gc=False):
    """Store a marker, if the epoch still is that of the writer; one that is there already stays."""

    columns: ClassVar = TraceColumns(key="writer", term="epoch", first="k")

    session: str
    writer: str
    epoch: int
    k: int
    token: int
    n: int


# -- of an owner ----------------------------------------------------------------------------------------------------


class LoadSession(Request, frozen=True, gc=False):
    """Register as the owner of the client's session, under `token`, and load its state: one transaction."""

    columns: ClassVar = TraceColumns(key="client", term="token")

    client: str
    owner: str
    token: int


class SessionLoaded(Answer, frozen=True, gc=False):
    """To `LoadSession`; `time_ns`: what the clock of the database showed."""

    columns: ClassVar = TraceColumns(key="session", first="time_ns")

    session: str
    state: SessionState
    time_ns: int = 0


class SessionAbsent(Answer, frozen=True, gc=False):
    """To `LoadSession`: there is none, or it has expired."""


class NotOwner(Answer, frozen=True, gc=False):
    """To whatever an owner asks: a higher token has been here, and nothing was done."""


class ReadPending(Request, frozen=True, gc=False):
    """What is stored for the session, as far as it is visible here; `writer`: of this one alone ("": of all).  Of each
    writer the first `rows` (0: as many as a store reads at once) of those that the committed state has not taken, and
    that are `behind` this place."""

    columns: ClassVar = TraceColumns(key="session")

    session: str
    writer: str = ""
    rows: int = 0
    behind: Position = (0, 0)


class PendingRead(Answer, frozen=True, gc=False):
    """To `ReadPending` of all writers; no row that was stored before `complete_ns` is missing, and no writer that has
    stored something before `seen_ns` (0: unknown)."""

    found: tuple[EpochRows, ...]
    complete_ns: int = 0
    seen_ns: int = 0


class Polled(Answer, frozen=True, gc=False):
    """To `ReadPending` of one writer; no row that was stored before `complete_ns` is missing (0: unknown)."""

    columns: ClassVar = TraceColumns(key="writer")

    writer: str
    found: tuple[EpochRows, ...]
    complete_ns: int = 0


class SubscribeLive(Request, frozen=True, gc=False):
    """Subscribe everything that the session subscribes, live to `owner`: one transaction of the whole cluster."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    session: str
    owner: str
    token: int


class SubscribedLive(Answer, frozen=True, gc=False):
    """To `SubscribeLive`: it is known everywhere.  Read after that: the session's `writers` of all nodes, and those
    that are `gone`, and have ever stored anything for it.  Whoever is not among them has stored nothing before
    `seen_ns` (0: unknown)."""

    writers: tuple[str, ...]
    gone: tuple[str, ...] = ()
    seen_ns: int = 0


class UnsubscribeLive(Request, frozen=True, gc=False):
    """The owner with this `token` is not live any more; it needs no answer."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    session: str
    token: int


class Fence(Request, frozen=True, gc=False):
    """Raise the writer's epoch under `token`: to `below` if it is lower, or (0) by one whatever it is.  Then read, from
    what is committed, the first `rows` of the epochs below that are behind this place (0: as many as a store reads at
    once); `n` comes back with the answer."""

    columns: ClassVar = TraceColumns(key="writer", term="below")

    session: str
    writer: str
    behind: Position
    below: int
    token: int
    n: int
    rows: int = 0


class FencedRows(Answer, frozen=True, gc=False):
    """To `Fence`: complete, since nothing can be stored under epochs below `below` any more; or, where there is `more`,
    complete up to its last row.  No row of any epoch that was stored before `complete_ns` is missing (0: unknown)."""

    columns: ClassVar = TraceColumns(key="writer", term="below")

    writer: str
    below: int
    n: int
    found: tuple[EpochRows, ...]
    more: bool = False
    complete_ns: int = 0


class ConfirmRows(Request, frozen=True, gc=False):
    """Which of these rows are stored exactly so?  Under `token`, and read from what is committed, not from a
    replica."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    session: str
    token: int
    found: tuple[EpochRows, ...]


class RowsConfirmed(Answer, frozen=True, gc=False):
    """To `ConfirmRows`: those that are."""

    found: tuple[EpochRows, ...]


class StateChange(msgspec.Struct, frozen=True, gc=False):
    """What a commit makes of the state that was committed before it: see `change_state`."""

    taken: Map[str, Position] = Map()
    """Of each writer of which something was taken: the last number."""
    ended: tuple[int, ...] = ()
    """Packets that are done."""
    packets: tuple[InFlightRecord, ...] = ()
    """Packets that begin, or that the client has received, in the order of their ids."""
    dequeued: int = 0
    """So many are queued no more, from the first on."""
    queued: tuple[Queued, ...] = ()
    """These are queued behind the others."""
    places: int = 0

    def list_packets(self, time_ns: int) -> list[InFlightRecord]:
        """Those that are committed at this time by the clock of the database: a packet that begins with a message that
        is over is left out, since nobody will send it."""
        packets = self.packets
        return [one for one in packets if not (one.queued.until_ns and begins(one) and is_over(one.queued, time_ns))]


def begins(one: InFlightRecord) -> bool:
    """It is in no committed state yet."""
    return one.status is TAKEN


def change_state(before: SessionState, change: StateChange, time_ns: int) -> SessionState:
    """The state after a commit at this time by the clock of the database."""
    packets = before.packets.mutate()
    for packet in change.ended:
        packets.pop(packet, None)
    for one in change.list_packets(time_ns):
        packets[one.packet] = one
    queued = (*before.queued[change.dequeued :], *change.queued)
    return SessionState(before.taken.update(change.taken), packets.finish(), queued, change.places)


class CommitState(Request, frozen=True, gc=False):
    """Commit the session state, under `token`: what has changed since the commit before, or since it was loaded."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    session: str
    token: int
    change: StateChange


class StateCommitted(Answer, frozen=True, gc=False):
    """To `CommitState`; `time_ns`: what the clock of the database showed."""

    columns: ClassVar = TraceColumns(first="time_ns")

    time_ns: int = 0


def without_message(queued: Queued, now_ns: int) -> Queued:
    """A row whose message is gone, as it is read at this time by the clock of the database.  One that is over keeps the
    name of its message: whoever takes it passes it over.  Any other has none, and counts as lost."""
    return queued if is_over(queued, now_ns) else replace(queued, message="")


class MarkDelivered(Request, frozen=True, gc=False):
    """The row is taken, and those behind it up to `last` (0: it alone): they need not be kept."""

    columns: ClassVar = TraceColumns(key="writer", term="epoch", first="number", last="until")

    session: str
    writer: str
    epoch: int
    number: int
    last: int = 0

    @property
    def until(self) -> int:
        """The number of the last row that it is about."""
        return self.last or self.number
