"""Collected database: the database of one session whose rows are really deleted, and who judges what is.

An entry that was deleted is read by nobody any more; it is kept in mind, since the client is judged by what was ever
stored.  Everything that is stored is young, until it grows old all at once: older then than every grace, and younger
than the retention.  A message is put when it is handed over, and again with its row if it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, BrokenProperty, Event, Request
from statemachines.persistent_sessions.collector import (
    ClientsRead,
    DeletePage,
    MessageDeletion,
    MessagesRead,
    Only,
    PageDeleted,
    ReadClients,
    ReadMessages,
    ReadRows,
    RowDeletion,
    RowKey,
    RowsRead,
    StoredMessage,
    StoredRow,
    Tag,
)
from statemachines.persistent_sessions.message import is_over
from statemachines.persistent_sessions.properties.collected_rows import (
    RowNeeds,
    judge_deleted_message,
    judge_deleted_row,
)
from statemachines.persistent_sessions.request import (
    EpochRows,
    Fence,
    FencedRows,
    LoadSession,
    PendingRead,
    Polled,
    PutRows,
    ReadPending,
    ReadRow,
    RowStored,
    SessionAbsent,
    SessionState,
    without_message,
)
from statemachines.persistent_sessions.session_tables import SESSION, StoredEntry, StoredRows
from statemachines.persistent_sessions.writer_flow import BEHIND, SYNCING, WAITING
from statemachines.persistent_sessions.writer_record import LiveGone
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.property import View
from statemachines_spec.persistent_sessions.client import PUBLISHER, PublishTo
from statemachines_spec.persistent_sessions.database import CarryOut, DatabaseLocal, DatabaseService

OLD_MS = 300_000
"""Older than every grace, and younger than the retention."""
NOBODY = 99
"""A token that no owner has."""

Place = tuple[str, int]
"""(writer, place of an entry)."""
Awaited = tuple[str, int, int]
"""(writer, token, n) of a marker that a resume waits for."""


class GrowOld(Event, frozen=True, gc=False):
    """Time passes: whatever is visible now is older than every grace."""


class Abandon(Event, frozen=True, gc=False):
    """The client starts clean elsewhere."""


class MessagePut(Event, frozen=True, gc=False):
    """A publisher's connection has stored the message, and hands it to the writer."""

    message: str


class Awaits(Event, frozen=True, gc=False):
    """What a resume waits for now."""

    markers: tuple[Awaited, ...]


class CollectedLocal(DatabaseLocal, frozen=True, gc=False):
    """`gone`: entries that were deleted; `unmarked`: marks that were; `old`: of each writer, so many entries are.
    `messages` there are, those that are `old_messages`; `abandoned`: "", young, old, gone; `awaited` markers; `wrong`:
    what was deleted and needed."""

    gone: tuple[Place, ...] = ()
    unmarked: tuple[Place, ...] = ()
    old: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()
    old_messages: tuple[str, ...] = ()
    abandoned: str = ""
    awaited: tuple[Awaited, ...] = ()
    wrong: tuple[str, ...] = ()


class CollectedDatabase(DatabaseService):
    """`total`: so many rows come in all; `abandons`: the session may be abandoned.  `in_grace`: nothing that somebody
    still works at grows old: markers that are waited for, a message whose row is under way, and, of an abandoned
    session, its last row before all others are there.  `names_waiting`: a page that leaves out all rows names the
    last of them, as a database may."""

    def __init__(
        self,
        writers: tuple[str, ...],
        owners: tuple[str, ...],
        *,
        total: int,
        abandons: bool = False,
        in_grace: bool = True,
        names_waiting: bool = True,
        **named: Any,
    ) -> None:
        super().__init__(writers, owners, **named)
        self.total = total
        self.abandons = abandons
        self.in_grace = in_grace
        self.names_waiting = names_waiting

    # -- the component ------------------------------------------------------------------------------------------

    def initial(self) -> CollectedLocal:
        return CollectedLocal(super().initial().shelves, old=tuple(0 for _ in self.writers))

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor == PUBLISHER and isinstance(event, PublishTo):
            return MessagePut(event.message)
        if actor in self.owners and super().sees(actor, before, event, after) is None:
            was, now = (_awaited(one) for one in (before, after))
            return None if was == now else Awaits(now)
        return super().sees(actor, before, event, after)

    def inputs(self, local: Any) -> tuple[Any, ...]:
        found = [*super().inputs(local)]
        if self._grow_old(local) != local:
            found.append(GrowOld())
        if self.abandons and not local.abandoned:
            found.append(Abandon())
        return tuple(found)

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case GrowOld():
                return Reaction(self._grow_old(local))
            case MessagePut(message):
                return Reaction(_with_messages(local, (message,)))
            case Awaits(markers):
                return Reaction(replace(local, awaited=markers))
            case Abandon():
                gone = LiveGone(local.token)
                local = replace(local, state=SessionState(), token=NOBODY, owner="", abandoned="young")
                return Reaction(local, (), tuple(Envelope(self.name, writer, gone) for writer in self.writers))
        return super().react(local, envelope, watch)

    def bounds(self) -> dict[str, str]:
        said = "no marker that a resume waits for; what says that a session is abandoned when all its rows are there"
        return {**super().bounds(), "grows old": said if self.in_grace else "anything"}

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_wrong(self) -> View:
        """Something was deleted that somebody needs."""
        return View(self.name, 2, lambda local: int(bool(local.wrong)))

    def has_garbage(self) -> View:
        """Something is there that nobody needs any more."""
        return View(self.name, 2, lambda local: int(self._is_littered(local)))

    def has_deleted(self, count: int) -> View:
        """So many rows were deleted, or more."""
        return View(self.name, 2, lambda local: int(len(local.gone) >= count))

    def has_dropped(self) -> View:
        """A message was deleted, being over, to which a row refers still."""

        def read(local: Any) -> int:
            rows = [one.queued for shelf in _shelves_left(local) for one in shelf.entries if one.queued is not None]
            return int(any(is_over(row, local.time_ns) and row.message not in local.messages for row in rows))

        return View(self.name, 2, read)

    # -- what is slow -------------------------------------------------------------------------------------------

    def _go_on(self, local: Any, party: str, event: Event) -> Reaction:
        """Whoever deletes learns at once that it was done."""
        one = next(owed for owed in local.owed if owed.party == party)
        if not isinstance(one.request, DeletePage) or not isinstance(event, CarryOut):
            return super()._go_on(local, party, event)
        rest = tuple(owed for owed in local.owed if owed is not one)
        local, answers, calls = self.apply(replace(local, owed=rest), one.request)
        return Reaction(local, (), (*calls, *(Envelope(self.name, party, answer) for answer in answers)))

    # -- what it does -------------------------------------------------------------------------------------------

    def apply(self, local: Any, request: Any) -> tuple[Any, tuple[Answer, ...], tuple[Envelope, ...]]:
        """The next state, the answers, and what others learn at once."""
        match request:
            case ReadClients():
                return local, (ClientsRead(()),), ()
            case ReadRows(after, limit, waiting):
                rows = [row for row in self._rows(local) if after is None or _rank(row.key) > _rank(after)]
                left = [row for row in rows if waiting or not row.waits]
                rows = left or rows[-1:] * self.names_waiting
                return local, (RowsRead(tuple(rows[:limit])),), ()
            case ReadMessages(last, limit, age_ms):
                found = [self._message(local, one) for one in local.messages if one > last]
                page = tuple(one for one in found if one.age_ms >= age_ms)[:limit]
                return local, (MessagesRead(page, page[-1].message if page else ""),), ()
            case DeletePage(rows, messages):
                return (*self._page_deleted(local, rows, messages), ())
            case LoadSession() if local.abandoned:
                return local, (SessionAbsent(),), ()
            case ReadPending() | ReadRow() | Fence():
                return self._read(local, request)
            case PutRows() if (again := _put_before(local, request)) is not None:
                return _with_messages(again, (row.message for row in request.rows)), (RowStored(),), ()
        local, answers, calls = super().apply(local, request)
        if isinstance(request, PutRows) and isinstance(answers[0], RowStored):
            local = _with_messages(local, (row.message for row in request.rows))
        return local, answers, calls

    def _read(self, local: Any, request: Request) -> tuple[Any, tuple[Answer, ...], tuple[Envelope, ...]]:
        """What was deleted is not there; a row without its message says so."""
        left = replace(local, shelves=_shelves_left(local))
        after, answers, calls = super().apply(left, request)
        epochs = [shelf.epoch for shelf in after.shelves]
        shelves = tuple(replace(one, epoch=epoch) for one, epoch in zip(local.shelves, epochs, strict=True))
        answers = tuple(_without_messages(answer, local) for answer in answers)
        return replace(local, shelves=shelves), answers, calls

    # -- the collector ------------------------------------------------------------------------------------------

    def _rows(self, local: Any) -> list[StoredRow]:
        """What is visible, in the order of the keys."""
        found = []
        for at, shelf in enumerate(local.shelves):
            for place, one in enumerate(shelf.entries):
                age = OLD_MS if place < local.old[at] else 0
                facts: dict[str, Any] = {"age_ms": age, "abandoned": local.abandoned in ("young", "old")}
                facts["taken"] = _is_taken(local, shelf.writer, one)
                both = _has(local, shelf.writer, place), _is_marked(local, shelf.writer, place, one)
                if not one.visible:
                    both = (False, both[1])
                for tag, there in zip(_tags(one), both, strict=False):
                    if there:
                        found.append(StoredRow(_key(shelf.writer, one, tag), paired=all(both), **facts))
        if local.abandoned in ("young", "old"):
            age = OLD_MS if local.abandoned == "old" else 0
            key = RowKey(SESSION, tag=Tag.ABANDONED)
            found.append(StoredRow(key, age, True, alone=not found))
        return sorted(found, key=lambda row: _rank(row.key))

    def _entries(self, local: Any) -> list[Place]:
        """Entries that are still there, as rows or as marks."""
        return [
            (shelf.writer, place)
            for shelf in local.shelves
            for place, one in enumerate(shelf.entries)
            if _has(local, shelf.writer, place) or _is_marked(local, shelf.writer, place, one)
        ]

    def _message(self, local: Any, message: str) -> StoredMessage:
        age = OLD_MS if message in local.old_messages else 0
        is_referenced, is_held = _is_referenced(local, message), message in _list_held(local)
        return StoredMessage(message, age, is_referenced, is_held, _is_over(local, message))

    def _page_deleted(
        self, local: Any, rows: tuple[RowDeletion, ...], messages: tuple[MessageDeletion, ...]
    ) -> tuple[Any, tuple[Answer, ...]]:
        count, gone = 0, []
        for row in rows:
            local, is_done = self._row_deleted(local, row.row, row.only)
            count += is_done
        for one in messages:
            local, is_done = self._message_deleted(local, one.message, one.only)
            gone += [(one.message, 0)] if is_done else []
        return local, (PageDeleted(count, tuple(gone)),)

    def _row_deleted(self, local: Any, key: RowKey, only: Only) -> tuple[Any, bool]:
        if key.tag is Tag.ABANDONED:
            others = bool(self._entries(local))
            if local.abandoned == "gone" or (only is Only.ALONE and others):
                return local, False
            local = replace(local, abandoned="gone")
            return _judged(local, judge_deleted_row(key, RowNeeds(has_others=others))), True
        shelf = next(one for one in local.shelves if one.writer == key.writer)
        place = next(at for at, one in enumerate(shelf.entries) if key == _key(key.writer, one, key.tag))
        entry, at = shelf.entries[place], (key.writer, place)
        if key.tag is Tag.DELIVERED:
            is_paired = _has(local, *at)
            if at in local.unmarked or (only is Only.UNPAIRED and is_paired):
                return local, False
            local = replace(local, unmarked=tuple(sorted({*local.unmarked, at})))
            needs = RowNeeds(is_paired=is_paired and not local.abandoned)
            return _judged(local, judge_deleted_row(key, needs)), True
        if at in local.gone:
            return local, False
        is_awaited = (key.writer, key.token, key.n) in local.awaited
        needs = RowNeeds(is_taken=_is_taken(local, key.writer, entry), is_awaited=is_awaited)
        local = replace(local, gone=tuple(sorted({*local.gone, at})))
        return _judged(local, () if local.abandoned else judge_deleted_row(key, needs)), True

    def _message_deleted(self, local: Any, message: str, only: Only) -> tuple[Any, bool]:
        is_held, is_referenced = message in _list_held(local), _is_referenced(local, message)
        if message not in local.messages or (is_held and only is not Only.ALWAYS):
            return local, False
        if (only is Only.UNREFERENCED and is_referenced) or (only is Only.OVER and not _is_over(local, message)):
            return local, False
        local = replace(
            local,
            messages=tuple(one for one in local.messages if one != message),
            old_messages=tuple(one for one in local.old_messages if one != message),
        )
        broken = judge_deleted_message(message, is_held=is_held, is_wanted=_is_wanted(local, message))
        return _judged(local, broken), True

    # -- time ---------------------------------------------------------------------------------------------------

    def _grow_old(self, local: Any) -> Any:
        """Everything that may be old is."""
        old = []
        awaited = local.awaited if self.in_grace and not local.abandoned else ()
        for at, shelf in enumerate(local.shelves):
            young = [
                place
                for place, one in enumerate(shelf.entries)
                if not one.visible or (shelf.writer, one.token, one.n) in awaited
            ]
            old.append(max(local.old[at], min(young, default=len(shelf.entries))))
        abandoned = local.abandoned
        stored = sum(one.queued is not None for shelf in local.shelves for one in shelf.entries)
        if abandoned == "young" and (not self.in_grace or stored == self.total):
            abandoned = "old"
        return replace(local, old=tuple(old), old_messages=local.messages, abandoned=abandoned)

    def _is_littered(self, local: Any) -> bool:
        if local.abandoned:
            return local.abandoned != "gone" or bool(self._entries(local))
        for shelf in local.shelves:
            for place, one in enumerate(shelf.entries):
                is_over = (
                    _is_taken(local, shelf.writer, one)
                    if one.queued
                    else (shelf.writer, one.token, one.n) not in local.awaited
                )
                if is_over and (_has(local, shelf.writer, place) or _is_marked(local, shelf.writer, place, one)):
                    return True
        messages = [one for one in local.messages if one not in _list_held(local)]
        return any(not _is_referenced(local, one) or _is_over(local, one) for one in messages)


# -- one entry --------------------------------------------------------------------------------------------------------


def _tags(one: StoredEntry) -> tuple[Tag, ...]:
    return (Tag.UNDELIVERED, Tag.DELIVERED) if one.queued else (Tag.MARKER,)


def _key(writer: str, one: StoredEntry, tag: Tag) -> RowKey:
    number = one.queued.number if one.queued else 0
    return RowKey(SESSION, writer, one.epoch, number, tag, one.token, one.n)


_ORDER = list(Tag)


def _rank(key: RowKey) -> tuple[Any, ...]:
    return (key.session, key.writer, key.epoch, key.number, _ORDER.index(key.tag), key.token, key.n)


def _has(local: Any, writer: str, place: int) -> bool:
    return (writer, place) not in local.gone


def _is_marked(local: Any, writer: str, place: int, one: StoredEntry) -> bool:
    return one.done and (writer, place) not in local.unmarked


def _is_taken(local: Any, writer: str, one: StoredEntry) -> bool:
    return one.queued is not None and (one.epoch, one.queued.number) <= local.state.taken.get(writer, (0, 0))


def _shelves_left(local: Any) -> tuple[StoredRows, ...]:
    """With the entries that were not deleted."""
    return tuple(
        replace(
            shelf,
            entries=tuple(one for place, one in enumerate(shelf.entries) if _has(local, shelf.writer, place)),
        )
        for shelf in local.shelves
    )


def _put_before(local: Any, request: PutRows) -> Any:
    """Rows that were there under their keys, and were deleted, are there again; None: they never were, or are
    fenced."""
    shelf = next(one for one in local.shelves if one.writer == request.writer)
    numbers = {row.number for row in request.rows}
    places = {
        (request.writer, place)
        for place, one in enumerate(shelf.entries)
        if one.queued is not None and one.epoch == request.epoch and one.queued.number in numbers
    }
    if not places or shelf.epoch != request.epoch:
        return None
    return replace(local, gone=tuple(at for at in local.gone if at not in places))


# -- messages ---------------------------------------------------------------------------------------------------------


def _with_messages(local: Any, messages: Iterable[str]) -> Any:
    return replace(local, messages=tuple(sorted({*local.messages, *messages})))


def _list_held(local: Any) -> set[str]:
    """What the session state refers to."""
    state = local.state
    return {one.queued.message for one in state.packets.values()} | {one.message for one in state.queued}


def _is_referenced(local: Any, message: str) -> bool:
    return any(
        one.queued is not None and one.queued.message == message and _has(local, shelf.writer, place)
        for shelf in local.shelves
        for place, one in enumerate(shelf.entries)
    )


def _is_over(local: Any, message: str) -> bool:
    """A row refers to it, and every one that does is over."""
    rows = [one.queued for shelf in _shelves_left(local) for one in shelf.entries if one.queued is not None]
    found = [row for row in rows if row.message == message]
    return bool(found) and all(is_over(row, local.time_ns) for row in found)


def _is_wanted(local: Any, message: str) -> bool:
    """A row refers to it that is still to be taken, and is not over."""
    return not local.abandoned and any(
        one.queued is not None
        and one.queued.message == message
        and not is_over(one.queued, local.time_ns)
        and not _is_taken(local, shelf.writer, one)
        for shelf in local.shelves
        for one in shelf.entries
    )


def _without_messages(answer: Answer, local: Any) -> Answer:
    if not isinstance(answer, PendingRead | Polled | FencedRows):
        return answer
    return replace(answer, found=tuple(_emptied(one, local) for one in answer.found))


def _emptied(found: EpochRows, local: Any) -> EpochRows:
    rows = tuple(row if row.message in local.messages else without_message(row, local.time_ns) for row in found.rows)
    return replace(found, rows=rows)


def _judged(local: Any, broken: tuple[BrokenProperty, ...]) -> Any:
    if not broken:
        return local
    return replace(local, wrong=tuple(sorted({*local.wrong, *(one.detail for one in broken)})))


def _awaited(local: Any) -> tuple[Awaited, ...]:
    """Markers that the flows of an owner wait for."""
    party = getattr(local, "party", None)
    flows = () if party is None else getattr(party.record, "flows", {}).values()
    return tuple(sorted((one.writer, one.token, one.n) for one in flows if _awaits_marker(one)))


def _awaits_marker(flow: Any) -> bool:
    return flow.status in (WAITING, SYNCING) or (flow.status is BEHIND and not flow.seen)
