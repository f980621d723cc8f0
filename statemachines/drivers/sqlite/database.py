"""Database: opening a file that is ours, the store's own time, and one worker thread."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from statemachines.kernel import ConfigurationError, GaplessError

APPLICATION: Final = 0x67617031
"""SQLite's application_id of our files ("gap1")."""

VERSION: Final = 1
BUSY_S: Final = 2.0
"""How long a transaction waits for another process's; after that the request has failed."""

TABLES: Final = (
    "CREATE TABLE clock (one INTEGER PRIMARY KEY CHECK (one = 1), time_ns INTEGER NOT NULL)",
    "INSERT INTO clock VALUES (1, 0)",
    "CREATE TABLE records (key TEXT PRIMARY KEY, value BLOB NOT NULL, time_ns INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE streams (id TEXT PRIMARY KEY, topic TEXT NOT NULL, shard INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, count INTEGER NOT NULL, ended INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE messages (stream TEXT NOT NULL, offset INTEGER NOT NULL, time_ns INTEGER NOT NULL,"
    " payload BLOB NOT NULL, PRIMARY KEY (stream, offset)) WITHOUT ROWID",
    "CREATE INDEX messages_by_time ON messages (stream, time_ns, offset)",
)

T = TypeVar("T")


class StoreUnavailable(GaplessError):
    """The database did not carry a request out in time; nothing of it was written, and it can be repeated."""


class Database:
    """One connection to the file at `path`, used by one worker thread.

    Raises `ConfigurationError` where the file cannot be opened, is not ours, or is of another version.
    """

    def __init__(self, path: Path, busy_s: float = BUSY_S) -> None:
        self.path = path
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        try:
            self.connection = self._worker.submit(self._open, busy_s).result()
        except BaseException:
            self._worker.shutdown()
            raise

    async def run(self, work: Callable[[], T]) -> T:
        """`work()` in the worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await self.run(self.connection.close)
        self._worker.shutdown()

    @contextmanager
    def transaction(self) -> Iterator[int]:
        """`with transaction() as now_ns`: all or nothing; `now_ns` is the store's time, which never stands still."""
        connection = self.connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            (last,) = connection.execute("SELECT time_ns FROM clock").fetchone()
            now_ns = max(time.time_ns(), last + 1)
            connection.execute("UPDATE clock SET time_ns = ?", (now_ns,))
            yield now_ns
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def now_ns(self) -> int:
        """The store's time, for a read."""
        (last,) = self.connection.execute("SELECT time_ns FROM clock").fetchone()
        return max(time.time_ns(), int(last))

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self, busy_s: float) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self.path, timeout=max(busy_s, 5.0), isolation_level=None)
        except sqlite3.OperationalError as error:
            raise self._refuse(
                f"cannot be opened ({error}); does the directory exist, and may we write there?"
            ) from error
        try:
            self._make_ours(connection)
            connection.execute(f"PRAGMA busy_timeout = {int(busy_s * 1000)}")
        except sqlite3.Error as error:
            connection.close()
            raise self._refuse(f"is not a database that we can write: {error}") from error
        except ConfigurationError:
            connection.close()
            raise
        return connection

    def _make_ours(self, connection: sqlite3.Connection) -> None:
        """Check whose it is; one that is empty becomes ours, whoever comes first."""
        self._check(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            if self._check(connection) == 0:
                for statement in TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection) -> int:
        """The version of the file, 0 for an empty one."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application == 0 and version == 0 and tables == 0:
            return 0
        if application != APPLICATION:
            raise self._refuse("is a database of another program; give a path of its own, which is made anew")
        if version != VERSION:
            raise self._refuse(f"is of version {version}; this gapless reads version {VERSION}")
        return int(version)

    def _refuse(self, rule: str) -> ConfigurationError:
        return ConfigurationError("store", str(self.path), rule)
