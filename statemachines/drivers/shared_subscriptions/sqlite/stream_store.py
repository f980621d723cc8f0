"""The stream store on SQLite: what `statemachines.shared_subscriptions.stream_store` means, with the payloads."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from statemachines.drivers.clock import Clock
from statemachines.drivers.message_head import add_headers
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.sql_stores import SqlStreamStore
from statemachines.drivers.shared_subscriptions.sqlite.group_store import PUT, SqliteGroupStore
from statemachines.drivers.shared_subscriptions.sqlite.stream_append import append_to_stream
from statemachines.drivers.shared_subscriptions.sqlite.tables import layout_of
from statemachines.drivers.shared_subscriptions.store import (
    ANSWER_MAX,
    OFFSET_BITS,
    Heads,
    Payloads,
    StoredPayload,
    agree_on_shards,
    has_no_message,
    has_no_stream,
    ids_of,
    records_of,
    size_of,
)
from statemachines.drivers.sql.failure import BUSY_S, find_upper_bound
from statemachines.drivers.sql.sqlite import SqliteDatabase
from statemachines.shared_subscriptions.dead_letter import StoreLetter, pass_message
from statemachines.shared_subscriptions.stream_store import (
    Appended,
    Fetch,
    Fetched,
    ListStreams,
    Measure,
    Measured,
    MessageBatch,
    Slice,
    StreamInfo,
    StreamSize,
    matches,
)

LIST: Final = """
    SELECT id, shard, generation, coalesce((
        SELECT first FROM @appends WHERE stream = number AND time_ns >= ? ORDER BY time_ns LIMIT 1
    ), count), count, ended
    FROM @streams WHERE id >= ? AND id < CAST(? AS TEXT) AND id <> ? AND matches(?, topic) ORDER BY id LIMIT ?
"""

SIZE: Final = "SELECT count, ended FROM @streams WHERE id = ?"

READ: Final = "SELECT payload, head FROM @messages WHERE place BETWEEN ? AND ? ORDER BY place"

PROGRESS: Final = "SELECT value, time_ns FROM @group_records WHERE key = ?"

logger = logging.getLogger("gapless")


class SqliteStreamStore(SqlStreamStore[SqliteDatabase]):
    """Streams in the file at `path`, of topics spread over `shards`; a transaction waits at most `busy_s` seconds.

    Raises `ConfigurationError` where the file cannot be used or was made with other shards, `StoreUnavailable` where it
    stays locked.
    """

    def __init__(
        self, path: str | Path, shards: int = 4, busy_s: float = BUSY_S, *, clock: Clock = time.time_ns
    ) -> None:
        super().__init__(shards)
        self._database = SqliteDatabase(Path(path), layout_of(Path(path)), busy_s, clock, self._agree)
        self._codec = RecordCodec(str(path))

    # -- in the worker ------------------------------------------------------------------------------------------

    def _agree(self, connection: sqlite3.Connection) -> None:
        """The first stream store of a file decides; another number would find other streams for the same topics."""
        connection.create_function("matches", 2, matches, deterministic=True)
        connection.execute("UPDATE @store SET shards = ? WHERE shards = 0", (self._shards,))
        known, self.identity = connection.execute("SELECT shards, identity FROM @store").fetchone()
        agree_on_shards(self._shards, known)

    def _generations(self, connection: sqlite3.Connection) -> tuple[int, int]:
        generation, oldest = connection.execute("SELECT generation, oldest FROM @store").fetchone()
        return generation, oldest

    def _following(self, connection: sqlite3.Connection, after: str) -> str | None:
        found: tuple[str | None] = connection.execute("SELECT min(id) FROM @streams WHERE id > ?", (after,)).fetchone()
        return found[0]

    def _matching(
        self, connection: sqlite3.Connection, request: ListStreams, begin: str, after: str
    ) -> Iterator[StreamInfo]:
        low = max(begin, after)
        rows = connection.execute(
            LIST, (request.start_ns, low, find_upper_bound(begin), after, request.filter, request.limit + 1)
        )
        for stream, shard, generation, first, count, ended in rows:
            yield StreamInfo(stream, shard, generation, first, count, bool(ended))

    def _measure(self, request: Measure) -> Measured:
        with self._database.snapshot() as connection:
            (oldest,) = connection.execute("SELECT oldest FROM @store").fetchone()
            found = [(stream, connection.execute(SIZE, (stream,)).fetchone()) for stream in sorted(request.streams)]
        sizes = tuple(StreamSize(stream, size[0], bool(size[1])) for stream, size in found if size is not None)
        return Measured(request.n, sizes, oldest)

    def _fetch(self, request: Fetch, room: int) -> tuple[Fetched, Payloads]:
        batches, payloads = [], []
        with self._database.snapshot():
            for one in request.slices:
                batch, read = self._batch(one, room)
                room -= sum(map(size_of, read))
                batches.append(batch)
                payloads.append(read)
        return Fetched(request.n, tuple(batches)), payloads

    def _batch(self, one: Slice, room: int) -> tuple[MessageBatch, list[StoredPayload]]:
        """The messages of a slice until there is no more room; the last one may be larger than what was left."""
        connection = self._database.connection
        known = connection.execute("SELECT number, count, ended FROM @streams WHERE id = ?", (one.stream,)).fetchone()
        number, count, ended = known or (0, 0, 0)
        payloads: list[StoredPayload] = []
        last = min(count, one.first + one.limit) - 1
        if one.first <= last:
            base = number << OFFSET_BITS
            payloads = self._payloads(base + one.first, base + last, room)
            last = one.first + len(payloads) - 1
        ends = bool(ended) and last + 1 == count
        return MessageBatch(one.stream, one.grant, one.first, max(last, one.first - 1), ends, count), payloads

    def _payloads(self, first: int, last: int, room: int) -> list[StoredPayload]:
        payloads: list[StoredPayload] = []
        if room > 0:
            for found in self._database.connection.execute(READ, (first, last)):
                payloads.append(found)
                room -= size_of(found)
                if room <= 0:
                    break
        return payloads

    def _append(self, topic: str, payloads: Sequence[bytes], heads: Heads) -> Appended:
        with self._database.transaction() as connection:
            return self._append_in(connection, topic, payloads, heads)

    def _append_in(
        self, connection: sqlite3.Connection, topic: str, payloads: Sequence[bytes], heads: Heads
    ) -> Appended:
        """In a transaction that is open."""
        return append_to_stream(connection, self._shards, self._database.stamp(), topic, payloads, heads)

    def _store_letter(self, request: StoreLetter) -> bool:
        """The copy and the progress behind the message, in one batch; whether it was not there before."""
        letter, (progress, failing) = request.letter, records_of(request.letter)
        with self._database.transaction() as connection:
            found = connection.execute(PROGRESS, (progress,)).fetchone()
            known = None if found is None else self._codec.read(progress, *found).value
            if isinstance(known, int) and known > letter.offset:
                return False
            _, payloads = self._batch(Slice(letter.stream, 0, letter.offset, 1), ANSWER_MAX)
            if not payloads:
                raise has_no_message(letter)
            payload, head = payloads[0]
            self._append_in(connection, request.topic, [payload], [add_headers(head, letter.as_headers())])
            beside = connection.execute(PROGRESS, (failing,)).fetchone()
            behind = pass_message(letter, None if beside is None else self._codec.read(failing, *beside).value)
            for key, value in zip((progress, failing), behind, strict=True):
                if value is None:
                    connection.execute("DELETE FROM @group_records WHERE key = ?", (key,))
                else:
                    connection.execute(PUT, (key, self._codec.encode(value), self._database.stamp()))
        return True

    def _end(self, stream: str) -> None:
        with self._database.transaction() as connection:
            if connection.execute("UPDATE @streams SET ended = 1 WHERE id = ?", (stream,)).rowcount == 0:
                raise has_no_stream(stream)

    def _share_groups(self) -> SqliteGroupStore:
        return SqliteGroupStore.share(self._database, self._codec)

    def _rotate(self) -> int:
        """Those of earlier generations have ended before."""
        with self._database.transaction() as connection:
            (generation,) = connection.execute("SELECT generation FROM @store").fetchone()
            for ids in ids_of(self._shards, generation):
                connection.execute("UPDATE @streams SET ended = 1 WHERE id >= ? AND id < ?", ids)
            connection.execute("UPDATE @store SET generation = ?", (generation + 1,))
        return int(generation) + 1

    def _drop(self, oldest: int) -> int:
        with self._database.transaction() as connection:
            (before,) = connection.execute("SELECT oldest FROM @store").fetchone()
            connection.execute("UPDATE @store SET oldest = max(oldest, min(generation, ?))", (oldest,))
            (oldest,) = connection.execute("SELECT oldest FROM @store").fetchone()
            for generation in range(before, oldest):
                for ids in ids_of(self._shards, generation):
                    self._drop_streams(ids)
        return oldest

    def _drop_streams(self, ids: tuple[str, str]) -> None:
        connection = self._database.connection
        gone = connection.execute("SELECT number FROM @streams WHERE id >= ? AND id < ?", ids).fetchall()
        for (number,) in gone:
            places = (number << OFFSET_BITS, ((number + 1) << OFFSET_BITS) - 1)
            connection.execute("DELETE FROM @messages WHERE place BETWEEN ? AND ?", places)
            connection.execute("DELETE FROM @appends WHERE stream = ?", (number,))
            connection.execute("DELETE FROM @streams WHERE number = ?", (number,))
