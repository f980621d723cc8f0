"""PostgreSQL: sessions in a schema of their own.

A transaction that writes takes its turn first, and has it until it is committed.  Most are alone: those of all
processes have one order, and one whose connection was lost in its commit is over before the next one looks.
Transactions that only store messages and rows, or what an owner has taken, share their turn: they wait for those that
are alone, and not for each other.  A sequence numbers both (PS-510).

BatchFunction: how the function of PostgreSQL is called that stores a batch in one statement (PS-512).
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain
from typing import Any, Final, TypeVar

import psycopg
from msgspec.structs import asdict, replace
from sqlalchemy import Connection, TextClause, text

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.persistent_sessions.sql import (
    FENCE,
    NAMES,
    TABLES,
    VERSION,
    Change,
    ManyRows,
    Sql,
    StoredBatch,
    StoredBatches,
    TimeWatch,
    TransactionTimes,
    TurnNeeded,
    cut_pieces,
    encode_text,
    name_columns,
)
from statemachines.drivers.shared_subscriptions.guest_streams import GuestStreams
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.failure import BUSY_S, StoreDamaged
from statemachines.drivers.sql.loop_connection import LoopConnection, Pipeline, Statement, open_pipeline
from statemachines.drivers.sql.postgres import CLOCK, PostgresDatabase, PostgresLayout
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.session_host_record import (
    StoreTime,
    time_of_read,
)

SCHEMA: Final = "gapless_sessions"


@cache
def on_postgres(statement: str) -> str:
    """The statement with our schema."""
    return name_columns(statement).replace("@", f"{SCHEMA}.")


TURN: Final = "turns"
"""The sequence that numbers transactions on PostgreSQL: its last value is the highest store time that was given."""


TURN_LOCK: Final = 0x67707332
"""The advisory lock by which transactions of PostgreSQL take their turn."""


FRESH_NS: Final = 200_000_000
"""So far a number that was taken in a shared turn may lie behind the clock: ages are exact to this."""


IS_EXPECTED: Final = {
    "its node and its routes": (
        f"SELECT nextval('@{TURN}'), coalesce(clock, CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)"
        " * 1000) - store.ahead_ns FROM @store AS store, @nodes AS nodes WHERE nodes.name = node AND nodes.life = life_"
        " AND nodes.batch = batch_ - 1 AND store.identity = identity_ AND store.stopped_ns = 0"
        " AND store.routes = coalesce(routes_, store.routes)"
    ),
    "its writer": (
        "SELECT count(*) FROM unnest(sessions_, epochs_, firsts) AS asked (session, epoch, first)"
        " WHERE (SELECT 1 FROM @sessions AS there WHERE there.session = asked.session) = 1"
        " AND (SELECT array_agg((found.epoch, found.last)) FROM @epochs AS found WHERE found.session = asked.session"
        " AND found.writer = node) = ARRAY[(asked.epoch, asked.first - 1)]"
    ),
    "its messages": "SELECT count(*) FROM @messages WHERE id = ANY (needed)",
}
"""What a batch expects to find -> how that is looked for, as the function names its arguments."""


IS_STORED: Final = (
    "INSERT INTO @messages (id, topic, payload, qos, time_ns, head) SELECT id, topic, payload, qos, number, head"
    " FROM unnest(ids, topics, payloads, qualities, heads) AS given (id, topic, payload, qos, head)"
    " ON CONFLICT DO NOTHING",
    "INSERT INTO @session_rows SELECT given.session, node, given.epoch, given.first + hand.place, 0, hand.message,"
    " hand.filter, hand.qos, 0, 0, 0, number, hand.until_ns, hand.more"
    " FROM unnest(sessions_, epochs_, firsts, kinds) AS given (session, epoch, first, kind)"
    " JOIN unnest(hand_kinds, places, of_messages, filters, hand_qualities, untils, mores)"
    " AS hand (kind, place, message, filter, qos, until_ns, more) ON hand.kind = given.kind",
    "INSERT INTO @epochs SELECT given.session, node, given.epoch, given.last"
    " FROM unnest(sessions_, epochs_, lasts) AS given (session, epoch, last)"
    " ON CONFLICT (session, writer, epoch) DO UPDATE SET last = excluded.last",
    "UPDATE @nodes SET batch = batch_ WHERE name = node",
)
"""How it is stored."""


ARGUMENTS: Final = (
    "clock NUMBER", "identity_ BYTES", "node BYTES", "life_ NUMBER", "batch_ NUMBER", "routes_ NUMBER",
    "ids BYTES[]", "topics BYTES[]", "payloads BYTES[]", "qualities NUMBER[]", "heads BYTES[]", "needed BYTES[]",
    "sessions_ BYTES[]", "epochs_ NUMBER[]", "firsts NUMBER[]", "lasts NUMBER[]", "kinds NUMBER[]",
    "hand_kinds NUMBER[]", "places NUMBER[]", "of_messages BYTES[]", "filters BYTES[]", "hand_qualities NUMBER[]",
    "untils NUMBER[]", "mores BYTES[]",
)  # fmt: skip


PLANNED_ONCE: Final = (
    "SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_nestloop = off SET jit = off"
)
"""Planning cost as much as storing.  A plan that is made while tables are empty serves when they are full, so what is
fast for few rows alone is forbidden; by that a plan counts as dear, and is not worth compiling for that (D-712)."""


_NODE, _WRITER, _MESSAGES = IS_EXPECTED.values()


BATCH_FUNCTION: Final = f"""
CREATE FUNCTION @store_batch({", ".join(ARGUMENTS)}) RETURNS bigint LANGUAGE plpgsql
{PLANNED_ONCE} AS $$
#variable_conflict use_column
DECLARE
    number bigint;
    shown_ns bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared({TURN_LOCK});
    {_NODE.replace(" FROM @store", " INTO number, shown_ns FROM @store")};
    IF number IS NULL OR shown_ns - number > {FRESH_NS}
        OR ({_WRITER}) <> cardinality(sessions_)
        OR ({_MESSAGES}) <> cardinality(needed)
    THEN
        RETURN NULL;
    END IF;
    {";".join(IS_STORED)};
    RETURN number;
END $$
"""


_TURNS: Final = (
    f"CREATE SEQUENCE @{TURN} MINVALUE 0",
    f"SELECT setval('@{TURN}', time_ns) FROM @store",
    # Of a file alone.
    "ALTER TABLE @store DROP COLUMN before_ns",
    "ALTER TABLE @store ADD COLUMN oldest_reader integer NOT NULL DEFAULT 1",
    BATCH_FUNCTION,
)


POSTGRES_STATEMENTS: Final = (
    f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
    *(on_postgres(one).replace("NUMBER", "bigint").replace("BYTES", "bytea") for one in (*TABLES, *_TURNS)),
)


BYTES: Final = 17
NUMBER: Final = 20
TYPES: Final = {"BYTES": BYTES, "NUMBER": NUMBER, "BYTES[]": 1001, "NUMBER[]": 1016}
"""As the server numbers them."""

STORE_BATCH: Final = Statement(
    b"store_batch",
    on_postgres(f"SELECT @store_batch({', '.join(f'${place}' for place in range(1, len(ARGUMENTS) + 1))})").encode(),
    tuple(TYPES[one.split()[1]] for one in ARGUMENTS),
)
CHECK_ROUTES: Final = Statement(
    b"check_routes",
    on_postgres(
        f"SELECT turn.last_value + 1 FROM @store AS store, @nodes AS nodes, @{TURN} AS turn WHERE nodes.name = $1"
        " AND nodes.life = $2 AND nodes.batch = $3 AND store.identity = $4"
        " AND store.routes = coalesce($5, store.routes)"
    ).encode(),
    (BYTES, NUMBER, NUMBER, BYTES, NUMBER),
)

_NULL: Final = struct.pack("!i", -1)
_HEAD: Final = struct.Struct("!iiIii")
_LENGTH: Final = struct.Struct("!i")
_NUMBER: Final = struct.Struct("!q")


def encode_number(value: int | None) -> bytes | None:
    """In the binary form of the server, as all of these."""
    return None if value is None else _NUMBER.pack(value)


def decode_number(value: bytes | None) -> int | None:
    """What the server has sent."""
    found: int | None = None if value is None else _NUMBER.unpack(value)[0]
    return found


def encode_bytes_array(values: Sequence[bytes | None]) -> bytes:
    """A head, then length and bytes of each."""
    parts = [_HEAD.pack(1, 1, BYTES, len(values), 1)]
    for one in values:
        parts += (_NULL,) if one is None else (_LENGTH.pack(len(one)), one)
    return b"".join(parts)


def encode_numbers(values: Sequence[int]) -> bytes:
    """The same of eight bytes each."""
    parts = [8] * (2 * len(values))
    parts[1::2] = values
    return _HEAD.pack(1, 0, NUMBER, len(values), 1) + struct.pack("!" + "iq" * len(values), *parts)


def encode_batch(batch: StoredBatch, clock: int | None) -> tuple[bytes | None, ...]:
    """The arguments of the function."""
    messages, ranges, hands = (list(zip(*found, strict=True)) for found in (batch.messages, batch.ranges, batch.hands))
    ids, topics, payloads, qualities, heads = messages or [()] * 5
    sessions, epochs, firsts, lasts, kinds = ranges or [()] * 5
    hand_kinds, places, of_messages, filters, hand_qualities, untils, mores = hands or [()] * 7
    return (
        encode_number(clock), batch.identity, batch.node, encode_number(batch.life), encode_number(batch.batch),
        encode_number(batch.routes),
        encode_bytes_array(ids), encode_bytes_array(topics), encode_bytes_array(payloads), encode_numbers(qualities),
        encode_bytes_array(heads), encode_bytes_array(batch.needed),
        encode_bytes_array(sessions), encode_numbers(epochs), encode_numbers(firsts), encode_numbers(lasts),
        encode_numbers(kinds),
        encode_numbers(hand_kinds), encode_numbers(places), encode_bytes_array(of_messages),
        encode_bytes_array(filters), encode_numbers(hand_qualities), encode_numbers(untils), encode_bytes_array(mores),
    )  # fmt: skip


def encode_check(batch: StoredBatch) -> tuple[bytes | None, ...]:
    """The values of the question whether its node, its routes and the batch before it are those of the database."""
    life, number, routes = map(encode_number, (batch.life, batch.batch, batch.routes))
    return batch.node, life, number, batch.identity, routes


T = TypeVar("T")


Settle = Callable[[Sql, tuple[Any, ...]], TransactionTimes]
"""What is made of the row with the time."""

KIND: Final = "session store"

EMPTY: Final = (
    "the tables of sessions are empty; were they put back from a copy, or made anew, while nodes ran? Start all of them"
    " again"
)


LAYOUT: Final = PostgresLayout(
    schema=SCHEMA,
    version=VERSION,
    lock=0x67707331,
    statements=POSTGRES_STATEMENTS,
    known_by=("store", "session_rows"),
    needed={KIND: {**dict.fromkeys(NAMES, ("SELECT", "INSERT", "UPDATE", "DELETE")), TURN: ("SELECT", "UPDATE")}},
    users=f"SELECT name FROM {SCHEMA}.nodes WHERE until_ns > {CLOCK} ORDER BY name",
    fence=on_postgres(FENCE),
)


@cache
def _ours(statement: str) -> TextClause:
    return text(on_postgres(statement))


@cache
def _for_driver(statement: str) -> str:
    """With values as the driver names them."""
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", on_postgres(statement).replace("%", "%%"))


ALONE: Final = f"SELECT pg_advisory_xact_lock({TURN_LOCK})"
SHARED: Final = f"SELECT pg_advisory_xact_lock_shared({TURN_LOCK})"
# Last of all: what was undone has moved nothing.
PASS_ON: Final = f"SELECT setval('@{TURN}', time_ns) FROM @store"
LAST: Final = f"SELECT last_value FROM @{TURN}"

ROWS_MAX: Final = 64
"""Rows in one statement."""


@cache
def _of_rows(statement: str, count: int) -> str:
    many = ManyRows.of(on_postgres(statement).replace("%", "%%"))
    row = f"({', '.join(['%s'] * len(many.names))})"
    return f"{many.head}{', '.join([row] * count)}{many.tail}"


class PostgresSql(Sql):
    """A transaction on a server, which shows its time when it is asked: it goes out with the first query.  `turn`: how
    it takes its turn (None: it needs none); `stamp`, and what is made of it."""

    def __init__(self, pipeline: Pipeline, turn: str | None, stamp: str, clock: dict[str, Any], settle: Settle) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._driver = driver = pipeline.driver
        if turn is not None:
            driver.execute(turn)  # of its own: what a statement sees is what there is when it begins
        self._stamp = driver.execute(_for_driver(stamp), clock)
        self._settle = settle
        self._found: TransactionTimes | None = None
        self._expected: deque[tuple[str, dict[str, Any], psycopg.Cursor[tuple[Any, ...]]]] = deque()

    @property
    def times(self) -> TransactionTimes:  # type: ignore[override]
        if self._found is None:
            row = self._stamp.fetchone()
            if row is None:
                raise StoreDamaged(EMPTY)
            self._found = self._settle(self, row)
        return self._found

    def expect(self, statement: str, **values: Any) -> None:
        values = encode_text(values)
        self._expected.append((statement, values, self._driver.execute(_for_driver(statement), values)))

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        values = encode_text(values)
        for place, (expected, given, cursor) in enumerate(self._expected):
            if expected == statement and given == values:
                del self._expected[place]
                return cursor.fetchall()
        return self._driver.execute(_for_driver(statement), values).fetchall()

    def run(self, statement: str, **values: Any) -> None:
        self._driver.execute(_for_driver(statement), encode_text(values))

    def count(self, statement: str, **values: Any) -> int:
        return self.counts([(statement, values)])[0]

    def counts(self, changes: Sequence[Change]) -> list[int]:
        found = [self._driver.execute(_for_driver(statement), encode_text(values)) for statement, values in changes]
        if found:
            self.all("SELECT 1")  # so that they have come
        return [one.rowcount for one in found]

    def streams(self) -> GuestStreams:
        """The streams of groups in this database; they are there."""
        from statemachines.drivers.shared_subscriptions.postgres.guest_streams import PostgresGuestStreams

        _ = self.now_ns
        self._pipeline.leave()  # theirs are SQLAlchemy's statements, each of which is waited for
        return PostgresGuestStreams(self._pipeline.connection, self._clock)

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        for piece in cut_pieces(rows, ROWS_MAX):
            self._driver.execute(_of_rows(statement, len(piece)), list(chain.from_iterable(piece)))


def check_power(connection: Connection) -> None:
    """The server flushes each commit.  Raises `ConfigurationError` for a setting by which it does not."""
    for name in ("fsync", "synchronous_commit"):
        value = connection.execute(text(f"SHOW {name}")).scalar_one()
        if value == "off":
            rule = f"the server has {name} = off, so a power failure loses what it has committed; switch it on"
            raise ConfigurationError("durability", Durability.POWER.value, rule)


class PostgresSessions:
    """The database at `url`; raises as `Database` does."""

    def __init__(
        self,
        url: str,
        busy_s: float = BUSY_S,
        clock: Clock | None = None,
        *,
        identity: bytes,
        durability: Durability = Durability.PROCESS,
    ) -> None:
        def agree(connection: Connection) -> None:
            if durability is Durability.POWER:
                check_power(connection)
            connection.execute(
                _ours("UPDATE @store SET identity = :identity WHERE identity IS NULL"), {"identity": identity}
            )

        self._database = PostgresDatabase(url, KIND, LAYOUT, busy_s, clock, agree)
        self._statements = LoopConnection(self._database, (STORE_BATCH, CHECK_ROUTES))
        self.where = self._database.url
        self._fresh_until_ns = 0
        """By the steady clock: until then a number that is taken in a shared turn is near the clock."""

    @property
    def batches(self) -> StoredBatches:
        """It has statements for them."""
        return self

    @contextmanager
    def writing(
        self, watch: TimeWatch | None = None, *, may_lose: bool = False, may_share: bool = False
    ) -> Iterator[Sql]:
        """All or nothing; alone, or beside others that share their turn."""
        if may_share and not self._is_fresh():
            raise TurnNeeded
        with self._database.transaction() as connection, open_pipeline(connection) as pipeline:
            clock = self._database.clock
            if may_share:
                sql = PostgresSql(
                    pipeline,
                    SHARED,
                    f"SELECT nextval('@{TURN}'), ahead_ns, stopped_ns, {CLOCK} FROM @store",
                    clock,
                    self._settle_shared,
                )
            else:
                sql = PostgresSql(
                    pipeline,
                    ALONE,
                    f"UPDATE @store SET time_ns = greatest(next.number, {CLOCK} - ahead_ns)"
                    f" FROM (SELECT nextval('@{TURN}') AS number) AS next"
                    f" RETURNING time_ns, next.number - 1, ahead_ns, stopped_ns, {CLOCK}",
                    clock,
                    partial(self._settle, watch),
                )
            yield sql
            _ = sql.now_ns  # whoever watches the clock sees every transaction
            if not may_share:
                sql.run(PASS_ON)

    async def store_batch(self, batch: StoredBatch) -> int | None:
        """Store it in a shared turn, in one statement: its number."""
        if self._database.is_pooled or not self._is_fresh():
            return None
        values = encode_batch(batch, self._database.clock["clock"])
        number = decode_number(await self._statements.ask(STORE_BATCH, values))
        if number is None:
            self._fresh_until_ns = 0
        return number

    async def check_routes(self, batch: StoredBatch) -> int | None:
        """Whether its node, its routes and the batch before it are those of the database."""
        if self._database.is_pooled:
            return None
        return decode_number(await self._statements.ask(CHECK_ROUTES, encode_check(batch)))

    def _is_fresh(self) -> bool:
        return steady_ns() < self._fresh_until_ns

    def _settle_shared(self, sql: Sql, row: tuple[Any, ...]) -> TransactionTimes:
        """It looks at the clock, and moves nothing."""
        number, ahead_ns, stopped_ns, clock_ns = row
        shown_ns = clock_ns - ahead_ns
        is_behind = bool(stopped_ns) or shown_ns - number > FRESH_NS
        if is_behind:
            self._fresh_until_ns = 0
            raise TurnNeeded
        self._fresh_until_ns = steady_ns() + FRESH_NS - max(0, shown_ns - number)
        now_ns = max(number, shown_ns)
        return TransactionTimes(number, now_ns, 0, now_ns)

    def _settle(self, watch: TimeWatch | None, sql: Sql, row: tuple[Any, ...]) -> TransactionTimes:
        """Nothing more goes out, unless the clock has leapt, or has come back."""
        time_ns, before_ns, ahead_ns, stopped_ns, clock_ns = row
        found = stamped = StoreTime(time_ns, ahead_ns, stopped_ns)
        if watch is not None:
            found = watch.commit(replace(stamped, time_ns=before_ns), clock_ns)
        if (found.ahead_ns, found.stopped_ns) == (ahead_ns, stopped_ns):
            found = stamped
        else:
            sql.run(
                "UPDATE @store SET time_ns = :time_ns, ahead_ns = :ahead_ns, stopped_ns = :stopped_ns", **asdict(found)
            )
        self._fresh_until_ns = (steady_ns() + FRESH_NS) * (not found.stopped_ns)
        return TransactionTimes(found.time_ns, found.age_limit_ns(found.time_ns), found.time_ns, found.time_ns)

    @contextmanager
    def reading(self, watch: TimeWatch | None = None, *, is_complete: bool = False) -> Iterator[Sql]:
        """One state."""
        last_ns = self._await_turns() if is_complete else 0

        def settle(sql: Sql, row: tuple[Any, ...]) -> TransactionTimes:
            *known, clock_ns = row
            found = StoreTime(*known)
            now_ns = time_of_read(found, clock_ns, None) if watch is None else watch.read(found, clock_ns)
            return TransactionTimes(now_ns, found.age_limit_ns(now_ns), max(last_ns, found.time_ns), now_ns)

        with self._database.snapshot() as connection, open_pipeline(connection) as pipeline:
            sql = PostgresSql(
                pipeline,
                None,
                f"SELECT time_ns, ahead_ns, stopped_ns, {CLOCK} FROM @store",
                self._database.clock,
                settle,
            )
            yield sql
            _ = sql.now_ns  # whoever watches the clock sees every transaction

    def _await_turns(self) -> int:
        """The last number that was taken, when every transaction that has taken one is over."""
        with self._database.transaction() as connection, open_pipeline(connection) as pipeline:
            pipeline.driver.execute(ALONE)
            found = pipeline.driver.execute(_for_driver(LAST)).fetchone()
            assert found is not None
            return int(found[0])

    def count_changes(self) -> int | None:
        """A server does not."""
        return None

    def last_commit_ns(self) -> int:
        """The last number that was taken."""
        with self._database.single() as connection:
            return int(connection.execute(_ours(LAST)).scalar_one())

    async def run(self, work: Callable[[], T], *, is_short: bool = False, is_read: bool = False) -> T:
        """`work()` in the thread."""
        return await self._database.run(work)

    async def close(self) -> None:
        """No more requests."""
        self._statements.close()
        await self._database.close()
