"""SqliteGuestStreams: groups and streams in a SQLite file of sessions."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from statemachines.drivers.shared_subscriptions.guest_streams import SHARDS, Declaration, Version
from statemachines.drivers.shared_subscriptions.sqlite.stream_append import append_to_stream
from statemachines.drivers.shared_subscriptions.sqlite.tables import GUEST, GUEST_PREFIX
from statemachines.drivers.shared_subscriptions.store import StoredPayload
from statemachines.drivers.sql.sqlite import SqliteDatabase, name_tables
from statemachines.kernel import ConfigurationError

DECLARED: Final = "FROM @group_records WHERE substr(key, -11) = ':properties'"
STAMP: Final = "UPDATE @store SET time_ns = max(?, time_ns + 1) RETURNING time_ns"


async def take_in_guest(path: Path) -> None:
    """Have both stores in this file of sessions, which is there; raises as `Database` does."""

    def agree(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE @store SET shards = ? WHERE shards = 0", (SHARDS,))

    database = await asyncio.to_thread(SqliteDatabase, path, GUEST, agree=agree)
    await database.close()


class GuestConnection:
    """The connection of the host, for statements that say `@table`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
        """As of every connection."""
        return self._connection.execute(name_tables(statement, GUEST_PREFIX), values)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """As of every connection."""
        return self._connection.executemany(name_tables(statement, GUEST_PREFIX), rows)


class SqliteGuestStreams:
    """`connection` is in a transaction; `clock_ns`: what the host's clock shows."""

    def __init__(self, connection: sqlite3.Connection, clock_ns: int) -> None:
        self._connection = GuestConnection(connection)
        self._clock_ns = clock_ns

    def version(self) -> Version:
        """Of the declarations."""
        count, last_ns = self._connection.execute(f"SELECT count(*), coalesce(max(time_ns), 0) {DECLARED}").fetchone()
        return count, last_ns

    def read_declarations(self) -> Sequence[Declaration]:
        """The records that declare groups."""
        return self._connection.execute(f"SELECT key, value, time_ns {DECLARED}").fetchall()

    def append(self, messages: Mapping[str, Sequence[StoredPayload]]) -> Sequence[str]:
        """Append messages to the streams of their topics; answers with the topics whose stream has ended."""
        ((now_ns,),) = self._connection.execute(STAMP, (self._clock_ns,)).fetchall()
        (shards,) = self._connection.execute("SELECT shards FROM @store").fetchone()
        ended = []
        for topic, its in messages.items():
            payloads, heads = [payload for payload, _ in its], [head for _, head in its]
            try:
                append_to_stream(self._connection, shards, now_ns, topic, payloads, heads)
            except ConfigurationError:
                ended.append(topic)
        return ended
