"""Database: what all nodes share, as a device: the statements of the real store behind a network, with reads that lag.

Nodes ask as they ask a real store: a life is begun, batches have numbers, and one that was carried out and not answered
is given again under its number.

MemoryDatabase: the statements of a real store on SQLite, in memory and without a thread, and replicas that lag.

What is committed is one order for everybody.  A replica is the whole database as it was at some moment: rows of a
writer appear on it in their order, and what was deleted or marked since stands there still.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar
from weakref import finalize

from statemachines.drivers.persistent_sessions.machine_requests import ReadPage
from statemachines.drivers.persistent_sessions.sql import SQLITE, Asked, TimeWatch
from statemachines.drivers.persistent_sessions.sqlite import TIME, SqliteSql, SqliteTransaction, begin_sql
from statemachines.drivers.persistent_sessions.store import SessionStore, StoredLife
from statemachines.drivers.sql.sqlite import Transaction
from statemachines.kernel import Answer, GaplessError, Request
from statemachines.persistent_sessions.request import DATABASE, ReadPending
from statemachines.persistent_sessions.session_host_record import StoreTime
from statemachines_sim.cluster import OF_STORES, Fixture, SimCluster, Tolerance
from statemachines_sim.devices.remote_store import RemoteStore
from statemachines_sim.persistent_sessions.section import SessionSection
from statemachines_sim.units import MS, S

T = TypeVar("T")
IDENTITY = b"simulated store."


class MemoryDatabase:
    """`SessionDatabase` on a connection of its own; `now_ns`: what the clock of the database shows now.

    The connection is closed with it, in whichever thread that is: a world and what it holds are let go together.
    """

    where = "the simulated database"
    batches = None

    def __init__(self) -> None:
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        finalize(self, self.connection.close)
        self.now_ns = 0

    def make(self) -> None:
        """The tables."""
        for statement in SQLITE.statements:
            self.connection.execute(statement)
        self.connection.execute("UPDATE store SET identity = ?", (IDENTITY,))

    def clock_ns(self) -> int:
        """What its clock shows."""
        return self.now_ns

    def writing(
        self, watch: TimeWatch | None = None, *, may_lose: bool = False, may_share: bool = False
    ) -> SqliteTransaction:
        """All or nothing."""
        return begin_sql(self.clock_ns, Transaction(self.connection, "BEGIN"), SqliteSql.writing, watch)

    def reading(self, watch: TimeWatch | None = None, *, is_complete: bool = False) -> SqliteTransaction:
        """One state: nobody else is here."""
        return begin_sql(self.clock_ns, Transaction(self.connection, "BEGIN"), SqliteSql.reading, watch)

    def read_time(self) -> StoreTime:
        """The time of the store."""
        return StoreTime(*self.connection.execute(TIME).fetchone())

    def count_changes(self) -> int | None:
        """It does not: each look is a transaction."""
        return None

    def last_commit_ns(self) -> int:
        """When something was committed last."""
        return self.read_time().time_ns

    async def run(self, work: Callable[[], T], *, is_short: bool = False, is_read: bool = False) -> T:
        """At once."""
        return work()

    async def close(self) -> None:
        """No more requests."""
        self.connection.close()


def quiet_watch(steady: Callable[[], int]) -> TimeWatch:
    """It logs nothing: the judges of a run see what becomes of it.  A simulated process has no clock that is set."""
    return TimeWatch("", steady, lambda *_: None, wall=lambda: sys.maxsize)


class Replica:
    """A copy of `primary` for reads of what is pending; each is at most `lag_ms` (drawn anew every time) old."""

    def __init__(
        self, primary: MemoryDatabase, chance: Random, lag_ms: tuple[int, int], steady: Callable[[], int]
    ) -> None:
        self._primary = primary
        self._chance = chance
        self._lag_ms = lag_ms
        self._copy = MemoryDatabase()
        self._store = SessionStore(self._copy, watch=quiet_watch(steady))
        self._until_ns = -1

    def read(self, request: ReadPage, now_ns: int) -> Any:
        """What is visible here."""
        if now_ns >= self._until_ns:
            self._primary.connection.backup(self._copy.connection)
            self._until_ns = now_ns + self._chance.randint(*self._lag_ms) * MS
        self._copy.now_ns = now_ns
        return run_at_once(self._store.do(request))


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to: nothing in it waits."""
    try:
        work.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("it waits")


CLOCK = Tolerance(drift_ppm=100_000, jump_ns=5 * S)
"""Leases count by the clock of the database: one that leaps makes owners and nodes dead for a moment."""


class BeginLife(Request, frozen=True):
    """A process begins under the name of a node."""

    node: str
    lease_ms: int


class LifeBegun(Answer, frozen=True):
    """To `BeginLife`."""

    life: StoredLife


class Batch(Request, frozen=True):
    """A transaction of a life; `number` of 0: it changes nothing."""

    life: StoredLife
    number: int
    requests: tuple[Any, ...]


class BatchDone(Answer, frozen=True):
    """To `Batch`: an answer for each request."""

    answers: tuple[Any, ...]


class BatchFailed(Answer, frozen=True):
    """Perhaps it was carried out, perhaps not."""


class BatchRefused(Answer, frozen=True):
    """The process is not the one of this name any more, or the database not the one that it was."""

    why: GaplessError


class Statements:
    """`Service` whose state is the database itself: it cannot be put back to what it was.  `steady_of`: what the steady
    clock of a node shows ("": the true one)."""

    name = DATABASE

    def __init__(self, own: SessionSection, seed: int, steady_of: Callable[[str], int]) -> None:
        self._steady_of = steady_of
        self.database = MemoryDatabase()
        self.database.make()
        self._stores: dict[tuple[str, int], SessionStore] = {}
        self._chance = Random(f"{seed}/replicas")
        self._lags = own.lag_ms[1] > 0
        self._replicas = [
            Replica(self.database, self._chance, own.lag_ms, lambda: steady_of("")) for _ in range(own.replicas)
        ]

    def initial(self) -> None:
        return None

    def apply(self, state: None, request: Request, now_ns: int) -> tuple[None, tuple[Answer, ...]]:
        self.database.now_ns = now_ns
        try:
            return None, (self._answer(request, now_ns),)
        except GaplessError as error:
            return None, (BatchRefused(error),)

    def _answer(self, request: Request, now_ns: int) -> Answer:
        if isinstance(request, BeginLife):
            return LifeBegun(run_at_once(self._open(request.node).begin_life(request.node, request.lease_ms)))
        assert isinstance(request, Batch)
        store = self._store_of(request.life)
        if request.number:
            answers = run_at_once(store.carry_out(request.life, request.number, request.requests))
        else:
            answers = run_at_once(store.read(request.life, request.requests))
        if self._lags:
            answers = [self._read_late(*one, now_ns) for one in zip(request.requests, answers, strict=True)]
        return BatchDone(tuple(answers))

    def _store_of(self, life: StoredLife) -> SessionStore:
        """Every process has the store open for itself, and what it remembers of it."""
        store = self._stores.get((life.node, life.number))
        if store is None:
            store = self._stores[life.node, life.number] = self._open(life.node)
        return store

    def _open(self, node: str) -> SessionStore:
        return SessionStore(self.database, watch=quiet_watch(lambda: self._steady_of(node)))

    def _read_late(self, request: Asked, answer: Any, now_ns: int) -> Any:
        """Only reads of what is pending may be late; any replica serves them."""
        if isinstance(request, ReadPage) and isinstance(request.rows, ReadPending):
            return self._chance.choice(self._replicas).read(request, now_ns)
        return answer

    def accept_clock(self) -> None:
        """Ages count again."""
        run_at_once(self._open("").accept_clock())

    def time(self) -> StoreTime:
        """That of the last commit."""
        return self.database.read_time()

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """What stands in the tables, for who judges."""
        with self.database.reading() as sql:
            found: list[tuple[Any, ...]] = sql.all(statement, **values)
            return found


def statements_of(world: SimCluster) -> Statements:
    """The database of a world."""
    device: Any = world.devices[DATABASE]
    found: Statements = device.service
    return found


class SimulatedDatabase(RemoteStore):
    """`service`: what stands behind the network."""

    def __init__(self, world: SimCluster, own: SessionSection) -> None:
        def steady_of(node: str) -> int:
            return world.processes[node].local_now() if node else world.env.now

        self.service = Statements(own, world.seed, steady_of)
        watched = world.watch.observe_request if world.watching else None
        super().__init__(
            world.env, self.service, world.seed, lambda request: BatchFailed(), watched, cuts=world.network.cuts
        )

    def heal(self) -> None:
        """An operator has looked at the clock, too."""
        super().heal()
        self.service.accept_clock()


def database(own: SessionSection) -> Fixture:
    """The database of a run."""
    faults = (*OF_STORES, "partition", "drift", "jump", "set_back", "leap_ahead")
    return Fixture(DATABASE, lambda world: SimulatedDatabase(world, own), faults, CLOCK)
