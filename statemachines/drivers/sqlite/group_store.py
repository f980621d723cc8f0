"""The group store on SQLite: what `statemachines.shared_subscriptions.group_store` means, in transactions."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from statemachines.drivers.sqlite.database import BUSY_S, Database
from statemachines.kernel import Answer
from statemachines.shared_subscriptions.group_store import (
    SERVICE,
    Commit,
    Committed,
    Read,
    ReadDone,
    Refused,
    Scan,
    Scanned,
    Stored,
    StoreFailed,
    Value,
)

Asked = Read | Scan | Commit


class SqliteGroupStore:
    """Records in the file at `path`; raises `ConfigurationError` where it cannot be used."""

    name = SERVICE

    def __init__(self, path: str | Path, busy_s: float = BUSY_S) -> None:
        self._database = Database(Path(path), busy_s)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Value] = msgspec.msgpack.Decoder(Value)

    async def ask(self, request: Asked) -> tuple[Answer, ...]:
        """The answers; `StoreFailed` where the database was busy for too long or broke."""
        try:
            return (await self._database.run(lambda: self._apply(request)),)
        except sqlite3.OperationalError:
            return (StoreFailed(request.n),)

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()

    def _apply(self, request: Asked) -> Answer:
        match request:
            case Read(n, keys):
                records = tuple(self._get(key) for key in keys)
                return ReadDone(n, records, self._database.now_ns())
            case Scan():
                return self._scan(request)
            case Commit():
                return self._commit(request)

    def _get(self, key: str) -> Stored | None:
        found = self._database.connection.execute("SELECT value, time_ns FROM records WHERE key = ?", (key,)).fetchone()
        return None if found is None else Stored(self._decoder.decode(found[0]), found[1])

    def _scan(self, scan: Scan) -> Scanned:
        found = self._database.connection.execute(
            "SELECT key, value, time_ns FROM records WHERE key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?",
            (scan.after, scan.prefix, _beyond(scan.prefix), scan.limit + 1),
        ).fetchall()
        records = tuple((key, Stored(self._decoder.decode(value), time_ns)) for key, value, time_ns in found)
        return Scanned(scan.n, records[: scan.limit], len(records) > scan.limit)

    def _commit(self, commit: Commit) -> Committed | Refused:
        with self._database.transaction() as now_ns:
            for key, stored in commit.expect:
                if self._get(key) != stored:
                    return Refused(commit.n, key)
            self._database.connection.executemany(
                "INSERT INTO records VALUES (?, ?, ?)"
                " ON CONFLICT (key) DO UPDATE SET value = excluded.value, time_ns = excluded.time_ns",
                [(key, self._encoder.encode(value), now_ns) for key, value in commit.put],
            )
        return Committed(commit.n, now_ns)


def _beyond(prefix: str) -> str:
    """Greater than every key that begins with `prefix` (keys are UTF-8, ordered by their bytes)."""
    return prefix + "\U0010ffff"
