"""The group store on SQLite: what `statemachines.shared_subscriptions.group_store` means, in transactions."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Final

from statemachines.drivers.clock import Clock
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.sql_stores import SqlGroupStore
from statemachines.drivers.shared_subscriptions.sqlite.tables import layout_of
from statemachines.drivers.sql.failure import BUSY_S, find_upper_bound
from statemachines.drivers.sql.sqlite import SqliteDatabase
from statemachines.shared_subscriptions.group_store import Commit, Committed, Read, ReadDone, Refused, StoredRecord

PUT: Final = (
    "INSERT INTO @group_records (key, value, time_ns) VALUES (?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET value = excluded.value, time_ns = excluded.time_ns"
)

GET: Final = "SELECT value, time_ns FROM @group_records WHERE key = ?"

FIND: Final = (
    "SELECT key, value, time_ns FROM @group_records"
    " WHERE key >= ? AND key < CAST(? AS TEXT) AND key <> ? ORDER BY key LIMIT ?"
)


class SqliteGroupStore(SqlGroupStore[SqliteDatabase]):
    """Records in the file at `path`; a transaction waits at most `busy_s` seconds for other processes.

    Raises `ConfigurationError` where the file cannot be used, `StoreUnavailable` where it stays locked.
    """

    def __init__(self, path: str | Path, busy_s: float = BUSY_S, *, clock: Clock = time.time_ns) -> None:
        self.identity = ""
        self._database = SqliteDatabase(Path(path), layout_of(Path(path)), busy_s, clock, self._identify)
        self._codec = RecordCodec(str(path))

    def _identify(self, connection: sqlite3.Connection) -> None:
        (self.identity,) = connection.execute("SELECT identity FROM @store").fetchone()

    def _read(self, read: Read) -> ReadDone:
        with self._database.snapshot():
            return ReadDone(read.n, tuple(self._get(key) for key in read.keys), self._database.now_ns())

    def _get(self, key: str) -> StoredRecord | None:
        found = self._database.connection.execute(GET, (key,)).fetchone()
        return None if found is None else self._codec.read(key, *found)

    def _find(
        self, connection: sqlite3.Connection, prefix: str, after: str, limit: int
    ) -> list[tuple[str, bytes, int]]:
        return connection.execute(FIND, (max(prefix, after), find_upper_bound(prefix), after, limit)).fetchall()

    def _commit(self, commit: Commit) -> Committed | Refused:
        with self._database.transaction() as connection:
            for key, stored in commit.expect:
                if self._get(key) != stored:
                    return Refused(commit.n, key)
            now_ns = self._database.stamp()
            for key, value in commit.put:
                if value is None:
                    connection.execute("DELETE FROM @group_records WHERE key = ?", (key,))
                else:
                    connection.execute(PUT, (key, self._codec.encode(value), now_ns))
        return Committed(commit.n, now_ns)
