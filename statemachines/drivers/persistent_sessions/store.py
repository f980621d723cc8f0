"""SessionStore: the database of sessions, wherever it is, and the lives of the nodes that use it.

sqlite:///sessions.db           a file (relative); sqlite:////var/lib/sessions.db (absolute)
sessions.db                     the same: a plain path
postgresql://me@db:5432/mine    PostgreSQL; needs the extra `postgres`

Requests of a node come in batches, of which each is one transaction and has a number; the number is committed with it.
So whoever was cut off in a commit looks, and knows.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec

from statemachines.drivers.clock import Clock, read_boot_id, steady_ns
from statemachines.drivers.persistent_sessions.collector_requests import ANSWERS as COLLECTOR
from statemachines.drivers.persistent_sessions.collector_requests import (
    Backlog,
    BacklogTally,
    SessionBounds,
    read_messages,
    read_rows,
)
from statemachines.drivers.persistent_sessions.group_rows import CountWaiting, ReadGroups, ReadReturned, settle_origins
from statemachines.drivers.persistent_sessions.host_requests import (
    Beat,
    DropRows,
    HostRequests,
    Look,
    ReadNodes,
    ReadPayloads,
    begin_life,
)
from statemachines.drivers.persistent_sessions.life_requests import ANSWERS as LIFE
from statemachines.drivers.persistent_sessions.life_requests import FindDueWills
from statemachines.drivers.persistent_sessions.machine_requests import (
    PAGE,
    MachineRequests,
    Page,
    ReadPage,
    StoreRows,
    put_ranges,
)
from statemachines.drivers.persistent_sessions.operator_requests import DescribeSession, ListSessions
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.request_batch import (
    RANGES,
    BatchReader,
    count_rows,
    expect_queries,
    is_ahead,
    kind_of,
    may_share,
    runs_of,
)
from statemachines.drivers.persistent_sessions.route_rows import (
    THERE,
    FrontSubscribed,
    PutMessage,
    ReadFilters,
    ReadOptions,
    ReadPackets,
    ReadUnfinished,
    put_messages,
)
from statemachines.drivers.persistent_sessions.route_trie import is_for_session, is_for_stream
from statemachines.drivers.persistent_sessions.sql import (
    A,
    Asked,
    SessionDatabase,
    Sql,
    StoredBatch,
    StoredBatches,
    StoreRequest,
    TimeWatch,
    TurnNeeded,
    all_of,
)
from statemachines.drivers.persistent_sessions.sqlite import SqliteSessions
from statemachines.drivers.sql.database_url import find_path, with_extra
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.failure import BUSY_S, StoreDamaged
from statemachines.kernel import Answer, Request, Superseded
from statemachines.persistent_sessions.collector import NEVER_MS, DeletePage, ReadClients, ReadMessages, ReadRows
from statemachines.persistent_sessions.life_request import KeepAlive
from statemachines.persistent_sessions.message import find_volatile
from statemachines.persistent_sessions.request import (
    CommitState,
    ConfirmRows,
    MarkDelivered,
    PutRows,
    ReadPending,
    ReadRow,
    RowStored,
)
from statemachines.persistent_sessions.resume_record import WaitingMessages
from statemachines.persistent_sessions.session_host_record import ClockState
from statemachines.persistent_sessions.takeover_record import FindOwner
from statemachines.persistent_sessions.times import MS

CHECK: Final = (
    "SELECT store.identity, coalesce(nodes.life, 0), coalesce(nodes.batch, 0) FROM @store AS store"
    " LEFT JOIN @nodes AS nodes ON nodes.name = :name"
)
READS: Final = frozenset({
    ReadPending, ReadRow, FindOwner, ConfirmRows, ReadPayloads, ReadOptions, ReadPackets, ReadUnfinished, FindDueWills,
    ReadNodes, ReadFilters, ReadGroups, ReadReturned, CountWaiting, Look, ReadClients, ReadRows, ReadMessages,
    ListSessions, DescribeSession,
})  # fmt: skip
"""Requests that change nothing."""
PENDING: Final = (ReadPage, ReadPending)
"""Reads that say up to which time nothing is missing."""

ROUTES_STAY: Final = (PutMessage, PutRows, StoreRows, MarkDelivered, CommitState, DeletePage, KeepAlive, Beat)
"""The most frequent requests that change no routes."""

UNSTORED_MAX: Final = 4_096
"""Messages that were matched and whose rows have not come."""

RETAINED_MAX: Final = 1_000
"""Retained messages that subscriptions bring in one transaction; what is asked behind them goes into the next one."""

QUICK_MAX: Final = 8
QUICK_ROWS_MAX: Final = 128
"""Requests, and rows of each, that are carried out without the worker.  As many rows as a client of ours receives at a
time take less than the way to the worker and back (D-1121)."""

T = TypeVar("T")


def is_read(request: Asked) -> bool:
    """It changes nothing."""
    return type(request.rows if isinstance(request, ReadPage) else request) in READS


def needs_read(request: Asked) -> bool:
    """The same, or it is a message whose rows bring what is to be stored of it."""
    return request.is_read if isinstance(request, PutMessage) else is_read(request)


def is_promise_free(request: Asked) -> bool:
    """Where there are no groups, nobody outside is told that it is stored: rows come in a later request (D-510), and
    marks say what is committed already."""
    return isinstance(request, MarkDelivered) or (isinstance(request, PutMessage) and request.has_rows_alone)


def is_quick(requests: Sequence[Asked]) -> bool:
    """Few of those that touch few rows, with little payload."""
    return len(requests) <= QUICK_MAX and max(map(count_rows, requests), default=0) <= QUICK_ROWS_MAX


class StoredLife(msgspec.Struct, frozen=True):
    """A life of a node: nobody else has this number in this store; `identity` of the store."""

    node: str
    number: int
    identity: bytes


class SessionStore:
    """Requests to a database; `page`: rows of a writer that are read at once; `watch`: who watches its clock (None: by
    the steady one of this machine)."""

    def __init__(self, database: SessionDatabase, page: int = PAGE, watch: TimeWatch | None = None) -> None:
        self.where = database.where
        self._database = database
        self._watch = watch or TimeWatch(database.where)
        self._machine = MachineRequests(page)
        self._host = HostRequests(database.where)
        self._tried: tuple[int, list[Any]] = (0, [])
        self._attempted = 0
        self._called = 0
        self._tally: BacklogTally | None = None
        self._waiting: WaitingMessages | None = None
        self._answers_of: dict[type[Any], Callable[[Sql, Any], Answer | None]] = {
            **LIFE,
            **COLLECTOR,
            **self._machine.answers,
            ReadRows: lambda sql, asked: read_rows(sql, asked, self._tally),
            ReadMessages: lambda sql, asked: read_messages(sql, asked, self._waiting),
        }
        self._looked_at: int | None = None
        """How often others had changed the database when routes were looked up last, and none was changed here since
        (None: unknown)."""
        self._unstored: dict[str, None] = {}
        """Messages that were matched, and whose rows come later, with what is to be stored of them."""

    async def ask(self, request: Request) -> tuple[Answer, ...]:
        """The answers to a request of a machine, in a transaction of its own, for no node.

        Raises `StoreUnavailable` where nothing was written, `OutcomeOpen` where that is not known.
        """
        return cast("tuple[Answer, ...]", await self._do(request))

    async def do(self, request: StoreRequest[A]) -> A:
        """The same for a request of its own: what it is answered with."""
        return cast("A", await self._do(request))

    async def _do(self, request: Asked) -> Any:
        def work() -> Any:
            if needs_read(request):
                with self._database.reading(self._watch, is_complete=isinstance(request, PENDING)) as sql:
                    (answer,) = self._read_answers(sql, [request])
            else:
                self._looked_at = None
                with self._database.writing(self._watch) as sql:
                    answer = self._answer(sql, request)
            self._host.settle()
            return answer

        return await self._database.run(lambda: self._attempt(work))

    async def begin_life(self, node: str, lease_ms: int) -> StoredLife:
        """`node` begins anew: whatever still runs under this name is fenced."""

        def work() -> StoredLife:
            with self._database.writing(self._watch) as sql:
                number = begin_life(sql, node, lease_ms)
                ((identity,),) = sql.all("SELECT identity FROM @store")
            return StoredLife(node, number, bytes(identity))

        return await self._database.run(work)

    async def carry_out(self, life: StoredLife, batch: int, requests: Sequence[Asked]) -> list[Any]:
        """The answers to batch number `batch` of this life, in one transaction: those of a machine as tuples.

        There may be fewer than requests (`RETAINED_MAX`): then the others are not carried out, and belong to the next.

        A batch that has failed is given again with the same number.  Raises `StoreUnavailable` and `OutcomeOpen`,
        `Superseded` where a newer life of the node is there, `StoreDamaged` where the database is not the one that it
        was.
        """
        if self._database.batches is not None:
            return await self._find_way(self._database.batches, life, batch, requests)
        work = partial(self._carry_out, life, batch, requests, is_shared=False)
        return await self._database.run(work, is_short=is_quick(requests))

    def stores_ahead(self, request: Asked) -> bool:
        """Whether it may be taken ahead of rows: as far as is known no group has it."""
        matcher = self._host.matcher
        return is_ahead(request) and (
            matcher is None or not isinstance(request, PutMessage) or request.topic not in matcher.shared_topics
        )

    async def store_ahead(self, life: StoredLife, batch: int, requests: Sequence[Asked]) -> list[Any] | None:
        """The same for messages (`stores_ahead`), behind batch number `batch`.

        They are matched, and stored with the first of their rows: nobody is told of them before.  In a file the rows
        bring what is missing (D-681).  None: the stream of a group is to have one of them, and nothing is written.
        """
        if self._host.matcher is not None or self._database.batches is None:
            return await self._database.run(partial(self._look_ahead, life, requests), is_short=True, is_read=True)
        return await self._store_ahead(self._database.batches, life, batch, requests)

    async def read(self, life: StoredLife, requests: Sequence[Asked]) -> list[Any]:
        """The same for requests that `needs_read`."""

        def work() -> list[Any]:
            is_complete = any(isinstance(one, PENDING) for one in requests)
            with self._database.reading(self._watch, is_complete=is_complete) as sql:
                self._check(sql, life)
                answers = self._read_answers(sql, requests)
            self._host.settle()
            return answers

        return await self._database.run(work, is_short=is_quick(requests), is_read=True)

    def bound_sessions(self, bounds: SessionBounds, retention_ms: int = NEVER_MS) -> None:
        """Have what waits for each session added up while a collector reads through this store, and passed over as long
        as it waits; messages of the age `retention_ms` are read."""
        self._tally = BacklogTally(bounds)
        self._waiting = WaitingMessages(retention_ms * MS)

    def take_drops(self) -> list[DropRows]:
        """What sessions have beyond their bounds, as far as a collector has read."""
        return [] if self._tally is None else self._tally.take_drops()

    @property
    def backlog(self) -> Backlog | None:
        """What waited when a collector had read all rows last, at most (None: none has yet, through this store)."""
        return None if self._tally is None else self._tally.backlog

    def share_streams(self) -> None:
        """Append each message that is for a group to its stream, in this database: the streams are there."""
        self._host.share_streams()

    async def accept_clock(self) -> bool:
        """Ages count again, after a clock that was set ahead had stopped them; False: they did."""

        def work() -> bool:
            with self._database.writing() as sql:
                return bool(sql.count("UPDATE @store SET stopped_ns = 0 WHERE stopped_ns > 0"))

        return await self._database.run(work)

    async def read_clock(self) -> ClockState:
        """What its clock shows, and whether ages count; nothing is changed."""

        def work() -> ClockState:
            with self._database.reading(self._watch) as sql:
                _ = sql.now_ns
            return self._watch.describe_clock()

        return await self._database.run(work)

    async def last_commit_ns(self) -> int:
        """When anybody has committed something last, by the store's time."""
        return await self._database.run(self._database.last_commit_ns)

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()

    # -- in the worker ------------------------------------------------------------------------------------------

    def _attempt(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except BaseException:
            self._host.forget()
            raise

    async def _find_way(
        self, batches: StoredBatches, life: StoredLife, batch: int, requests: Sequence[Asked]
    ) -> list[Any]:
        """In a turn that others share, where that may be: not again, since an attempt before may still be under way."""
        is_first, self._attempted = batch != self._attempted, batch
        is_shared = is_first and self._host.matcher is None and all(map(may_share, requests))
        if is_shared:
            reader = BatchReader(self._host.match, self._host.trie.version, self._unstored)
            given = reader.read((life.node, life.number, life.identity), batch, requests)
            if given is not None:
                self._called, is_shared = batch, False
                number = await batches.store_batch(given)
                if number is not None:
                    self._forget_unstored(requests)
                    return reader.answer(requests, number)
        return await self._database.run(partial(self._carry_out, life, batch, requests, is_shared=is_shared))

    def _carry_out(self, life: StoredLife, batch: int, requests: Sequence[Asked], *, is_shared: bool) -> list[Any]:
        carry_out = partial(self._carry_out_in_turn, life, batch, requests)
        try:
            answers = self._attempt(partial(carry_out, is_shared=is_shared))
        except TurnNeeded:
            answers = self._attempt(partial(carry_out, is_shared=False))
        self._forget_unstored(requests)
        return answers

    def _forget_unstored(self, requests: Sequence[Asked]) -> None:
        if self._unstored:
            for one in requests:
                if isinstance(one, StoreRows):
                    for message in one.payloads:
                        self._unstored.pop(message, None)

    def _note_unstored(self, messages: Iterable[str]) -> None:
        """Until their rows come.  Those of a session that ends meanwhile do not; the oldest ones make room, and the
        database is asked whether they are there."""
        self._unstored.update(dict.fromkeys(messages))
        while len(self._unstored) > UNSTORED_MAX:
            del self._unstored[next(iter(self._unstored))]

    async def _store_ahead(
        self, batches: StoredBatches, life: StoredLife, batch: int, requests: Sequence[Asked]
    ) -> list[Any] | None:
        messages = [one for one in requests if isinstance(one, PutMessage)]
        routes = {one.id: self._host.match(one) for one in messages}
        version = self._host.trie.version if routes else None
        expected = StoredBatch(life.node.encode(), life.number, batch, life.identity, version, [], [], [], [])
        alike = {(id(routes[one.id]), one.qos): one for one in messages}  # those of one topic share their routes
        is_known = not any(find_volatile(routes[one.id], one.qos) for one in alike.values())
        number = await batches.check_routes(expected) if is_known else None
        if number is not None:
            self._note_unstored([message for message, its in routes.items() if is_for_session(its)])
            return [routes[one.id] if isinstance(one, PutMessage) else number for one in requests]
        if all(one.is_read for one in messages):
            return await self._database.run(lambda: self._attempt(lambda: self._look_ahead(life, requests)))
        return await self._database.run(lambda: self._attempt(lambda: self._store_ahead_in_turn(life, batch, requests)))

    def _look_ahead(self, life: StoredLife, requests: Sequence[Asked]) -> list[Any] | None:
        """Routes of messages, and the time; None: a message is for the stream of a group."""
        version = self._database.count_changes()
        if version is not None and version == self._looked_at:
            known = self._host.find_known(requests)
            if known is not None:
                return known
        with self._database.reading(self._watch) as sql:
            self._check(sql, life)
            answers = self._read_answers(sql, requests)
        self._host.settle()
        self._looked_at = version
        return None if any(isinstance(one, tuple) and is_for_stream(one) for one in answers) else answers

    def _read_answers(self, sql: Sql, requests: Sequence[Asked]) -> list[Any]:
        """Nothing is stored; of a message its routes are looked up."""
        routes = iter(self._host.find_routes(sql, [one for one in requests if isinstance(one, PutMessage)]))
        return [next(routes) if isinstance(one, PutMessage) else self._answer(sql, one) for one in requests]

    def _store_ahead_in_turn(self, life: StoredLife, batch: int, requests: Sequence[Asked]) -> list[Any]:
        with self._database.writing(self._watch) as sql:
            if self._check(sql, life) != batch:
                raise self._is_other(f"knows another batch of {life.node} than {batch}")
            answers = self._answers(sql, requests)
        self._host.settle()
        return answers

    def _carry_out_in_turn(self, life: StoredLife, batch: int, requests: Sequence[Asked], is_shared: bool) -> list[Any]:
        may_lose = self._host.matcher is None and all(map(is_promise_free, requests))
        if not all(isinstance(one, ROUTES_STAY) or is_read(one) for one in requests):
            self._looked_at = None
        self._machine.prepare(requests)
        with self._database.writing(self._watch, may_lose=may_lose, may_share=is_shared) as sql:
            if is_shared:
                sql.expect(CHECK, name=life.node.encode())
                expect_queries(sql, requests)
            committed = self._check(sql, life)
            if committed == batch == self._called:
                return [self._answer_again(sql, one) for one in requests]
            if committed == batch and self._tried[0] == batch:
                return self._tried[1]  # it was carried out, and the answer was lost
            if committed != batch - 1:
                raise self._is_other(f"knows batch {committed} of {life.node}, which has sent {batch - 1}")
            answers = self._answer_by_kind(sql, requests) if is_shared else self._answers(sql, requests)
            sql.run("UPDATE @nodes SET batch = :batch WHERE name = :name", batch=batch, name=life.node.encode())
            self._tried = (batch, answers)
        self._host.settle()
        return answers

    def _answer_by_kind(self, sql: Sql, requests: Sequence[Asked]) -> list[Any]:
        """Kind by kind: those of one kind are few statements, and no two kinds change what the other reads."""
        places = sorted(range(len(requests)), key=lambda place: kind_of(requests[place]))
        answers = dict(zip(places, self._answers(sql, [requests[place] for place in places]), strict=True))
        return [answers[place] for place in range(len(requests))]

    def _answers(self, sql: Sql, requests: Sequence[Asked]) -> list[Any]:
        """Of all, or of the first ones, behind which the transaction is long enough."""
        answers: list[Any] = []
        copied = 0
        for run in runs_of(requests):
            first, last = run[0], run[-1]
            if isinstance(first, MarkDelivered) and isinstance(last, MarkDelivered):
                self._machine.mark_run(sql, first, last.until)
                answers += [()] * len(run)
            elif isinstance(first, RANGES):
                answers += self._store_ranges(sql, run)
            elif isinstance(first, PutMessage):
                answers += self._host.put_messages(sql, cast("Sequence[PutMessage]", run))
            else:
                answers.append(self._answer(sql, first))
                copied += len(answers[-1].retained) if isinstance(answers[-1], FrontSubscribed) else 0
                if copied >= RETAINED_MAX:
                    break
        return answers

    def _answer_again(self, sql: Sql, request: Asked) -> Any:
        """A request of a statement whose answer was lost: what it has stored is stored, whatever came since."""
        if isinstance(request, RANGES):
            put = request.put if isinstance(request, StoreRows) else request
            (row,) = self._answer(sql, ReadRow(put.session, put.writer, put.epoch, put.first_number))
            return (RowStored(row.stored_ns),)
        return self._answer(sql, request)

    def _answer(self, sql: Sql, request: Asked) -> Any:
        if isinstance(request, RANGES):
            return self._store_ranges(sql, (request,))[0]
        if isinstance(request, ReadPage):
            return self._machine.page(sql, request)
        if isinstance(request, StoreRequest):
            return request.answer(sql, self._host)
        answer_kind = self._answers_of.get(type(request))
        if answer_kind is None:
            raise TypeError(f"the database of sessions does not take {request!r}")
        answer = answer_kind(sql, request)
        return () if answer is None else (answer,)

    def _store_ranges(self, sql: Sql, run: Sequence[Asked]) -> list[tuple[Answer, ...] | Page]:
        """Ranges of rows, and those of their messages that are gone."""
        ranges = [one.put if isinstance(one, StoreRows) else cast("PutRows", one) for one in run]
        had: list[frozenset[str]] = [
            settle_origins(sql, one.put, one.origins, one.payloads)
            if isinstance(one, StoreRows) and one.origins
            else frozenset()
            for one in run
        ]
        once = frozenset[str]().union(*(one.once for one in run if isinstance(one, StoreRows)))
        answers = put_ranges(sql, ranges, self.where, once)
        payloads: dict[str, Payload] = {}
        qos: dict[str, int] = {}
        looked_at: dict[str, Payload] = {}
        for asked, absent, answer in zip(run, had, answers, strict=True):
            if isinstance(asked, StoreRows) and isinstance(answer, RowStored):
                if asked.payloads is looked_at and not asked.origins:
                    continue  # the same messages for another session
                looked_at = asked.payloads
                for row in asked.put.rows:
                    if row.message in asked.payloads and row.message not in absent and row.message not in payloads:
                        payloads[row.message] = asked.payloads[row.message]
                        qos[row.message] = row.qos
        there = {message.decode() for (message,) in all_of(sql, THERE, [one.encode() for one in payloads])}
        put_messages(sql, [(one, payload, qos[one]) for one, payload in payloads.items() if one not in there])
        return [
            Page((answer,), gone=absent) if absent else (answer,) for answer, absent in zip(answers, had, strict=True)
        ]

    def _check(self, sql: Sql, life: StoredLife) -> int:
        """The last batch of this life, if it is the node's last and this is its store."""
        found = sql.all(CHECK, name=life.node.encode())
        if not found:
            raise self._is_other("is empty")
        identity, number, batch = found[0]
        if bytes(identity) != life.identity:
            raise self._is_other("is another store than the one that was opened")
        if number > life.number:
            raise Superseded(f"{life.node}: another process has this name now ({self.where}); give each its own")
        if number < life.number:
            raise self._is_other(f"does not know life {life.number} of {life.node}")
        return int(batch)

    def _is_other(self, what: str) -> StoreDamaged:
        rule = "was it put back from a copy, or made anew, while nodes ran? Start all of them again"
        return StoreDamaged(f"{self.where} {what}; {rule}")


def open_session_store(
    store: str | Path,
    *,
    busy_s: float = BUSY_S,
    page: int = PAGE,
    clock: Clock | None = None,
    steady: Clock | None = None,
    boot: str | None = None,
    wall: Clock | None = None,
    durability: Durability = Durability.PROCESS,
) -> SessionStore:
    """Open it; tables are made where there are none.  `clock`, for tests, in place of the database's; `steady`: what it
    is compared with (None: the machine's steady clock, or `clock` where that is given); `boot` of that clock (None: the
    machine's, if the clock is); `wall`: the clock of this machine (None: `clock`, or the machine's); `durability`: what
    a commit survives.

    Waits for the database: call it in a thread where a loop is running.  Raises `ConfigurationError` where it cannot be
    reached or used (no password is shown), `StoreUnavailable` where it is busy.
    """
    if boot is None:
        boot = read_boot_id() if clock is None and steady is None else ""
    identity = secrets.token_bytes(16)
    path = find_path(store)
    database: SessionDatabase
    if path is not None:
        given = {} if clock is None else {"clock": clock}
        database = SqliteSessions(path, busy_s, identity=identity, durability=durability, **given)
    else:
        database = with_extra(store, lambda: _open_postgres(str(store), busy_s, clock, identity, durability))
    watch = TimeWatch(database.where, steady or clock or steady_ns, boot=boot, wall=wall or clock or time.time_ns)
    return SessionStore(database, page, watch)


def _open_postgres(
    url: str, busy_s: float, clock: Clock | None, identity: bytes, durability: Durability
) -> SessionDatabase:
    from statemachines.drivers.persistent_sessions.postgres import PostgresSessions

    return PostgresSessions(url, busy_s, clock, identity=identity, durability=durability)
