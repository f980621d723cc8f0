"""MemoryDatabase: the statements of a real store on SQLite, in memory and without a thread, and replicas that lag.

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

from statemachines.drivers.persistent_sessions.host_request import ReadPage
from statemachines.drivers.persistent_sessions.sqlite import TIME, SqliteSql, SqliteTransaction
from statemachines.drivers.persistent_sessions.store import SessionStore
from statemachines.drivers.persistent_sessions.tables import SQLITE
from statemachines.drivers.persistent_sessions.time_watch import TimeWatch
from statemachines.drivers.sql.sqlite import Transaction
from statemachines.persistent_sessions.store_time import StoreTime
from statemachines_sim.units import MS

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
        return SqliteTransaction(self.clock_ns, Transaction(self.connection, "BEGIN"), SqliteSql.writing, watch)

    def reading(self, watch: TimeWatch | None = None, *, is_complete: bool = False) -> SqliteTransaction:
        """One state: nobody else is here."""
        return SqliteTransaction(self.clock_ns, Transaction(self.connection, "BEGIN"), SqliteSql.reading, watch)

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
