"""SQLite: sessions in one file, safe under several processes (write-ahead log, synchronous=NORMAL)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from statemachines.drivers.clock import Clock
from statemachines.drivers.persistent_sessions.sql import ManyRows, Sql
from statemachines.drivers.persistent_sessions.tables import SQLITE
from statemachines.drivers.sql.failure import BUSY_S
from statemachines.drivers.sql.sqlite import Database

T = TypeVar("T")


VALUES_MAX: Final = 999
"""Values in one statement: SQLite before 3.32 takes no more."""


@cache
def _plain(statement: str) -> str:
    return statement.replace("@", "")


@cache
def _of_rows(many: ManyRows, count: int) -> str:
    row = f"({', '.join('?' * len(many.names))})"
    return f"{many.head}{', '.join([row] * count)}{many.tail}"


class SqliteSql:
    """A transaction on a file."""

    def __init__(self, connection: sqlite3.Connection, now_ns: int) -> None:
        self._connection = connection
        self.now_ns = now_ns

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(_plain(statement), values).fetchall()

    def run(self, statement: str, **values: Any) -> int:
        return self._connection.execute(_plain(statement), values).rowcount

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Many rows in one statement: between two of them the interpreter is handed to the event loop and back, which
        costs more than the row."""
        many = ManyRows.of(_plain(statement))
        most = VALUES_MAX // len(many.names)
        place = 0
        while place < len(rows):
            # 64, 32, 16, ... of them, so that there are few statements to prepare.
            count = 1 << (min(most, len(rows) - place).bit_length() - 1)
            values = list(chain.from_iterable(rows[place : place + count]))
            self._connection.execute(_of_rows(many, count), values)
            place += count


class SqliteSessions:
    """The file at `path`; raises as `Database` does."""

    def __init__(self, path: Path, busy_s: float = BUSY_S, clock: Clock = time.time_ns, *, identity: bytes) -> None:
        def agree(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE store SET identity = ? WHERE identity IS NULL", (identity,))

        self._database = Database(path, SQLITE, busy_s, clock, agree)
        self.where = str(path)

    @contextmanager
    def writing(self) -> Iterator[Sql]:
        """All or nothing, and alone."""
        with self._database.transaction() as connection:
            yield SqliteSql(connection, self._database.stamp())

    @contextmanager
    def reading(self) -> Iterator[Sql]:
        """One state."""
        with self._database.snapshot():
            yield SqliteSql(self._database.connection, self._database.now_ns())

    def last_commit_ns(self) -> int:
        """When something was committed last."""
        return int(self._database.connection.execute("SELECT time_ns FROM store").fetchone()[0])

    async def run(self, work: Callable[[], T]) -> T:
        """`work()` in the thread."""
        return await self._database.run(work)

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()
