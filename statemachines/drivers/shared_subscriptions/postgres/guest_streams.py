"""PostgresGuestStreams: groups and streams in a PostgreSQL database of sessions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, text

from statemachines.drivers.shared_subscriptions.guest_streams import DECLARATION, SHARDS, Declaration, Version
from statemachines.drivers.shared_subscriptions.postgres.stream_store import Attempt, grow_stream, note_append
from statemachines.drivers.shared_subscriptions.postgres.tables import LAYOUT
from statemachines.drivers.shared_subscriptions.store import StoredPayload
from statemachines.drivers.sql.postgres import PostgresDatabase
from statemachines.kernel import ConfigurationError

_IS_DECLARATION: Final = f"substr(key, length(key) - 10) = CAST('\\x{DECLARATION.encode().hex()}' AS bytea)"
_DECLARED: Final = f"FROM gapless.group_records WHERE {_IS_DECLARATION}"
VERSION: Final = text(f"SELECT count(*), coalesce(max(time_ns), 0) {_DECLARED}")
DECLARATIONS: Final = text(f"SELECT key, value, time_ns {_DECLARED}")
SHARD_COUNT: Final = text("SELECT shards FROM gapless.store")
INDEX: Final = text(f"CREATE INDEX IF NOT EXISTS declared ON gapless.group_records (time_ns) WHERE {_IS_DECLARATION}")


async def take_in_guest(url: str) -> None:
    """Have both stores in this database; raises as `Database` does."""

    def agree(connection: Connection) -> None:
        connection.execute(text("UPDATE gapless.store SET shards = :shards WHERE shards = 0"), {"shards": SHARDS})
        connection.execute(INDEX)

    database = await asyncio.to_thread(PostgresDatabase, url, "stream store", LAYOUT, agree=agree)
    await database.close()


class PostgresGuestStreams:
    """`connection` is in a transaction; `clock`: values of the stamp, as the host's database has them."""

    def __init__(self, connection: Connection, clock: Mapping[str, Any]) -> None:
        self._connection = connection
        self._clock = clock

    def version(self) -> Version:
        """Of the declarations."""
        count, last_ns = self._connection.execute(VERSION).one()
        return count, last_ns

    def read_declarations(self) -> Sequence[Declaration]:
        """The records that declare groups."""
        found = self._connection.execute(DECLARATIONS)
        return [(key.decode(), bytes(value), time_ns) for key, value, time_ns in found]

    def append(self, messages: Mapping[str, Sequence[StoredPayload]]) -> Sequence[str]:
        """Append messages to the streams of their topics; answers with the topics whose stream has ended.

        The rows of streams are locked before that of the time, as every append does: none waits for another in a ring.
        """
        shards = self._connection.execute(SHARD_COUNT).scalar_one() or SHARDS
        attempts, ended = [], []
        for topic, its in messages.items():
            attempt = Attempt(uuid.uuid4())
            payloads, heads = [payload for payload, _ in its], [head for _, head in its]
            try:
                grow_stream(self._connection, shards, topic, payloads, heads, attempt)
            except ConfigurationError:
                ended.append(topic)
            else:
                attempts.append(attempt)
        time_ns = int(self._connection.execute(LAYOUT.stamp(), self._clock).scalar_one())
        for attempt in attempts:
            note_append(self._connection, attempt, time_ns)
        return ended
