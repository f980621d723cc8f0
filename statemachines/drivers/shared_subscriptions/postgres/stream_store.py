"""The stream store on PostgreSQL: what `statemachines.shared_subscriptions.stream_store` means, with the payloads."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from statemachines.drivers.clock import Clock
from statemachines.drivers.message_head import add_headers
from statemachines.drivers.shared_subscriptions.postgres.group_store import DELETE, FIND, PUT, PostgresGroupStore
from statemachines.drivers.shared_subscriptions.postgres.tables import LAYOUT
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.sql_stores import SqlStreamStore
from statemachines.drivers.shared_subscriptions.store import (
    OFFSET_BITS,
    Heads,
    Payloads,
    agree_on_shards,
    has_ended,
    has_no_message,
    has_no_stream,
    ids_of,
    records_of,
)
from statemachines.drivers.sql.failure import BUSY_S, find_upper_bound
from statemachines.drivers.sql.postgres import PostgresDatabase
from statemachines.shared_subscriptions.dead_letter import (
    DeadLetter,
    StoreLetter,
    pass_message,
)
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
    shard_of,
    stream_id,
)

SLICE_MAX: Final = 10_000
"""Messages of one slice in one answer; the rest is asked for again."""

CANDIDATES: Final = 1_000
"""Streams looked at in one go when a filter is matched."""

PATIENCE_S: Final = 15.0
"""How long an append whose connection was lost tries to learn whether it was committed."""

NEXT: Final = text("SELECT id FROM gapless.streams WHERE id > :after ORDER BY id LIMIT 1")
LIST: Final = text(
    "SELECT id, topic, shard, generation, coalesce((SELECT first FROM gapless.appends"
    " WHERE stream = number AND time_ns >= :start_ns ORDER BY time_ns LIMIT 1), count), count, ended"
    " FROM gapless.streams WHERE id >= :low AND id < :beyond AND id <> :after ORDER BY id LIMIT :limit"
)
KNOWN: Final = text("SELECT id, number, count, ended FROM gapless.streams WHERE id = ANY(CAST(:ids AS bytea[]))")
SIZE: Final = "(octet_length(payload) + coalesce(octet_length(head), 0))"
# Of each range its messages in order, until `room` bytes have gone before.
READ: Final = text(
    "SELECT part, payload, head FROM (SELECT part, place, payload, head,"
    f" sum({SIZE}) OVER (ORDER BY part, place) - {SIZE} AS gone"
    " FROM unnest(CAST(:firsts AS bigint[]), CAST(:lasts AS bigint[])) WITH ORDINALITY AS wanted (low, high, part)"
    " JOIN gapless.messages ON place BETWEEN low AND high) AS found WHERE gone < :room ORDER BY part, place"
)
GROW: Final = text(
    "UPDATE gapless.streams SET count = count + :more WHERE id = :id AND NOT ended RETURNING number, count"
)
CREATE: Final = text(
    "INSERT INTO gapless.streams (id, topic, shard, generation, count, ended)"
    " VALUES (:id, :topic, :shard, :generation, 0, false) ON CONFLICT (id) DO NOTHING"
)
ADD: Final = text(
    "INSERT INTO gapless.messages (place, payload) SELECT :base + part - 1, payload"
    " FROM unnest(CAST(:payloads AS bytea[])) WITH ORDINALITY AS given (payload, part)"
)
ADD_HEADED: Final = text(
    "INSERT INTO gapless.messages (place, payload, head) SELECT :base + part - 1, payload, head"
    " FROM unnest(CAST(:payloads AS bytea[]), CAST(:heads AS bytea[])) WITH ORDINALITY AS given (payload, head, part)"
)
NOTE: Final = text(
    "INSERT INTO gapless.appends (stream, time_ns, first, mark) VALUES (:stream, :time_ns, :first, :mark)"
)
# Appenders share this lock; whoever rotates or drops waits for those that are at it, and keeps others out.
SHARE: Final = text("LOCK TABLE gapless.streams IN ROW EXCLUSIVE MODE")
ALONE: Final = text("LOCK TABLE gapless.streams IN SHARE ROW EXCLUSIVE MODE")
GENERATION: Final = text("SELECT generation, oldest FROM gapless.store")
ROTATE: Final = text("UPDATE gapless.store SET generation = generation + 1 RETURNING generation")
END_ALL: Final = text("UPDATE gapless.streams SET ended = true WHERE id >= :low AND id < :beyond AND NOT ended")
DROP: Final = text("UPDATE gapless.store SET oldest = greatest(oldest, least(generation, :oldest)) RETURNING oldest")
GONE: Final = text("SELECT number FROM gapless.streams WHERE id >= :low AND id < :beyond")
DROPPED: Final = (
    text(
        "DELETE FROM gapless.messages USING unnest(CAST(:numbers AS bigint[])) AS gone (number)"
        f" WHERE place >= gone.number << {OFFSET_BITS} AND place < (gone.number + 1) << {OFFSET_BITS}"
    ),
    text("DELETE FROM gapless.appends WHERE stream = ANY(CAST(:numbers AS bigint[]))"),
    text("DELETE FROM gapless.streams WHERE number = ANY(CAST(:numbers AS bigint[]))"),
)
END: Final = text("UPDATE gapless.streams SET ended = true WHERE id = :id")
WAIT: Final = text("SELECT time_ns FROM gapless.store FOR UPDATE")
MARKED: Final = text("SELECT mark FROM gapless.appends WHERE stream = :stream AND time_ns = :time_ns")

COPY: Final = text(
    "SELECT payload, head FROM gapless.messages JOIN gapless.streams ON id = :id"
    f" WHERE place = (number << {OFFSET_BITS}) + :offset AND :offset < count"
)

logger = logging.getLogger("gapless")


class Attempt(msgspec.Struct):
    """An append under way: what it has written; `time_ns` is 0 until nothing but the commit is left."""

    mark: uuid.UUID
    id: str = ""
    stream: int = 0
    first: int = 0
    time_ns: int = 0


class AlreadyPassed(Exception):
    """The group has gone on behind the message: the transaction is undone."""


class StreamHead(msgspec.Struct, frozen=True):
    """What a fetch must know of a stream."""

    number: int
    count: int
    ended: bool


NOTHING: Final = StreamHead(0, 0, False)


class PostgresStreamStore(SqlStreamStore[PostgresDatabase]):
    """Streams in the database at `url`, of topics spread over `shards`; a transaction waits at most `busy_s` seconds.

    `clock`: for tests, instead of the server's.  Raises `ConfigurationError` where the database cannot be used, or was
    made with other shards.
    """

    def __init__(self, url: str, shards: int = 4, busy_s: float = BUSY_S, *, clock: Clock | None = None) -> None:
        super().__init__(shards)
        self._database = PostgresDatabase(url, "stream store", LAYOUT, busy_s, clock, self._agree)
        self._codec = RecordCodec(self._database.url)

    # -- reading, in the worker ---------------------------------------------------------------------------------

    def _agree(self, connection: Connection) -> None:
        known, self.identity = connection.execute(text("SELECT shards, identity FROM gapless.store")).one()
        if known == 0:
            given = {"shards": self._shards}
            connection.execute(text("UPDATE gapless.store SET shards = :shards WHERE shards = 0"), given)
            known = connection.execute(text("SELECT shards FROM gapless.store")).scalar_one()
        agree_on_shards(self._shards, known)

    def _generations(self, connection: Connection) -> tuple[int, int]:
        generation, oldest = connection.execute(GENERATION).one()
        return generation, oldest

    def _following(self, connection: Connection, after: str) -> str | None:
        found = connection.execute(NEXT, {"after": after.encode()}).scalar_one_or_none()
        return None if found is None else found.decode()

    def _matching(self, connection: Connection, request: ListStreams, begin: str, after: str) -> Iterator[StreamInfo]:
        while True:
            values = {
                "start_ns": request.start_ns,
                "low": max(begin, after).encode(),
                "beyond": find_upper_bound(begin),
                "after": after.encode(),
                "limit": CANDIDATES,
            }
            rows = connection.execute(LIST, values).all()
            for stream, topic, *place in rows:
                if matches(request.filter, topic.decode()):
                    yield StreamInfo(stream.decode(), *place)
            if len(rows) < CANDIDATES:
                return
            after = rows[-1][0].decode()

    def _measure(self, request: Measure) -> Measured:
        ids = sorted(stream.encode() for stream in request.streams)
        with self._database.snapshot() as connection:
            _, oldest = connection.execute(GENERATION).one()
            rows = connection.execute(KNOWN, {"ids": ids}).all()
        sizes = sorted((stream.decode(), count, ended) for stream, _, count, ended in rows)
        return Measured(request.n, tuple(StreamSize(*size) for size in sizes), oldest)

    def _fetch(self, request: Fetch, room: int) -> tuple[Fetched, Payloads]:
        """Messages below a count that was read are there for ever, so two statements see one state."""
        ids = [one.stream.encode() for one in request.slices]
        payloads: Payloads = [[] for _ in ids]
        with self._database.single() as connection:
            rows = connection.execute(KNOWN, {"ids": list(set(ids))})
            known = {row[0]: StreamHead(*row[1:]) for row in rows}
            wanted = [self._places(known.get(stream), one) for stream, one in zip(ids, request.slices, strict=True)]
            if any(low <= high for low, high in wanted):
                values = {
                    "firsts": [low for low, _ in wanted],
                    "lasts": [high for _, high in wanted],
                    "room": room,
                }
                for part, payload, head in connection.execute(READ, values):
                    payloads[part - 1].append((payload, head))
        batches = [
            self._batch(known.get(stream, NOTHING), one, len(read))
            for stream, one, read in zip(ids, request.slices, payloads, strict=True)
        ]
        return Fetched(request.n, tuple(batches)), payloads

    @staticmethod
    def _places(known: StreamHead | None, one: Slice) -> tuple[int, int]:
        """The first and the last place of what a slice asks for; nothing: the last is less."""
        if known is None:
            return 0, -1
        base = known.number << OFFSET_BITS
        return base + one.first, base + min(known.count, one.first + min(one.limit, SLICE_MAX)) - 1

    @staticmethod
    def _batch(known: StreamHead, one: Slice, read: int) -> MessageBatch:
        last = min(known.count, one.first + one.limit) - 1
        if one.first <= last:
            last = one.first + read - 1
        ends = known.ended and last + 1 == known.count
        return MessageBatch(one.stream, one.grant, one.first, max(last, one.first - 1), ends, known.count)

    # -- writing, in the worker ---------------------------------------------------------------------------------

    def _append(self, topic: str, payloads: Sequence[bytes], heads: Heads) -> Appended:
        """An append whose connection is lost finds out whether it was committed, when the server is back: it is never
        done twice."""
        attempt = Attempt(uuid.uuid4())
        try:
            self._try_append(topic, payloads, heads, attempt)
        except DBAPIError as error:
            if not error.connection_invalidated:
                raise
            # Before the stamp there was no commit.
            if attempt.time_ns == 0 or not self._was_committed(attempt, error):
                raise self._database.is_not_written(error) from error
        return Appended(0, attempt.id, attempt.first, attempt.first + len(payloads) - 1)

    def _try_append(self, topic: str, payloads: Sequence[bytes], heads: Heads, attempt: Attempt) -> None:
        with self._database.transaction() as connection:
            self._append_in(connection, topic, payloads, heads, attempt)

    def _append_in(
        self, connection: Connection, topic: str, payloads: Sequence[bytes], heads: Heads, attempt: Attempt
    ) -> None:
        """In a transaction that is open; it holds the stamp afterwards."""
        grow_stream(connection, self._shards, topic, payloads, heads, attempt)
        note_append(connection, attempt, self._database.stamp(connection))

    def _store_letter(self, request: StoreLetter) -> bool:
        """The copy and the progress behind the message, in one batch; whether it was not there before.

        The stamp is taken after the row of the dead-letter topic, as appends take it, and before the look at the
        progress: nobody commits in between.
        """
        letter, attempt = request.letter, Attempt(uuid.uuid4())
        try:
            with self._database.transaction() as connection:
                of_message = {"id": letter.stream.encode(), "offset": letter.offset}
                found = connection.execute(COPY, of_message).one_or_none()
                if found is None:
                    raise has_no_message(letter)
                head = add_headers(found.head, letter.as_headers())
                self._append_in(connection, request.topic, [found.payload], [head], attempt)
                self._pass_message(connection, letter, attempt.time_ns)
        except AlreadyPassed:
            return False
        return True

    def _pass_message(self, connection: Connection, letter: DeadLetter, time_ns: int) -> None:
        """Write the progress behind the message; raises `AlreadyPassed` where it is there."""
        progress, failing = records_of(letter)
        keys = [progress.encode(), failing.encode()]
        found = [(bytes(key).decode(), value, stamp) for key, value, stamp in connection.execute(FIND, {"keys": keys})]
        known = {key: self._codec.read(key, value, stamp).value for key, value, stamp in found}
        at = known.get(progress)
        if isinstance(at, int) and at > letter.offset:
            raise AlreadyPassed
        behind = zip(keys, pass_message(letter, known.get(failing)), strict=True)
        put = [(key, self._codec.encode(value)) for key, value in behind if value is not None]
        connection.execute(DELETE, {"keys": keys})
        names, values = ([one[place] for one in put] for place in (0, 1))
        connection.execute(PUT, {"keys": names, "values": values, "time_ns": time_ns})

    def _was_committed(self, attempt: Attempt, error: DBAPIError) -> bool:
        """Whether an append whose connection was lost was committed; raises the error where that stays open.

        The server may still be at it: it holds the stamp until it is done, so we wait for that.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with self._database.transaction() as connection:
                    connection.execute(WAIT)
                    place = {"stream": attempt.stream, "time_ns": attempt.time_ns}
                    return bool(connection.execute(MARKED, place).scalar_one_or_none() == attempt.mark)
            except DBAPIError:
                if time.monotonic() > deadline:
                    raise error from None
                time.sleep(0.1)

    def _end(self, stream: str) -> None:
        with self._database.transaction() as connection:
            if connection.execute(END, {"id": stream.encode()}).rowcount == 0:
                raise has_no_stream(stream)

    def _share_groups(self) -> PostgresGroupStore:
        return PostgresGroupStore.share(self._database, self._codec)

    def _rotate(self) -> int:
        """Those of earlier generations have ended before."""
        with self._database.transaction() as connection:
            connection.execute(ALONE)
            generation, _ = connection.execute(GENERATION).one()
            for ids in self._ids_of(generation):
                connection.execute(END_ALL, ids)
            return int(connection.execute(ROTATE).scalar_one())

    def _drop(self, oldest: int) -> int:
        with self._database.transaction() as connection:
            connection.execute(ALONE)
            _, before = connection.execute(GENERATION).one()
            oldest = int(connection.execute(DROP, {"oldest": oldest}).scalar_one())
            for generation in range(before, oldest):
                for ids in self._ids_of(generation):
                    gone = {"numbers": list(connection.execute(GONE, ids).scalars())}
                    for statement in DROPPED:
                        connection.execute(statement, gone)
            return oldest

    def _ids_of(self, generation: int) -> list[dict[str, bytes]]:
        return [{"low": low.encode(), "beyond": end.encode()} for low, end in ids_of(self._shards, generation)]


def grow_stream(
    connection: Connection, shards: int, topic: str, payloads: Sequence[bytes], heads: Heads, attempt: Attempt
) -> None:
    """Write the messages of an append; raises `ConfigurationError` for a stream that has ended."""
    connection.execute(SHARE)
    generation, _ = connection.execute(GENERATION).one()
    stream = attempt.id = stream_id(topic, shards, generation)
    grow = {"id": stream.encode(), "more": len(payloads)}
    grown = connection.execute(GROW, grow).one_or_none()
    if grown is None:
        created = {
            "id": stream.encode(),
            "topic": topic.encode(),
            "shard": shard_of(topic, shards),
            "generation": generation,
        }
        connection.execute(CREATE, created)
        grown = connection.execute(GROW, grow).one_or_none()
    if grown is None:
        raise has_ended(topic)
    attempt.stream, attempt.first = grown[0], grown[1] - len(payloads)
    base = (attempt.stream << OFFSET_BITS) + attempt.first
    if payloads:
        given = {"base": base, "payloads": list(payloads)}
        connection.execute(*((ADD_HEADED, given | {"heads": list(heads)}) if heads else (ADD, given)))


def note_append(connection: Connection, attempt: Attempt, time_ns: int) -> None:
    """Write when the append happened: nothing but the commit is left."""
    attempt.time_ns = time_ns
    note = {"stream": attempt.stream, "time_ns": time_ns, "first": attempt.first, "mark": attempt.mark}
    connection.execute(NOTE, note)
