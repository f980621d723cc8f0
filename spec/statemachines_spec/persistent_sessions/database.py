"""Database: rows, markers, epochs and the session state; what is stored becomes visible to readers only later.

Writes, fences and the state are one order for everybody; reads of pending rows come from a replica, on which the
entries of a writer appear in their order (unless the system says otherwise) and no more than `lag` of them are
missing.  What is slow is carried out some time after it was asked, and answered some time after that; what one party
asks is done in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Request, name_of
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
    RowUnclear,
    SessionAbsent,
    SessionLoaded,
    SessionState,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
    change_state,
)
from statemachines.persistent_sessions.writer_record import LiveGone, LiveKnown
from statemachines_spec.explorer.actor import Crash, Envelope, Observer, Reaction, Restart, Watch
from statemachines_spec.explorer.property import View

SESSION = "s1"


class Appear(Event, frozen=True, gc=False):
    """An entry of this writer becomes visible on the replica."""

    writer: str
    place: int


class CarryOut(Event, frozen=True, gc=False):
    """What this party has asked is done."""

    party: str


class Reply(Event, frozen=True, gc=False):
    """This party gets its answer."""

    party: str


class Blur(Event, frozen=True, gc=False):
    """What this party has asked is done, and it does not learn so."""

    party: str


class Fail(Event, frozen=True, gc=False):
    """What this party has asked is not done, and it does not learn so."""

    party: str


class Spread(Event, frozen=True, gc=False):
    """This writer learns where the session is live."""

    writer: str


class TimePasses(Event, frozen=True, gc=False):
    """The clock of the database goes on."""


class Lives(Event, frozen=True, gc=False):
    """This writer has begun, or this process has died: what it has asked, and is not done, is lost."""

    who: str
    up: bool


class Stored(msgspec.Struct, frozen=True, gc=False):
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
    entries: tuple[Stored, ...] = ()
    up: bool = True
    unspread: bool = False


class Owed(msgspec.Struct, frozen=True, gc=False):
    """`party` waits: for its request to be carried out, or for its answer; `kind` of either, since two kinds may have
    the same fields.  `number` that its transaction has taken, which is open until it is carried out (0: none)."""

    party: str
    kind: str
    request: Request | None = None
    answer: Answer | None = None
    number: int = 0


class DatabaseLocal(msgspec.Struct, frozen=True, gc=False):
    """`shelves` by writer; the session's state, the highest `token` and its `owner` ("": nobody is live); `now_ns`:
    what its clock shows; `commits` of rows, where they are counted."""

    shelves: tuple[StoredRows, ...]
    state: SessionState = SessionState()
    token: int = 0
    owner: str = ""
    owed: tuple[Owed, ...] = ()
    now_ns: int = 0
    commits: int = 0


class Database(Observer):
    """`lag`: so many entries of a writer may be invisible at most; `ordered`: they appear in their order; `slow`
    requests; `unclear`: answers to rows may get lost; `hides`: rows that are marked are not read any more; `spreads`:
    a subscription is known everywhere when it is answered; its clock goes on so often (`ages`); `stamps`: rows have the
    number of their commit as their time; `opens`: a transaction that stores rows takes its number when it begins."""

    def __init__(
        self,
        writers: tuple[str, ...],
        owners: tuple[str, ...],
        *,
        lag: int = 0,
        ordered: bool = True,
        slow: tuple[type[Request], ...] = (),
        unclear: bool = False,
        hides: bool = True,
        spreads: bool = True,
        begun: int = 0,
        absent: bool = False,
        ages: int = 0,
        stamps: bool = False,
        opens: bool = False,
    ) -> None:
        super().__init__(DATABASE)
        self.stamps = stamps
        self.opens = opens
        self.writers = writers
        self.owners = owners
        self.lag = lag
        self.ordered = ordered
        self.slow = slow
        self.unclear = unclear
        self.hides = hides
        self.spreads = spreads
        self.begun = begun
        self.absent = absent
        self.ages = ages

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> DatabaseLocal:
        return DatabaseLocal(tuple(StoredRows(writer, self.begun) for writer in self.writers))

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor in self.writers and isinstance(event, Restart):
            return Lives(actor, True)
        return Lives(actor, False) if isinstance(event, Crash) else None

    def inputs(self, local: DatabaseLocal) -> tuple[Any, ...]:
        found: list[Any] = [TimePasses()] if local.now_ns < self.ages else []
        for shelf in local.shelves:
            hidden = [place for place, one in enumerate(shelf.entries) if not one.visible]
            found += [Appear(shelf.writer, place) for place in (hidden[:1] if self.ordered else hidden)]
            found += [Spread(shelf.writer)] if shelf.unspread else []
        for party in dict.fromkeys(one.party for one in local.owed):
            first = next(one for one in local.owed if one.party == party)
            if first.answer is not None:
                found.append(Reply(party))
                continue
            found.append(CarryOut(party))
            if self.unclear and isinstance(first.request, PutRows | PutMarker):
                found += [Blur(party), Fail(party)]
        return tuple(found)

    def react(self, local: DatabaseLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Appear(writer, place):
                return Reaction(_show_entry(local, writer, place))
            case TimePasses():
                return Reaction(replace(local, now_ns=local.now_ns + 1))
            case Lives(who, up):
                local = local if up else replace(local, owed=_without(local.owed, who))
                return Reaction(_put(local, replace(_shelf(local, who), up=up)) if who in self.writers else local)
            case Spread(writer):
                shelf = replace(_shelf(local, writer), unspread=False)
                known = (self._make_known(local, writer),) if local.owner else ()
                return Reaction(_put(local, shelf), (), known)
            case CarryOut(party) | Blur(party) | Fail(party) | Reply(party):
                return self._go_on(local, party, event)
        if isinstance(event, self.slow):
            number = local.commits + 1 if self.opens and isinstance(event, PutRows) else 0
            asked = Owed(envelope.sender, name_of(type(event)), request=event, number=number)
            local = replace(local, commits=max(local.commits, number))
            return Reaction(replace(local, owed=tuple(sorted((*local.owed, asked), key=lambda one: one.party))))
        local, answers, calls = self.apply(local, event)
        back = tuple(Envelope(self.name, envelope.sender, answer) for answer in answers)
        return Reaction(local, (), (*calls, *back))

    def describe(self, local: DatabaseLocal) -> str:
        words = [f"token {local.token}"]
        for shelf in local.shelves:
            entries = " ".join(
                ("" if one.visible else "(hidden)")
                + (f"{one.epoch}.{one.queued.number}" if one.queued else f"marker{one.token}.{one.n}")
                for one in shelf.entries
            )
            words.append(f"{shelf.writer} epoch {shelf.epoch}: {entries or 'nothing'}")
        words += [f"{one.party} waits for {one.kind}" for one in local.owed]
        return "; ".join(words)

    def bounds(self) -> dict[str, str]:
        order = "in their order" if self.ordered else "in any order"
        lines = {"replica": f"at most {self.lag} entries of a writer are not visible yet; they appear {order}"}
        if self.ages:
            lines["clock"] = f"goes on {self.ages} times, at any moment"
        if self.slow:
            lines["carried out and answered later"] = ", ".join(name_of(kind) for kind in self.slow)
        return lines

    # -- reading it ---------------------------------------------------------------------------------------------

    def rests(self) -> View:
        """Nobody waits for it."""
        return View(self.name, 2, lambda local: int(not local.owed and not any(one.unspread for one in local.shelves)))

    # -- what is slow -------------------------------------------------------------------------------------------

    def _go_on(self, local: DatabaseLocal, party: str, event: Event) -> Reaction:
        one = next(owed for owed in local.owed if owed.party == party)
        rest = tuple(owed for owed in local.owed if owed is not one)
        if isinstance(event, Reply):
            assert one.answer is not None
            return Reaction(replace(local, owed=rest), (), (Envelope(self.name, party, one.answer),))
        assert one.request is not None
        local = replace(local, owed=rest)
        answers: tuple[Answer, ...] = (RowUnclear(),)
        calls: tuple[Envelope, ...] = ()
        if not isinstance(event, Fail):
            local, done, calls = self._store_open(local, one) if one.number else self.apply(local, one.request)
            answers = answers if isinstance(event, Blur) else done
        owed = tuple(Owed(party, name_of(type(answer)), answer=answer) for answer in answers)
        local = replace(local, owed=tuple(sorted((*owed, *rest), key=lambda one: one.party)))
        return Reaction(local, (), calls)

    # -- what it does -------------------------------------------------------------------------------------------

    def apply(
        self, local: DatabaseLocal, request: Request
    ) -> tuple[DatabaseLocal, tuple[Answer, ...], tuple[Envelope, ...]]:
        """The next state, the answers, and what others learn at once."""
        match request:
            case BeginEpoch(_, writer):
                shelf = _shelf(local, writer)
                shelf = replace(shelf, epoch=shelf.epoch + 1, unspread=not self.spreads and bool(local.owner))
                known = (self._make_known(local, writer),) if local.owner and self.spreads else ()
                return _put(local, shelf), (EpochBegun(shelf.epoch),), known
            case PutRows(_, writer, epoch, rows):
                return self._append(local, writer, epoch, *store_range(epoch, rows))
            case PutMarker(_, writer, epoch, _, token, n):
                there = any(
                    (one.token, one.n) == (token, n) for one in _shelf(local, writer).entries if one.epoch == epoch
                )
                if there and _shelf(local, writer).epoch == epoch:
                    return local, (RowStored(),), ()
                return self._append(local, writer, epoch, Stored(epoch, token=token, n=n))
            case ReadRow(_, writer, epoch, number):
                rows = _rows(_shelf(local, writer), epoch, lambda one: True)
                times = [row.stored_ns for row in rows if row.number == number]
                return local, (RowRead(bool(times), *times),), ()
            case ReadPending(_, ""):
                found = tuple(one for writer in self.writers for one in self._pending(local, writer, request))
                complete_ns = min(self._complete_ns(local, writer, found) for writer in self.writers)
                return local, (PendingRead(found, complete_ns, self._complete_ns(local, "", ())),), ()
            case ReadPending(_, writer):
                found = self._pending(local, writer, request)
                return local, (Polled(writer, found, self._complete_ns(local, writer, found, request.behind)),), ()
        return self._of_owner(local, request)

    def _of_owner(
        self, local: DatabaseLocal, request: Any
    ) -> tuple[DatabaseLocal, tuple[Answer, ...], tuple[Envelope, ...]]:
        """What is asked under a token."""
        if isinstance(request, MarkDelivered):
            return self._marked(local, request), (), ()
        if request.token < local.token:
            return local, () if isinstance(request, UnsubscribeLive) else (NotOwner(),), ()
        match request:
            case LoadSession(_, _, token):
                if self.absent:
                    return local, (SessionAbsent(),), ()
                return replace(local, token=token), (SessionLoaded(SESSION, local.state, local.now_ns),), ()
            case SubscribeLive(_, owner, _):
                local = replace(local, owner=owner)
                if not self.spreads:
                    shelves = tuple(replace(shelf, unspread=True) for shelf in local.shelves)
                    return replace(local, shelves=shelves), (self._subscribed(local),), ()
                known = tuple(self._make_known(local, writer) for writer in self.writers)
                return local, (self._subscribed(local),), known
            case UnsubscribeLive():
                gone = tuple(Envelope(self.name, writer, LiveGone(request.token)) for writer in self.writers)
                return replace(local, owner=""), (), gone
            case CommitState():
                state = change_state(local.state, request.change, local.now_ns)
                return replace(local, state=state), (StateCommitted(local.now_ns),), ()
            case ConfirmRows(_, _, found):
                return local, (RowsConfirmed(tuple(self._same(local, one) for one in found)),), ()
            case Fence(_, writer, behind, below, _, n, limit):
                shelf = _shelf(local, writer)
                below = below or shelf.epoch + 1
                shelf = replace(shelf, epoch=max(shelf.epoch, below))
                stored = [
                    EpochRows(writer, epoch, _rows(shelf, epoch, lambda one: True)) for epoch in range(behind[0], below)
                ]
                found, more = first_of(stored, max(behind, local.state.taken.get(writer, (0, 0))), limit)
                found = tuple(one for one in found if one.rows)
                complete_ns = self._complete_ns(local, writer, found, behind)
                return _put(local, shelf), (FencedRows(writer, below, n, found, more, complete_ns),), ()
        raise TypeError(f"the database does not take {request!r}")

    def _append(
        self, local: DatabaseLocal, writer: str, epoch: int, *more: Stored, number: int = 0
    ) -> tuple[DatabaseLocal, tuple[Answer, ...], tuple[Envelope, ...]]:
        shelf = _shelf(local, writer)
        if shelf.epoch != epoch:
            return local, (RowFenced(shelf.epoch),), ()
        if self.stamps and more[0].queued is not None:
            number = number or local.commits + 1
            local = replace(local, commits=max(local.commits, number))
            more = tuple(stamp_row(one, number) for one in more)
        entries = (*shelf.entries, *more)
        hidden = [place for place, one in enumerate(entries) if not one.visible]
        while len(hidden) > self.lag:
            first = hidden.pop(0)
            entries = tuple(replace(one, visible=True) if place == first else one for place, one in enumerate(entries))
        return _put(local, replace(shelf, entries=entries)), (RowStored(number or local.commits),), ()

    def _store_open(
        self, local: DatabaseLocal, one: Owed
    ) -> tuple[DatabaseLocal, tuple[Answer, ...], tuple[Envelope, ...]]:
        """Rows are committed under the number that their transaction has taken."""
        asked = one.request
        assert isinstance(asked, PutRows)
        return self._append(local, asked.writer, asked.epoch, *store_range(asked.epoch, asked.rows), number=one.number)

    def _complete_ns(
        self, local: DatabaseLocal, writer: str, found: tuple[EpochRows, ...], behind: Position = (0, 0)
    ) -> int:
        """No row that was stored before is missing in what is read; 0 where rows have no time."""
        if not self.stamps or not writer:
            return first_open(local) if self.stamps else 0
        behind = max(behind, local.state.taken.get(writer, (0, 0)))
        read = {(one.epoch, row.number) for one in found for row in one.rows if one.writer == writer}
        rows = [(one.epoch, one.queued) for one in _shelf(local, writer).entries if one.queued is not None]
        missing = [
            row.stored_ns for epoch, row in rows if behind < (epoch, row.number) and (epoch, row.number) not in read
        ]
        return min((first_open(local), *missing))

    def _marked(self, local: DatabaseLocal, request: MarkDelivered) -> DatabaseLocal:
        if not self.hides:
            return local
        shelf = _shelf(local, request.writer)
        entries = tuple(
            replace(one, done=True) if one.queued and is_marked_by(request, one.epoch, one.queued.number) else one
            for one in shelf.entries
        )
        return _put(local, replace(shelf, entries=entries))

    def _pending(self, local: DatabaseLocal, writer: str, asked: ReadPending) -> tuple[EpochRows, ...]:
        """As many as are asked for, behind what the committed state has taken."""
        behind = max(asked.behind, local.state.taken.get(writer, (0, 0)))
        return first_of(self._visible(local, writer), behind, asked.rows)[0]

    def _visible(self, local: DatabaseLocal, writer: str) -> tuple[EpochRows, ...]:
        shelf = _shelf(local, writer)
        found = []
        for epoch in sorted({one.epoch for one in shelf.entries if one.visible}):
            rows = _rows(shelf, epoch, lambda one: one.visible and not one.done)
            marks = [
                (one.token, one.n) for one in shelf.entries if one.epoch == epoch and one.visible and not one.queued
            ]
            found.append(EpochRows(writer, epoch, rows, tuple(marks)))
        return tuple(found)

    def _same(self, local: DatabaseLocal, one: EpochRows) -> EpochRows:
        """What of it is stored exactly so."""
        known = one.writer in self.writers
        stored = _rows(_shelf(local, one.writer), one.epoch, lambda one: True) if known else ()
        return replace(one, rows=tuple(row for row in one.rows if row in stored))

    def _subscribed(self, local: DatabaseLocal) -> SubscribedLive:
        there = tuple(shelf.writer for shelf in local.shelves if shelf.epoch and shelf.up)
        gone = tuple(shelf.writer for shelf in local.shelves if shelf.epoch and not shelf.up)
        return SubscribedLive(there, gone, first_open(local) if self.stamps else 0)

    def _make_known(self, local: DatabaseLocal, writer: str) -> Envelope:
        return Envelope(self.name, writer, LiveKnown(local.owner, local.token))


def store_range(epoch: int, rows: tuple[Queued, ...]) -> tuple[Stored, ...]:
    """The entries of a range: all of it is one transaction."""
    return tuple(Stored(epoch, queued) for queued in rows)


def first_open(local: DatabaseLocal) -> int:
    """The lowest number that a transaction has taken which is open, or that none has taken yet."""
    return min((one.number for one in local.owed if one.number), default=local.commits + 1)


def stamp_row(one: Stored, stored_ns: int) -> Stored:
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


def _shelf(local: DatabaseLocal, writer: str) -> StoredRows:
    return next(shelf for shelf in local.shelves if shelf.writer == writer)


def _put(local: DatabaseLocal, shelf: StoredRows) -> DatabaseLocal:
    shelves = tuple(shelf if one.writer == shelf.writer else one for one in local.shelves)
    return replace(local, shelves=shelves)


def _without(owed: tuple[Owed, ...], who: str) -> tuple[Owed, ...]:
    """What a process that has died waited for."""
    return tuple(one for one in owed if one.party.partition("~")[0] != who)


def _show_entry(local: DatabaseLocal, writer: str, place: int) -> DatabaseLocal:
    shelf = _shelf(local, writer)
    entries = tuple(replace(one, visible=True) if at == place else one for at, one in enumerate(shelf.entries))
    return _put(local, replace(shelf, entries=entries))


def _rows(shelf: StoredRows, epoch: int, wanted: Callable[[Stored], bool]) -> tuple[Queued, ...]:
    rows = (one.queued for one in shelf.entries if one.epoch == epoch and one.queued is not None and wanted(one))
    return tuple(sorted(rows, key=lambda row: row.number))
