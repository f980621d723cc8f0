"""The stream store on SQLite: what `statemachines.shared_subscriptions.stream_store` means, with the payloads."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from statemachines.drivers.sqlite.database import BUSY_S, Database, StoreUnavailable
from statemachines.kernel import Answer, ConfigurationError
from statemachines.shared_subscriptions.stream_store import (
    SERVICE,
    Appended,
    Batch,
    Fetch,
    Fetched,
    FetchFailed,
    ListStreams,
    Slice,
    StreamInfo,
    StreamsListed,
    matches,
    shard_of,
    stream_id,
)

PAYLOAD_MAX: Final = 2**20
"""Bytes of the largest message."""

LISTED_AT_A_TIME: Final = 1_000

Payloads = list[list[bytes]]


class SqliteStreamStore:
    """Streams in the file at `path`; raises `ConfigurationError` where it cannot be used."""

    name = SERVICE

    def __init__(self, path: str | Path, shards: int = 4, busy_s: float = BUSY_S) -> None:
        self._database = Database(Path(path), busy_s)
        self._shards = shards

    async def ask(self, request: ListStreams | Fetch) -> tuple[Answer, ...]:
        """The answers, without payloads; `FetchFailed` where the database was busy for too long or broke."""
        if isinstance(request, Fetch):
            return ((await self.fetch(request))[0],)
        try:
            return (await self._database.run(lambda: self._list(request)),)
        except sqlite3.OperationalError:
            return (FetchFailed(request.n),)

    async def fetch(self, request: Fetch) -> tuple[Fetched | FetchFailed, Payloads]:
        """The answer, and beside it the payloads of each batch."""
        try:
            return await self._database.run(lambda: self._fetch(request))
        except sqlite3.OperationalError:
            return FetchFailed(request.n), []

    async def append(self, topic: str, payloads: Sequence[bytes]) -> Appended:
        """Append to the topic's current stream, all or nothing; durable when this returns.

        Raises `ConfigurationError` for a payload above 1 MiB or a topic with wildcards, `StoreUnavailable` where the
        database was busy for too long (nothing was written).
        """
        if not topic or set(topic) & set("+#\0"):
            raise ConfigurationError("topic", topic, "must have no '+', '#' or NUL, and not be empty")
        for payload in payloads:
            if len(payload) > PAYLOAD_MAX:
                raise ConfigurationError("payload", f"{len(payload)} bytes", f"must have at most {PAYLOAD_MAX} bytes")
        try:
            return await self._database.run(lambda: self._append(topic, payloads))
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"nothing was appended to {topic}: {error}; try again") from error

    async def end(self, topic: str) -> None:
        """Nothing will be appended to the topic's current stream any more."""
        stream = stream_id(topic, self._shards, 0)
        await self._database.run(lambda: self._end(stream))

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()

    # -- in the worker ------------------------------------------------------------------------------------------

    def _list(self, request: ListStreams) -> StreamsListed:
        """Matching is done here, a thousand streams at a time."""
        found: list[StreamInfo] = []
        after = request.after
        while len(found) <= request.limit:
            rows = self._database.connection.execute(
                "SELECT id, topic, shard, generation, count FROM streams WHERE id > ? ORDER BY id LIMIT ?",
                (after, LISTED_AT_A_TIME),
            ).fetchall()
            for stream, topic, shard, generation, count in rows:
                if matches(request.filter, topic):
                    first = self._first_since(stream, request.start_ns, count)
                    found.append(StreamInfo(stream, shard, generation, first))
            if len(rows) < LISTED_AT_A_TIME:
                break
            after = rows[-1][0]
        return StreamsListed(request.n, tuple(found[: request.limit]), len(found) > request.limit)

    def _first_since(self, stream: str, start_ns: int, count: int) -> int:
        if start_ns <= 0:
            return 0
        (first,) = self._database.connection.execute(
            "SELECT min(offset) FROM messages WHERE stream = ? AND time_ns >= ?", (stream, start_ns)
        ).fetchone()
        return count if first is None else int(first)

    def _fetch(self, request: Fetch) -> tuple[Fetched, Payloads]:
        connection = self._database.connection
        connection.execute("BEGIN")
        try:
            both = [self._batch(one) for one in request.slices]
        finally:
            connection.execute("COMMIT")
        return Fetched(request.n, tuple(batch for batch, _ in both)), [payloads for _, payloads in both]

    def _batch(self, one: Slice) -> tuple[Batch, list[bytes]]:
        connection = self._database.connection
        known = connection.execute("SELECT count, ended FROM streams WHERE id = ?", (one.stream,)).fetchone()
        count, ended = (0, 0) if known is None else known
        last = max(min(count, one.first + one.limit) - 1, one.first - 1)
        rows = connection.execute(
            "SELECT payload FROM messages WHERE stream = ? AND offset BETWEEN ? AND ? ORDER BY offset",
            (one.stream, one.first, last),
        ).fetchall()
        return Batch(one.stream, one.grant, one.first, last, bool(ended) and last + 1 == count), [
            row[0] for row in rows
        ]

    def _append(self, topic: str, payloads: Sequence[bytes]) -> Appended:
        stream = stream_id(topic, self._shards, 0)
        connection = self._database.connection
        with self._database.transaction() as now_ns:
            known = connection.execute("SELECT count, ended FROM streams WHERE id = ?", (stream,)).fetchone()
            if known is not None and known[1]:
                raise ConfigurationError("topic", topic, "has ended; nothing can be appended")
            first = 0 if known is None else known[0]
            connection.executemany(
                "INSERT INTO messages VALUES (?, ?, ?, ?)",
                [(stream, first + number, now_ns, payload) for number, payload in enumerate(payloads)],
            )
            connection.execute(
                "INSERT INTO streams VALUES (?, ?, ?, 0, ?, 0) ON CONFLICT (id) DO UPDATE SET count = excluded.count",
                (stream, topic, shard_of(topic, self._shards), first + len(payloads)),
            )
        return Appended(0, stream, first, first + len(payloads) - 1)

    def _end(self, stream: str) -> None:
        with self._database.transaction():
            self._database.connection.execute("UPDATE streams SET ended = 1 WHERE id = ?", (stream,))
