"""SQLite: sessions in one file, safe under several processes (write-ahead log)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from statemachines.drivers.clock import Clock
from statemachines.drivers.persistent_sessions.sql import (
    SQLITE,
    Change,
    ManyRows,
    Sql,
    TimeWatch,
    TransactionTimes,
    cut_pieces,
    encode_text,
    name_columns,
)
from statemachines.drivers.shared_subscriptions.guest_streams import GuestStreams
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.failure import BUSY_S
from statemachines.drivers.sql.sqlite import SqliteDatabase
from statemachines.persistent_sessions.session_host_record import StoreTime, next_time, time_of_read

T = TypeVar("T")


VALUES_MAX: Final = 999
"""Values in one statement: SQLite before 3.32 takes no more."""

SHARED_MIN: Final = 16
"""Of fewer rows it is not looked at what they share."""

STATEMENTS_MAX: Final = 512
"""Texts that are kept: clients decide how many rows come together, and what these share."""


@cache
def _plain(statement: str) -> str:
    return name_columns(statement).replace("@", "")


@lru_cache(STATEMENTS_MAX)
def _of_rows(many: ManyRows, is_shared: tuple[bool, ...], count: int) -> str:
    """The values that all rows share come first, once."""
    shared, others = iter(range(1, sum(is_shared) + 1)), iter(range(sum(is_shared) + 1, VALUES_MAX + 1))
    first = [f"?{next(shared)}" if one else "" for one in is_shared]
    rows = (", ".join([one or f"?{next(others)}" for one in first]) for _ in range(count))
    return f"{many.head}{', '.join([f'({row})' for row in rows])}{many.tail}"


TIME: Final = "SELECT time_ns, ahead_ns, stopped_ns FROM store"


def read_lead(connection: sqlite3.Connection, watch: TimeWatch) -> None:
    """Tell a watch that begins what an earlier process of the same boot knew."""
    if watch.is_new and watch.boot:
        for (lead_ns,) in connection.execute("SELECT lead_ns FROM boot WHERE id = ?", (watch.boot,)):
            watch.begin(lead_ns)


class SqliteSql(Sql):
    """A transaction on a file."""

    def __init__(self, connection: sqlite3.Connection, now_ns: int, aged_ns: int, seen_ns: int) -> None:
        self._connection = connection
        self.times = TransactionTimes(now_ns, aged_ns, seen_ns, now_ns)

    def expect(self, statement: str, **values: Any) -> None:
        """It takes no time to be asked."""

    @classmethod
    def writing(cls, connection: sqlite3.Connection, clock_ns: int, watch: TimeWatch | None) -> SqliteSql:
        """One that has begun, and writes: it has a time of its own."""
        known = StoreTime(*connection.execute(TIME).fetchone())
        if watch is None:
            found = next_time(known, clock_ns, None)
        else:
            read_lead(connection, watch)
            found = watch.commit(known, clock_ns)
            for lead_ns in watch.take_lead():  # for later processes of this boot
                connection.execute("INSERT OR REPLACE INTO boot VALUES (0, ?, ?)", (watch.boot, lead_ns))
        connection.execute(
            "UPDATE store SET time_ns = ?, ahead_ns = ?, stopped_ns = ?",
            (found.time_ns, found.ahead_ns, found.stopped_ns),
        )
        return cls(connection, found.time_ns, found.age_limit_ns(found.time_ns), found.time_ns)

    @classmethod
    def reading(cls, connection: sqlite3.Connection, clock_ns: int, watch: TimeWatch | None) -> SqliteSql:
        """One that has begun, and reads."""
        known = StoreTime(*connection.execute(TIME).fetchone())
        if watch is not None:
            read_lead(connection, watch)
        now_ns = time_of_read(known, clock_ns, None) if watch is None else watch.read(known, clock_ns)
        return cls(connection, now_ns, known.age_limit_ns(now_ns), known.time_ns)

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(_plain(statement), encode_text(values)).fetchall()

    def run(self, statement: str, **values: Any) -> None:
        self.count(statement, **values)

    def count(self, statement: str, **values: Any) -> int:
        return self._connection.execute(_plain(statement), encode_text(values)).rowcount

    def counts(self, changes: Sequence[Change]) -> list[int]:
        return [self.count(statement, **values) for statement, values in changes]

    def streams(self) -> GuestStreams:
        """The streams of groups in this file; they are there."""
        from statemachines.drivers.shared_subscriptions.sqlite.guest_streams import SqliteGuestStreams

        return SqliteGuestStreams(self._connection, self.now_ns)

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Many rows in one statement: between two of them the interpreter is handed to the event loop and back, which
        costs more than the row.  The module looks for an adapter of each value of type `bytes`, and of no `bytearray`:
        that costs more than the copy (D-994).  What all rows share is bound once (D-1053)."""
        if not rows:
            return
        many = ManyRows.of(_plain(statement))
        is_shared, shared = (False,) * len(many.names), []
        if len(rows) >= SHARED_MIN:
            columns = list(zip(*rows, strict=True))
            is_shared = (*(one[0] == one[-1] and one.count(one[0]) == len(rows) for one in columns[:-1]), False)
            shared = [one for one, is_one in zip(rows[0], is_shared, strict=True) if is_one]
            rows = list(zip(*(one for one, is_one in zip(columns, is_shared, strict=True) if not is_one), strict=True))
        most = (VALUES_MAX - len(shared)) // (len(many.names) - len(shared))
        for piece in [rows] if len(rows) == 1 else cut_pieces(rows, most):
            values = [bytearray(one) if type(one) is bytes else one for one in chain(shared, *piece)]
            self._connection.execute(_of_rows(many, is_shared, len(piece)), values)


SqliteTransaction = AbstractContextManager[Sql]


@contextmanager
def begin_sql(
    clock_ns: Clock,
    transaction: AbstractContextManager[sqlite3.Connection],
    begin: Callable[[sqlite3.Connection, int, TimeWatch | None], SqliteSql],
    watch: TimeWatch | None,
) -> Iterator[Sql]:
    """A transaction of SQLite, with its time by a clock; `begin` is a constructor of `SqliteSql`."""
    with transaction as connection:
        yield begin(connection, clock_ns(), watch)


class SqliteSessions:
    """The file at `path`; raises as `Database` does."""

    batches = None

    def __init__(
        self,
        path: Path,
        busy_s: float = BUSY_S,
        clock: Clock = time.time_ns,
        *,
        identity: bytes,
        durability: Durability = Durability.PROCESS,
    ) -> None:
        def agree(connection: sqlite3.Connection) -> None:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS boot (place INTEGER PRIMARY KEY, id TEXT NOT NULL, lead_ns INTEGER"
                " NOT NULL)"
            )
            connection.execute("UPDATE store SET identity = ? WHERE identity IS NULL", (identity,))

        self._database = SqliteDatabase(path, SQLITE, busy_s, clock, agree, durability)
        self.where = str(path)

    def writing(
        self, watch: TimeWatch | None = None, *, may_lose: bool = False, may_share: bool = False
    ) -> SqliteTransaction:
        """All or nothing, and alone."""
        self._database.set_flush(not may_lose)
        return begin_sql(self._database.clock_ns, self._database.transaction(), SqliteSql.writing, watch)

    def reading(self, watch: TimeWatch | None = None, *, is_complete: bool = False) -> SqliteTransaction:
        """One state."""
        return begin_sql(self._database.clock_ns, self._database.snapshot(), SqliteSql.reading, watch)

    def count_changes(self) -> int | None:
        """SQLite counts them, as far as this connection can see."""
        return int(self._database.connection.execute("PRAGMA data_version").fetchone()[0])

    def last_commit_ns(self) -> int:
        """When something was committed last."""
        return int(self._database.connection.execute("SELECT time_ns FROM store").fetchone()[0])

    async def run(self, work: Callable[[], T], *, is_short: bool = False, is_read: bool = False) -> T:
        """`work()` in the thread, or at once."""
        return await self._database.run(work, is_short=is_short, is_read=is_read)

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()
