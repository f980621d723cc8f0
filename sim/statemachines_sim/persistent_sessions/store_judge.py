"""StoreJudge: what is committed, transaction by transaction: it keeps the books, and feeds what judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from statemachines.drivers.persistent_sessions.machine_requests import Page, ReadPage, StoreRows
from statemachines.drivers.persistent_sessions.route_rows import PutMessage
from statemachines.drivers.persistent_sessions.sql import UNDELIVERED
from statemachines.kernel import Answer, BrokenProperty
from statemachines.persistent_sessions.collector import (
    ClientForgotten,
    DeletePage,
    ForgetClient,
    MessageDeletion,
    Only,
    PageDeleted,
    RowKey,
    Tag,
)
from statemachines.persistent_sessions.life_request import LeaveSession, OpenSession, SessionLeft, SessionOpen
from statemachines.persistent_sessions.message import Queued, unfold_row
from statemachines.persistent_sessions.properties.collected_rows import (
    RowNeeds,
    judge_deleted_message,
    judge_deleted_row,
)
from statemachines.persistent_sessions.properties.delivered_messages import Copy, judge_place
from statemachines.persistent_sessions.properties.opened_sessions import OpenedSessions, judge_touch
from statemachines.persistent_sessions.request import (
    CommitState,
    Fence,
    FencedRows,
    LoadSession,
    PutRows,
    RowStored,
    SessionLoaded,
    StateChange,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
)
from statemachines_sim.cluster import SimCluster
from statemachines_sim.persistent_sessions.books import ClientBook, ExpectedRow, PublishedMessage, SessionBook
from statemachines_sim.persistent_sessions.database import Batch, BatchDone, statements_of
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.units import MS

Report = Callable[[tuple[BrokenProperty, ...]], None]

THERE: Final = (
    "SELECT 1 FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch AND number = :number"
    f" AND tag = {UNDELIVERED}"
)
MESSAGE_TIME: Final = "SELECT time_ns FROM @messages WHERE id = :id"


class StoreJudge:
    """`sessions` by id, and the order in which they were `opened`; `clients` and `messages` by id; `collects`: garbage
    is to vanish; `retained`: retention has removed something that was still to come; `counts` of what happened."""

    def __init__(self, own: SessionSection, report: Report, counts: dict[str, int]) -> None:
        self.sessions: dict[str, SessionBook] = {}
        self.opened = OpenedSessions()
        self.clients: dict[str, ClientBook] = {}
        self.messages: dict[str, PublishedMessage] = {}
        self.collects = own.collect
        self.retained = False
        self._own = own
        self._report = report
        self._counts = counts
        self._batches: dict[str, tuple[int, int]] = {}
        self._kinds: dict[type[Any], Callable[[Any, Any, int], None]] = {
            PutMessage: self._put_message,
            PutRows: self._put_rows,
            StoreRows: lambda asked, answer, now_ns: self._put_rows(asked.put, answer, now_ns),
            OpenSession: self._open,
            LeaveSession: self._leave,
            ForgetClient: self._forget,
            LoadSession: self._load,
            SubscribeLive: self._subscribe,
            ReadPage: self._read_page,
            CommitState: self._commit,
            DeletePage: self._delete_page,
        }

    def begin(self, world: SimCluster) -> None:
        """Of this world."""
        self._statements = statements_of(world)

    def client(self, name: str) -> ClientBook:
        """Its book."""
        return self.clients.setdefault(name, ClientBook())

    def observe_request(self, request: Any, answers: tuple[Answer, ...], now_ns: int) -> None:
        """A batch is committed; one that is given again was committed before."""
        (answer,) = answers
        if not isinstance(request, Batch) or not isinstance(answer, BatchDone) or not request.number:
            return
        batch = (request.life.number, request.number)
        if batch <= self._batches.get(request.life.node, (0, 0)):
            return
        self._batches[request.life.node] = batch
        for asked, found in zip(request.requests, answer.answers, strict=True):
            kind = self._kinds.get(type(asked))
            if kind is not None:
                kind(asked, found[0] if isinstance(found, tuple) and len(found) == 1 else found, now_ns)

    # -- messages and rows ----------------------------------------------------------------------------------------

    def _put_message(self, asked: PutMessage, routes: Any, now_ns: int) -> None:
        found = self._statements.rows(MESSAGE_TIME, id=asked.id.encode())
        if found:
            until_ns = 0 if asked.expiry_ms is None else found[0][0] + asked.expiry_ms * MS
            self.messages[asked.id] = PublishedMessage(asked.payload.decode(), asked.topic, now_ns, until_ns=until_ns)

    def _put_rows(self, asked: PutRows, answer: Any, now_ns: int) -> None:
        """Rows that are there now, and were not before."""
        book = self.sessions.get(asked.session)
        if not isinstance(answer, RowStored) or book is None or book.ended:
            return
        for row in asked.rows:
            for queued in unfold_row(row):
                self._put_row(book, asked, queued)

    def _put_row(self, book: SessionBook, asked: PutRows, queued: Queued) -> None:
        self._look_at_message(queued.message)
        key = self.key_of(queued)
        known, place = book.rows.get(key), (asked.epoch, queued.number)
        if known is not None:
            self._report(judge_place(key, (known.writer, *known.place), (asked.writer, *place)))
            return
        values = {"session": asked.session.encode(), "writer": asked.writer.encode()}
        if self._statements.rows(THERE, **values, epoch=asked.epoch, number=queued.number):
            book.put(key, ExpectedRow(asked.writer, place, queued.message), is_needed=queued.qos > 0)
            self._counts["stored"] += 1

    def _look_at_message(self, message: str) -> None:
        """A message that was deleted while nothing referred to it is put there again with its row."""
        known = self.messages[message]
        if known.gone and self._statements.rows("SELECT 1 FROM @messages WHERE id = :id", id=message.encode()):
            known.gone = False

    def key_of(self, queued: Queued) -> Copy:
        """What the client will tell it by."""
        return queued.filter, self.messages[queued.message].name

    # -- sessions -------------------------------------------------------------------------------------------------

    def _open(self, asked: OpenSession, answer: Any, now_ns: int) -> None:
        if answer != SessionOpen():
            return
        before, book = self.opened.current.get(asked.client), self.sessions.get(asked.session)
        self.opened, broken = self.opened.observe_opened(asked.client, asked.session)
        self._report(broken)
        if book is None:
            self.sessions[asked.session] = SessionBook(asked.client, asked.token)
            self.client(asked.client)
            self._counts["opened"] += 1
        else:
            self._raise(asked.session, asked.token, "opened")
        if before is not None and before != asked.session:
            self.sessions[before].ended = True

    def _leave(self, asked: LeaveSession, answer: Any, now_ns: int) -> None:
        if answer == SessionLeft() and asked.expiry_ms == 0:
            self._end(asked.session)

    def _forget(self, asked: ForgetClient, answer: Any, now_ns: int) -> None:
        if isinstance(answer, ClientForgotten) and answer.done:
            current = self.opened.current.get(asked.client)
            if current is not None:
                self._end(current)

    def _end(self, session: str) -> None:
        book = self.sessions.get(session)
        if book is not None and not book.ended:
            book.ended = True
            if self.opened.current.get(book.client) == session:
                self.opened = self.opened.observe_ended(book.client)

    def _raise(self, session: str, token: int, what: str) -> None:
        """Something is done under this token, and after it nothing under a lower one."""
        book = self.sessions.get(session)
        if book is not None:
            text = f"{session} is {what} under {token} after {book.token}"
            self._report(judge_touch(text, has_session=token >= book.token))
            book.token = max(book.token, token)

    def _load(self, asked: LoadSession, answer: Any, now_ns: int) -> None:
        if isinstance(answer, SessionLoaded):
            self._raise(answer.session, asked.token, "loaded")

    def _subscribe(self, asked: SubscribeLive, answer: Any, now_ns: int) -> None:
        if isinstance(answer, SubscribedLive):
            self._raise(asked.session, asked.token, "subscribed")

    def _read_page(self, asked: ReadPage, page: Page, now_ns: int) -> None:
        if isinstance(asked.rows, Fence):
            self._fence(asked.rows, page.answers[0])

    def _fence(self, asked: Fence, answer: Any) -> None:
        if isinstance(answer, FencedRows):
            self._counts["fenced"] += 1
            self._raise(asked.session, asked.token, "fenced")

    def _commit(self, asked: CommitState, answer: Any, now_ns: int) -> None:
        book = self.sessions.get(asked.session)
        if not isinstance(answer, StateCommitted) or book is None:
            return
        self._raise(asked.session, asked.token, "committed")
        change = asked.change
        queued = (*book.queued[change.dequeued :], *map(self.key_of, change.queued))
        began = {one.packet: self.key_of(one.queued) for one in change.packets}
        kept = {packet: key for packet, key in book.packets.items() if packet not in change.ended}
        over = self._over(book, change, {*queued, *kept.values()}, set(began.values()))
        fresh = {packet: key for packet, key in began.items() if key not in over}
        packets = kept | fresh
        book.delivered = book.delivered.observe_committed((key, packet) for packet, key in fresh.items())
        book.done |= set(book.packets.values()) - set(packets.values())
        book.packets = packets
        book.taken |= dict(change.taken.items())
        book.queued = queued

    def _over(self, book: SessionBook, change: StateChange, stays: set[Copy], began: set[Copy]) -> set[Copy]:
        """What this commit takes out of what waits, and is over by the clock of the database; `stays`: what waits on,
        or was in flight; `began`: what would be in flight with it."""
        time_ns = self._time_ns()
        gone = set(book.queued)
        for writer, until in change.taken.items():
            gone.update(book.list_stored_between(writer, book.taken.get(writer, (0, 0)), until))
        found = {key for key in (gone | began) - stays if key in book.rows and self._is_over(book, key, time_ns)}
        for key in found:
            self._age(book, key)
        return found

    def _is_over(self, book: SessionBook, key: Copy, time_ns: int) -> bool:
        return self.messages[book.rows[key].message].is_over(time_ns)

    def _age(self, book: SessionBook, key: Copy) -> None:
        """It need not come any more, and must not."""
        if key not in book.delivered.over:
            book.delivered = book.delivered.observe_over((key,))
            self._counts["expired"] += 1

    # -- the collector --------------------------------------------------------------------------------------------

    def _delete_page(self, asked: DeletePage, answer: Any, now_ns: int) -> None:
        """A row that is gone already was taken then, too."""
        if not isinstance(answer, PageDeleted):
            return
        self._counts["collected"] += answer.rows
        for one in asked.rows:
            self._judge_row(one.row)
        gone = {message for message, _ in answer.messages}
        for each in asked.messages:
            if each.message in gone:
                self._delete_message(each, now_ns)

    def _judge_row(self, row: RowKey) -> None:
        book = self.sessions.get(row.session)
        if book is None or book.ended or row.tag is not Tag.UNDELIVERED:
            return
        place = (row.epoch, row.number)
        self._report(judge_deleted_row(row, RowNeeds(is_taken=book.is_taken(row.writer, place))))

    def _delete_message(self, asked: MessageDeletion, now_ns: int) -> None:
        """One that retention removes is lost, unless it is over; any other nobody needs."""
        message = self.messages.get(asked.message)
        if message is None:
            return
        message.gone = True
        is_young = now_ns - message.at_ns < self._own.retention_ms * MS
        is_over = message.is_over(self._time_ns())
        is_dropped = asked.only is Only.OVER
        self._report(judge_deleted_message(message.name, is_early=is_dropped and not is_over))
        self._counts["dropped"] += is_dropped
        for book in self.sessions.values():
            if book.ended:
                continue
            is_held = any(key[1] == message.name for key in (*book.packets.values(), *book.queued))
            self._report(judge_deleted_message(message.name, is_held=is_held))
            for key in book.keys.get(asked.message, ()):
                row = book.rows[key]
                if book.is_taken(row.writer, row.place):
                    continue
                if is_over:
                    self._age(book, key)
                else:
                    self._report(judge_deleted_message(message.name, is_wanted=is_young))
                    self.retained = True
                    self._counts["lost"] += book.is_needed(key)
                    book.delivered = book.delivered.observe_lost(key)

    def _time_ns(self) -> int:
        """Up to when ages count, when the database has committed last."""
        time = self._statements.time()
        return time.age_limit_ns(time.time_ns)
