"""SessionTables: the tables of one session, and the service that carries out what is asked of them.

Explorer and tests hold it as a value.  Rows may become visible to readers later than they are stored, as on a replica.

SessionLoad: how much an owner has in its hands.

What the store decides of a client, in one transaction: who has its client id, and what becomes of its session.

The tables are somewhere else: in SQL, or in the components of an explored system.  Both ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Request
from statemachines.persistent_sessions.life_request import ClientBusy, LeaveSession, LockClient, OpenSession, StoreFull
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import (
    DATABASE,
    BeginEpoch,
    CommitState,
    ConfirmRows,
    EpochBegun,
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    MarkDelivered,
    NotOwner,
    PendingRead,
    Polled,
    Position,
    PutMarker,
    PutRows,
    ReadPending,
    ReadRow,
    RowFenced,
    RowRead,
    RowsConfirmed,
    RowStored,
    SessionAbsent,
    SessionLoaded,
    SessionState,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
    change_state,
)
from statemachines.persistent_sessions.resume_record import ResumeRecord

SESSION = "s1"


class StoredEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a writer: a row, or (without `queued`) a marker; `done`: marked as delivered."""

    epoch: int
    queued: Queued | None = None
    token: int = 0
    n: int = 0
    visible: bool = False
    done: bool = False


class StoredRows(msgspec.Struct, frozen=True, gc=False):
    """One writer: its `epoch`, and all that it has stored; `up`: it lives; `unspread`: it does not know yet who is
    live."""

    writer: str
    epoch: int = 0
    entries: tuple[StoredEntry, ...] = ()
    up: bool = True
    unspread: bool = False


class SessionTables(msgspec.Struct, frozen=True, gc=False):
    """`shelves` by writer; the session's state, the highest `token` and its `owner` ("": nobody is live); `time_ns`:
    what its clock shows; `commits` of rows, where they are counted."""

    shelves: tuple[StoredRows, ...]
    state: SessionState = SessionState()
    token: int = 0
    owner: str = ""
    time_ns: int = 0
    commits: int = 0

    @property
    def open_numbers(self) -> tuple[int, ...]:
        """Numbers that transactions have taken which are open."""
        return ()


class SessionService:
    """The service: `lag`: so many entries of a writer may be invisible at most; `hides`: rows that are marked are not
    read any more; `stamps`: rows have the number of their commit as their time; `is_absent`: the session is gone."""

    name = DATABASE

    def __init__(
        self,
        writers: tuple[str, ...],
        *,
        lag: int = 0,
        hides: bool = True,
        stamps: bool = False,
        begun: int = 0,
        is_absent: bool = False,
    ) -> None:
        self.writers = writers
        self.lag = lag
        self.hides = hides
        self.stamps = stamps
        self.begun = begun
        self.is_absent = is_absent

    def initial(self) -> SessionTables:
        """Nothing is stored."""
        return SessionTables(tuple(StoredRows(writer, self.begun) for writer in self.writers))

    def apply(self, tables: Any, request: Request, now_ns: int = 0) -> tuple[Any, tuple[Answer, ...]]:
        """One transaction; the clock is that of the tables."""
        match request:
            case BeginEpoch(_, writer):
                shelf = find_shelf(tables, writer)
                shelf = replace(shelf, epoch=shelf.epoch + 1)
                return put_shelf(tables, shelf), (EpochBegun(shelf.epoch),)
            case PutRows():
                return self.put_rows(tables, request)
            case PutMarker(_, writer, epoch, _, token, n):
                there = any(
                    (one.token, one.n) == (token, n) for one in find_shelf(tables, writer).entries if one.epoch == epoch
                )
                if there and find_shelf(tables, writer).epoch == epoch:
                    return tables, (RowStored(),)
                return self._append(tables, writer, epoch, StoredEntry(epoch, token=token, n=n))
            case ReadRow(_, writer, epoch, number):
                rows = _rows(find_shelf(tables, writer), epoch, lambda one: True)
                times = [row.stored_ns for row in rows if row.number == number]
                return tables, (RowRead(bool(times), *times),)
            case ReadPending(_, ""):
                found = tuple(one for writer in self.writers for one in self._pending(tables, writer, request))
                complete_ns = min(self._complete_ns(tables, writer, found) for writer in self.writers)
                return tables, (PendingRead(found, complete_ns, self._complete_ns(tables, "", ())),)
            case ReadPending(_, writer):
                found = self._pending(tables, writer, request)
                return tables, (Polled(writer, found, self._complete_ns(tables, writer, found, request.behind)),)
        return self._apply_owned(tables, request)

    def _apply_owned(self, tables: Any, request: Any) -> tuple[Any, tuple[Answer, ...]]:
        """What is asked under a token."""
        if isinstance(request, MarkDelivered):
            return self._marked(tables, request), ()
        if request.token < tables.token:
            return tables, () if isinstance(request, UnsubscribeLive) else (NotOwner(),)
        match request:
            case LoadSession(_, _, token):
                if self.is_absent:
                    return tables, (SessionAbsent(),)
                return replace(tables, token=token), (SessionLoaded(SESSION, tables.state, tables.time_ns),)
            case SubscribeLive(_, owner, _):
                tables = replace(tables, owner=owner)
                return tables, (self._subscribed(tables),)
            case UnsubscribeLive():
                return replace(tables, owner=""), ()
            case CommitState():
                state = change_state(tables.state, request.change, tables.time_ns)
                return replace(tables, state=state), (StateCommitted(tables.time_ns),)
            case ConfirmRows(_, _, found):
                return tables, (RowsConfirmed(tuple(self._same(tables, one) for one in found)),)
            case Fence(_, writer, behind, below, _, n, limit):
                shelf = find_shelf(tables, writer)
                below = below or shelf.epoch + 1
                shelf = replace(shelf, epoch=max(shelf.epoch, below))
                stored = [
                    EpochRows(writer, epoch, _rows(shelf, epoch, lambda one: True)) for epoch in range(behind[0], below)
                ]
                found, more = first_of(stored, max(behind, tables.state.taken.get(writer, (0, 0))), limit)
                found = tuple(one for one in found if one.rows)
                complete_ns = self._complete_ns(tables, writer, found, behind)
                return put_shelf(tables, shelf), (FencedRows(writer, below, n, found, more, complete_ns),)
        raise TypeError(f"the database does not take {request!r}")

    def put_rows(self, tables: Any, request: PutRows, number: int = 0) -> tuple[Any, tuple[Answer, ...]]:
        """Rows are stored, under a commit `number` that was taken before (0: none was)."""
        return self._append(
            tables, request.writer, request.epoch, *store_range(request.epoch, request.rows), number=number
        )

    def _append(
        self, tables: Any, writer: str, epoch: int, *more: StoredEntry, number: int = 0
    ) -> tuple[Any, tuple[Answer, ...]]:
        """Entries are stored under the newest epoch alone."""
        shelf = find_shelf(tables, writer)
        if shelf.epoch != epoch:
            return tables, (RowFenced(shelf.epoch),)
        if self.stamps and more[0].queued is not None:
            number = number or tables.commits + 1
            tables = replace(tables, commits=max(tables.commits, number))
            more = tuple(stamp_row(one, number) for one in more)
        entries = (*shelf.entries, *more)
        hidden = [place for place, one in enumerate(entries) if not one.visible]
        while len(hidden) > self.lag:
            first = hidden.pop(0)
            entries = tuple(replace(one, visible=True) if place == first else one for place, one in enumerate(entries))
        return put_shelf(tables, replace(shelf, entries=entries)), (RowStored(number or tables.commits),)

    def _complete_ns(
        self, tables: SessionTables, writer: str, found: tuple[EpochRows, ...], behind: Position = (0, 0)
    ) -> int:
        """No row that was stored before is missing in what is read; 0 where rows have no time."""
        if not self.stamps or not writer:
            return first_open(tables) if self.stamps else 0
        behind = max(behind, tables.state.taken.get(writer, (0, 0)))
        read = {(one.epoch, row.number) for one in found for row in one.rows if one.writer == writer}
        rows = [(one.epoch, one.queued) for one in find_shelf(tables, writer).entries if one.queued is not None]
        missing = [
            row.stored_ns for epoch, row in rows if behind < (epoch, row.number) and (epoch, row.number) not in read
        ]
        return min((first_open(tables), *missing))

    def _marked(self, tables: Any, request: MarkDelivered) -> Any:
        if not self.hides:
            return tables
        shelf = find_shelf(tables, request.writer)
        entries = tuple(
            replace(one, done=True) if one.queued and is_marked_by(request, one.epoch, one.queued.number) else one
            for one in shelf.entries
        )
        return put_shelf(tables, replace(shelf, entries=entries))

    def _pending(self, tables: SessionTables, writer: str, asked: ReadPending) -> tuple[EpochRows, ...]:
        """As many as are asked for, behind what the committed state has taken."""
        behind = max(asked.behind, tables.state.taken.get(writer, (0, 0)))
        return first_of(self._visible(tables, writer), behind, asked.rows)[0]

    def _visible(self, tables: SessionTables, writer: str) -> tuple[EpochRows, ...]:
        shelf = find_shelf(tables, writer)
        found = []
        for epoch in sorted({one.epoch for one in shelf.entries if one.visible}):
            rows = _rows(shelf, epoch, lambda one: one.visible and not one.done)
            marks = [
                (one.token, one.n) for one in shelf.entries if one.epoch == epoch and one.visible and not one.queued
            ]
            found.append(EpochRows(writer, epoch, rows, tuple(marks)))
        return tuple(found)

    def _same(self, tables: SessionTables, one: EpochRows) -> EpochRows:
        """What of it is stored exactly so."""
        known = one.writer in self.writers
        stored = _rows(find_shelf(tables, one.writer), one.epoch, lambda one: True) if known else ()
        return replace(one, rows=tuple(row for row in one.rows if row in stored))

    def _subscribed(self, tables: SessionTables) -> SubscribedLive:
        there = tuple(shelf.writer for shelf in tables.shelves if shelf.epoch and shelf.up)
        gone = tuple(shelf.writer for shelf in tables.shelves if shelf.epoch and not shelf.up)
        return SubscribedLive(there, gone, first_open(tables) if self.stamps else 0)


def store_range(epoch: int, rows: tuple[Queued, ...]) -> tuple[StoredEntry, ...]:
    """The entries of a range: all of it is one transaction."""
    return tuple(StoredEntry(epoch, queued) for queued in rows)


def first_open(tables: SessionTables) -> int:
    """The lowest number that a transaction has taken which is open, or that none has taken yet."""
    return min(tables.open_numbers, default=tables.commits + 1)


def stamp_row(one: StoredEntry, stored_ns: int) -> StoredEntry:
    """The row with the time of its commit."""
    assert one.queued is not None
    return replace(one, queued=replace(one.queued, stored_ns=stored_ns))


def first_of(found: Sequence[EpochRows], behind: Position, limit: int) -> tuple[tuple[EpochRows, ...], bool]:
    """No more than `limit` rows (0: all), and whether there are more.  Where all fit those that are not behind that
    place are shown, too: nobody may count on it that they are not."""
    if not limit or sum(len(one.rows) for one in found) <= limit:
        return tuple(found), False
    pages: list[EpochRows] = []
    more = False
    for one in found:
        rows = tuple(row for row in one.rows if (one.epoch, row.number) > behind)
        pages.append(replace(one, rows=rows[:limit]))
        more = more or len(rows) > limit
        limit = max(0, limit - len(rows))
    return tuple(pages), more


def is_marked_by(request: MarkDelivered, epoch: int, number: int) -> bool:
    """Whether it is about this row."""
    return epoch == request.epoch and request.number <= number <= request.until


def find_shelf(tables: SessionTables, writer: str) -> StoredRows:
    """What this writer has stored."""
    return next(shelf for shelf in tables.shelves if shelf.writer == writer)


def put_shelf(tables: Any, shelf: StoredRows) -> Any:
    """With this of its writer."""
    shelves = tuple(shelf if one.writer == shelf.writer else one for one in tables.shelves)
    return replace(tables, shelves=shelves)


def _rows(shelf: StoredRows, epoch: int, wanted: Callable[[StoredEntry], bool]) -> tuple[Queued, ...]:
    rows = (one.queued for one in shelf.entries if one.epoch == epoch and one.queued is not None and wanted(one))
    return tuple(sorted(rows, key=lambda row: row.number))


class SessionLoad(NamedTuple):
    """Of some sessions: how many are `resumed`, and messages in flight, `queued` for the client, and `blocked`."""

    resumed: int
    in_flight: int
    queued: int
    blocked: int


def measure_load(records: Iterable[ResumeRecord | None]) -> SessionLoad:
    """The load of these owners; None has nothing."""
    found = [one for one in records if one is not None]
    deliveries = [one.delivery for one in found if one.delivery is not None]
    return SessionLoad(
        len(deliveries),
        sum(len(one.state.packets) for one in deliveries),
        sum(len(one.state.queued) for one in deliveries),
        sum(len(queue) for one in found for queue in one.blocked_rows.values()),
    )


class LastLock(msgspec.Struct, frozen=True, gc=False):
    """Who had the client id last: under this `token`, in this `attempt` of the `instance` of a client ("": none)."""

    token: int
    instance: str = ""
    attempt: int = 0

    def count_ahead(self, asked: LockClient) -> int:
        """How many attempts the asker is ahead of the one that had it last; 0: it is another client, or the same
        attempt."""
        return asked.attempt - self.attempt if asked.instance and self.instance == asked.instance else 0


def refuse_lock(last: LastLock | None, asked: LockClient, is_held: Callable[[], bool]) -> NotOwner | ClientBusy | None:
    """Why the client id is not given to the asker (None: it is), PS-101.

    Args:
        last: who had it last (None: nobody yet).
        is_held: whether somebody else has it whose lease has not ended, and whose node has not either.
    """
    ahead = 0 if last is None else last.count_ahead(asked)
    if ahead < 0:
        return NotOwner()
    is_busy = last is not None and ahead == 0 and last.token != asked.aged and is_held()
    return ClientBusy(last.token) if last is not None and is_busy else None


def is_superseded(highest: int | None, token: int) -> bool:
    """A higher token was given; or (None) the client was forgotten since, and whoever had a token with it."""
    return highest is None or token < highest


def refuse_session(before: str, asked: OpenSession, count_sessions: Callable[[], int]) -> StoreFull | None:
    """Why a session of `before` ("": the client has none) is not opened, PS-212; `count_sessions` that are kept."""
    if before or not asked.most:
        return None
    kept = count_sessions()
    return StoreFull(kept) if kept >= asked.most else None


def find_abandoned(before: str, asked: OpenSession) -> str:
    """The session that another one is opened in place of ("": none)."""
    return before if before != asked.session else ""


def is_left(session: str, asked: LeaveSession) -> bool:
    """The client leaves the session that it has; one that was left already, or is gone, is left alone."""
    return bool(session) and session == asked.session
