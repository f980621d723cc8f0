"""ResumeRecord: a session in its owner's hands, from the first look at the database on.

BlockedQueue: rows of one writer that wait for older rows of other writers.

WaitingMessages: runs of messages that waited in the last walk of a collector, and need not be read again.

Each message of a run had an undelivered row that is never over.  Rows of one writer, epoch and session go from the
front.  So while the first of these rows is there, all messages that were found by them wait still (PS-710).

Rows that wait for a session, in pieces, and which of them are dropped where too many wait.

A session may have so many messages, or bytes of payload, waiting.  Beyond, its oldest are dropped, so that one client
that stays away fills no disk.  Nine tenths of the bound remain, so that not every round drops something.

RowMerge: rows of several writers go into the session state in the order in which they were committed.

A writer's own rows come in the order of their numbers, and each writer is read, and heard, for itself.  A row that is
taken while another writer may still have an older one is blocked: it waits until nothing older is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Call, Effects, Event, Map, Status, TimerFired, TraceColumns
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.delivery import DeliveryRecord
from statemachines.persistent_sessions.message import Live, Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.takeover_record import TakeoverRecord
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow import DONE, WAITING, Take, WriterFlowRecord


class BlockedRow(msgspec.Struct, frozen=True, gc=False):
    """A row of a writer that is taken, and what was stored before `bound_ns` comes before it."""

    epoch: int
    queued: Queued
    bound_ns: int


class BlockedQueue(msgspec.Struct, frozen=True, gc=False):
    """`rows` under running numbers, the first of them under `head`.  Adding or dropping a row copies no other row."""

    rows: Map[int, BlockedRow] = Map()
    head: int = 0

    @property
    def first(self) -> BlockedRow:
        """The oldest; raises `KeyError` if there is none."""
        return self.row_at(0)

    @property
    def last(self) -> BlockedRow:
        """The youngest; raises `KeyError` if there is none."""
        return self.row_at(len(self) - 1)

    def row_at(self, place: int) -> BlockedRow:
        """The row that has `place` others before it; raises `KeyError` if there is none."""
        return self.rows[self.head + place]

    def add(self, rows: Iterable[BlockedRow]) -> BlockedQueue:
        """With these behind the others.  A queue begins with the number of its first row, so that the same rows are
        the same queue."""
        head, items = self.head, self.rows.mutate()
        for row in rows:
            head = head if items else row.queued.number
            items[head + len(items)] = row
        return BlockedQueue(items.finish(), head)

    def drop(self, count: int) -> BlockedQueue:
        """Without the first `count`."""
        items = self.rows.mutate()
        for place in range(self.head, self.head + count):
            del items[place]
        return BlockedQueue(items.finish(), self.head + count)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[BlockedRow]:
        return (self.rows[place] for place in range(self.head, self.head + len(self.rows)))


class ResumeSession(Call, frozen=True, gc=False):
    """A client connects, its client id is locked, and its session was present."""


class ConnectionLost(Call, frozen=True, gc=False):
    """The client is gone; its session stays."""


class Discarded(Call, frozen=True, gc=False):
    """The client starts clean elsewhere, or the session is taken over."""


class ResumeTimeout(TimerFired, frozen=True, gc=False):
    """The resume has taken too long."""


class OrphanTimeout(TimerFired, frozen=True, gc=False):
    """Whoever we have yielded to has not ended the takeover."""


class Lull(TimerFired, frozen=True, gc=False):
    """For a while the client has had room for a few rows: it may be waiting for them."""


class Yielded(Event, frozen=True, gc=False):
    """To the host: somebody else has the session; nothing is sent to this client any more, so its connection is to be
    closed.  `ResumeEnded` follows."""

    columns: ClassVar = TraceColumns(key="session")

    session: str


class Resumed(Event, frozen=True, gc=False):
    """To the host: the session is in normal operation."""

    columns: ClassVar = TraceColumns(key="session")

    session: str


class ResumeEnded(Event, frozen=True, gc=False):
    """To the host: it is over.  `why`: absent, superseded, timeout, lost, discarded, taken over, orphaned (it has
    yielded, and nobody came)."""

    session: str
    why: str


class ResumeStatus(Status):
    """`loading`, `reading` and `subscribing` wait for the database; `taking` for the owner of before, `syncing` for
    the writers, `yielding` for the owner that comes after."""

    NEW = "new"
    LOADING = "loading"
    TAKING = "taking"
    READING = "reading"
    SUBSCRIBING = "subscribing"
    SYNCING = "syncing"
    NORMAL = "normal"
    YIELDING = "yielding"
    STOPPED = "stopped"


NEW, LOADING, TAKING, READING, SUBSCRIBING, SYNCING, NORMAL, YIELDING, STOPPED = ResumeStatus


class CatchUpDue(TimerFired, frozen=True, gc=False):
    """Time to read all writers again: what a replica has shown was too old."""


class ResumeRecord(msgspec.Struct, frozen=True, gc=False):
    """The session of `client` at the owner `id`, under the fencing `token` of its lock; `old`: the owner in whose
    hands it is ("": nobody's), which its client has `left`, and the `takeover` from it; `silent`: the node of an owner
    of before that did not begin.  `pending`: what was visible in the database before it
    subscribed, and while it yields what is handed over; `flows` by writer; `claim`: the token of whom it yields to (0:
    of nobody yet).  `blocked_rows` by writer wait for older ones of other writers, for whose
    sake all are read (`reads`); `complete_ns` of what is pending.  Writers that are not in `flows` have stored nothing
    before `known_ns`."""

    id: str
    client: str
    token: int
    times: Times
    old: str = ""
    status: ResumeStatus = NEW
    session: str = ""
    delivery: DeliveryRecord | None = None
    pending: tuple[EpochRows, ...] = ()
    flows: Map[str, WriterFlowRecord] = Map()
    takeover: TakeoverRecord | None = None
    claim: int = 0
    left: bool = False
    silent: str = ""
    blocked_rows: Map[str, BlockedQueue] = Map()
    complete_ns: int = 0
    known_ns: int = 0
    reads: bool = False


Done = tuple[ResumeRecord, Effects]
Delegated = tuple[ResumeRecord, Effects, tuple[ChildStep, ...]]


Place = tuple[int, bytes]
"""The time and the id of a message: messages are read in this order."""

RowsOf = tuple[bytes, bytes, int]
"""Session, writer and epoch."""

Firsts = dict[RowsOf, int]
"""Of rows by which messages were found: the number of the first."""

RUN_MAX: Final = 10_000
"""Messages of a run: where one of its first rows has gone, they are read again."""

SHARE: Final = 4
"""A run is remembered that has so many times as many messages as first rows: asking for these is cheaper then."""

ASKED_MAX: Final = 1_000
"""First rows that are asked for in one transaction, and those of one run more."""

FIRSTS_MAX: Final = 100_000
"""First rows that are remembered, of all runs together."""


class MessageRun(NamedTuple):
    """The messages behind `begin`, up to `end`; the oldest is of `oldest_ns`."""

    begin: Place
    end: Place
    messages: int
    oldest_ns: int
    firsts: Firsts


class WaitingMessages:
    """`begin` a walk, `note` runs in their order, and `finish`; `retention_ns`: a run whose oldest message has this age
    is read.  `pass_over` says where reading goes on behind runs that are known."""

    def __init__(self, retention_ns: int) -> None:
        self._retention_ns = retention_ns
        self._known: dict[Place, MessageRun] = {}
        """By their begin: runs of the last walk that came to its end."""
        self._walked: dict[Place, MessageRun] = {}
        self._open: MessageRun | None = None
        """What is noted next may belong to it."""
        self._firsts = 0

    def begin(self) -> None:
        """A walk begins: what was noted of one that did not come to its end counts for nothing."""
        self._walked = {}
        self._open = None
        self._firsts = 0

    def note(self, run: MessageRun) -> None:
        """These messages wait."""
        before = self._open
        if before is None or before.end != run.begin or before.messages + run.messages > RUN_MAX:
            self._close()
            self._open = run._replace(firsts=dict(run.firsts))
            return
        add_firsts(before.firsts, run.firsts.items())
        oldest_ns = min(before.oldest_ns, run.oldest_ns)
        self._open = before._replace(end=run.end, messages=before.messages + run.messages, oldest_ns=oldest_ns)

    def finish(self) -> None:
        """There are no more messages."""
        self._close()
        self._known = self._walked

    def is_known(self, place: Place) -> bool:
        """Whether a run begins behind this message."""
        return place in self._known

    def pass_over(self, place: Place, aged_ns: int, are_there: Callable[[Firsts], bool]) -> Place:
        """Behind the runs that begin here, one behind the other, and wait still; `aged_ns`: up to when ages count;
        `are_there`: whether the database has these rows."""
        asked = 0
        while asked < ASKED_MAX:
            run = self._known.get(place)
            if run is None or run.oldest_ns + self._retention_ns <= aged_ns or not are_there(run.firsts):
                break
            asked += len(run.firsts)
            self.note(run)
            place = run.end
        return place

    def _close(self) -> None:
        run, self._open = self._open, None
        if run is None or SHARE * len(run.firsts) > run.messages or self._firsts + len(run.firsts) > FIRSTS_MAX:
            return
        self._firsts += len(run.firsts)
        self._walked[run.begin] = run


def add_firsts(firsts: Firsts, others: Iterable[tuple[RowsOf, int]]) -> None:
    """The first of both."""
    for rows, number in others:
        firsts[rows] = min(number, firsts.get(rows, number))


class Piece(msgspec.Struct):
    """Rows `first` to `last` of one writer and epoch, the last of which was stored at `time_ns`."""

    writer: bytes
    epoch: int
    first: int
    last: int
    time_ns: int
    rows: int = 0
    size_bytes: int = 0


def list_within(pieces: Sequence[Piece], first: int, last: int) -> list[Piece]:
    """Those that lie between these numbers."""
    return [piece for piece in pieces if first <= piece.first and piece.last <= last]


def list_large(pieces: Sequence[Piece], rows_min: int) -> list[Piece]:
    """Those with so many rows, or more."""
    return [piece for piece in pieces if piece.rows >= rows_min]


def list_others(pieces: Sequence[Piece], dropped: Sequence[Piece]) -> list[Piece]:
    """Those that are not dropped."""
    gone = {(piece.writer, piece.epoch, piece.first) for piece in dropped}
    return [piece for piece in pieces if (piece.writer, piece.epoch, piece.first) not in gone]


def add_up(pieces: Sequence[Piece]) -> tuple[int, int]:
    """Their rows and bytes."""
    return sum(piece.rows for piece in pieces), sum(piece.size_bytes for piece in pieces)


def choose_dropped(pieces: Sequence[Piece], rows_max: int, size_bytes_max: int) -> list[Piece]:
    """The oldest pieces of a session with more than `rows_max` rows or `size_bytes_max` bytes, until nine tenths are
    left; of a session with no more than that, none."""
    rows, size = add_up(pieces)
    dropped: list[Piece] = []
    if rows <= rows_max and size <= size_bytes_max:
        return dropped
    for piece in sorted(pieces, key=lambda one: (one.time_ns, one.writer, one.epoch, one.first)):
        if 10 * rows <= 9 * rows_max and 10 * size <= 9 * size_bytes_max:
            break
        rows -= piece.rows
        size -= piece.size_bytes
        dropped.append(piece)
    return dropped


def add_take(record: ResumeRecord, event: Take, cause: object) -> ResumeRecord:
    """With rows that a flow takes: a live one waits for what its publisher may have published elsewhere, any other for
    all that is older."""
    since_ns = cause.since_ns if isinstance(cause, Live) else None
    queue = record.blocked_rows.get(event.writer, BlockedQueue())
    queue = queue.add(BlockedRow(event.epoch, row, _bound(row, since_ns)) for row in event.rows)
    return replace(record, blocked_rows=record.blocked_rows.set(event.writer, queue))


def may_pass(record: ResumeRecord, event: Take, cause: object) -> bool:
    """No row is blocked, and nothing that is older than the last of these is missing."""
    return not record.blocked_rows and has_nothing_missing(record, event, cause)


def has_nothing_missing(record: ResumeRecord, event: Take, cause: object) -> bool:
    """All is taken that comes before the last of these rows."""
    bound_ns = _bound(event.rows[-1], cause.since_ns if isinstance(cause, Live) else None)
    return is_complete(record, event.writer, bound_ns)


def is_complete(record: ResumeRecord, writer: str, bound_ns: int) -> bool:
    """Of every other writer, known or not, all is taken that was stored before."""
    if record.known_ns < bound_ns:
        return False
    return all(flow.complete_ns >= bound_ns for name, flow in record.flows.items() if name != writer)


def release_rows(record: ResumeRecord) -> tuple[ResumeRecord, tuple[Take, ...]]:
    """Without the rows that nothing blocks any more, and those, in their order."""
    blocked = record.blocked_rows
    places = dict.fromkeys(blocked, 0)
    runs: list[tuple[str, int, list[Queued]]] = []
    while (writer := find_free(record, places)) is not None:
        row = blocked[writer].row_at(places[writer])
        if not runs or runs[-1][:2] != (writer, row.epoch):
            runs.append((writer, row.epoch, []))
        runs[-1][2].append(row.queued)
        places[writer] += 1
    for writer, count in places.items():
        if count == len(blocked[writer]):
            blocked = blocked.delete(writer)
        elif count:
            blocked = blocked.set(writer, blocked[writer].drop(count))
    takes = tuple(Take(writer, epoch, tuple(rows)) for writer, epoch, rows in runs)
    return replace(record, blocked_rows=blocked), takes


def find_free(record: ResumeRecord, places: dict[str, int]) -> str | None:
    """The writer whose next row goes first: of the rows that wait for nothing the oldest; `places`: how many of each
    writer have gone.  A writer is complete as far as its rows are taken, so an older row waits for no more than this
    one does."""
    queues = ((writer, record.blocked_rows[writer], place) for writer, place in places.items())
    heads = {writer: queue.row_at(place) for writer, queue, place in queues if place < len(queue)}
    for writer in sorted(heads, key=lambda one: (heads[one].queued.stored_ns, one)):
        if is_complete(record, writer, heads[writer].bound_ns):
            return writer
    return None


def needs_read(record: ResumeRecord) -> bool:
    """Of a writer that nobody reads otherwise, or knows of, something may be missing that blocks a row."""
    for writer, queue in record.blocked_rows.items():
        bound_ns = queue.first.bound_ns
        if record.known_ns < bound_ns:
            return True
        for name, flow in record.flows.items():
            if name != writer and flow.status in (WAITING, DONE) and flow.complete_ns < bound_ns:
                return True
    return False


def _bound(row: Queued, since_ns: int | None) -> int:
    """What was stored before this comes before the row."""
    return row.stored_ns if since_ns is None else min(since_ns, row.stored_ns)
