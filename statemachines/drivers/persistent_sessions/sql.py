"""Sql: a transaction on whatever database is behind it, in the words that SQLite and PostgreSQL have in common.

Tables: what a database of sessions holds, for SQLite and PostgreSQL alike (page: "Parties and tables").

All text is kept as the bytes of its UTF-8: it is compared and sorted alike everywhere, whatever encoding and collation
a database has.  In a statement `@` stands for where the tables are.  `until_ns`: from when on a message is over (0: it
does not expire).

TimeWatch: one process's look at the time of its store, by its steady clock; it says when ages stand still.
"""

from __future__ import annotations

import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.shared_subscriptions.guest_streams import GuestStreams
from statemachines.drivers.sql import sqlite
from statemachines.kernel import Request
from statemachines.persistent_sessions.session_host_record import (
    ClockState,
    Steady,
    StoreTime,
    expect_first_time,
    find_new_lead,
    next_time,
    time_of_read,
)

T = TypeVar("T")
A = TypeVar("A")

Change = tuple[str, dict[str, Any]]
"""A statement that changes rows, and its values."""

Text = str | bytes
"""In tables it is the bytes of its UTF-8."""


def encode_text(values: dict[str, Any]) -> dict[str, Any]:
    """Values of a statement, as tables have them."""
    return {name: value.encode() if type(value) is str else value for name, value in values.items()}


PIECE: Final = 200
"""So many keys go into one statement."""


class BatchMessage(NamedTuple):
    """A row of `messages`, but for its time."""

    id: bytes
    topic: bytes
    payload: bytes
    qos: int
    head: bytes | None


class BatchRange(NamedTuple):
    """Rows `first` to `last` of the node's writer."""

    session: bytes
    epoch: int
    first: int
    last: int
    kind: int = 0
    """Which hands are its rows."""


class BatchHand(NamedTuple):
    """A row of each range of a `kind`, so far behind the first: what all of these have in common."""

    kind: int
    place: int
    message: bytes
    filter: bytes
    qos: int
    until_ns: int
    more: bytes


class StoredBatch(NamedTuple):
    """`routes`: the version of those by which messages were matched (None: none was); `needed`: messages that are
    there.  The database multiplies ranges by hands (PS-540)."""

    node: bytes
    life: int
    batch: int
    identity: bytes
    routes: int | None
    messages: list[BatchMessage]
    needed: list[bytes]
    ranges: list[BatchRange]
    hands: list[BatchHand]


class TransactionTimes(NamedTuple):
    """Times of a transaction."""

    now_ns: int
    """Its own: greater than that of every commit before it where it writes."""
    aged_ns: int
    """Up to when ages count."""
    seen_ns: int
    """Of the last commit that it sees, its own included."""
    clock_ns: int
    """What lasts from now on begins then."""


class Sql(ABC):
    """One transaction.  Statements name their values `:name` and their tables `@table`."""

    times: TransactionTimes

    @property
    def now_ns(self) -> int:
        return self.times.now_ns

    @property
    def seen_ns(self) -> int:
        return self.times.seen_ns

    @property
    def aged_ns(self) -> int:
        return self.times.aged_ns

    @property
    def clock_ns(self) -> int:
        return self.times.clock_ns

    @abstractmethod
    def expect(self, statement: str, **values: Any) -> None:
        """This query comes, and nothing that this transaction writes before changes its rows: it may go out now."""

    @abstractmethod
    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""

    @abstractmethod
    def run(self, statement: str, **values: Any) -> None:
        """Have it carried out before the next query, or the commit, at the latest."""

    @abstractmethod
    def count(self, statement: str, **values: Any) -> int:
        """Have it carried out: how many rows it changed."""

    @abstractmethod
    def counts(self, changes: Sequence[Change]) -> list[int]:
        """Have them carried out, one behind the other: how many rows each changed."""

    @abstractmethod
    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """An `INSERT ... VALUES (:name, ...)` for each row: its values in the order in which the statement names
        them."""

    @abstractmethod
    def streams(self) -> GuestStreams:
        """The streams of groups in this database; they are there."""


class StoredBatches(Protocol):
    """What a database does with a batch in one statement, in a turn that others share."""

    async def store_batch(self, batch: StoredBatch) -> int | None:
        """Store it in a shared turn, in one statement: its number; None: nothing is written, since something is not as
        the batch expects, or there is no such statement."""

    async def check_routes(self, batch: StoredBatch) -> int | None:
        """Whether the node, its routes and its last batch are as `batch` says: a number above that of every row that is
        acknowledged; None: they are not.  It writes nothing."""


class SessionDatabase(Protocol):
    """A database, opened; its requests are carried out in a thread of its own."""

    where: str

    @property
    def batches(self) -> StoredBatches | None:
        """What stores a batch in a turn that others share (None: each transaction is alone)."""

    def writing(
        self, watch: TimeWatch | None = None, *, may_lose: bool = False, may_share: bool = False
    ) -> AbstractContextManager[Sql]:
        """All or nothing, and alone: nobody else's transaction is committed in between.  `watch`: who compares its
        time with a steady clock (None: nobody); `may_lose`: a later one is flushed before anybody is told;
        `may_share`: others that may share their turn are committed in between.

        Raises `TurnNeeded` where it may not share its turn, whatever it does; nothing is written.
        """

    def reading(self, watch: TimeWatch | None = None, *, is_complete: bool = False) -> AbstractContextManager[Sql]:
        """Several reads of one state that is committed; `is_complete`: with everything that was stored before they
        were asked for."""

    def count_changes(self) -> int | None:
        """A number that is another one when another connection has committed something; None: nobody can say."""

    def last_commit_ns(self) -> int:
        """When something was committed last: a look that costs little."""

    async def run(self, work: Callable[[], T], *, is_short: bool = False, is_read: bool = False) -> T:
        """`work()` in the thread, or at once if it `is_short`; `is_read`: it writes nothing.  Raises
        `StoreUnavailable`, `OutcomeOpen` or `StoreDamaged`."""

    async def close(self) -> None:
        """No more requests."""


class StoreRequest(msgspec.Struct, Generic[A], frozen=True):
    """What a node, or an operator, asks of a store beside the requests of machines; answered with an `A`."""

    def answer(self, sql: Sql, routes: Any) -> A:
        """Carry it out in this transaction; `routes`: as the store knows them (`HostRequests`)."""
        raise NotImplementedError


Asked = Request | StoreRequest[Any]
"""Of a machine, or of a node or an operator."""


class TurnNeeded(Exception):
    """A transaction has to be alone."""


def read_one(sql: Sql, statement: str, **values: Any) -> Any:
    """The row of a query that has one at most (None: it has none)."""
    found = sql.all(statement, **values)
    return found[0] if found else None


def read_number(sql: Sql, statement: str, **values: Any) -> int:
    """The number of a query that has one row with one number."""
    ((number,),) = sql.all(statement, **values)
    return int(number)


def has_row(query: str) -> str:
    """A condition: `query`, a SELECT that names the row around it, finds something.

    It is looked up by a key for each row around it.  An EXISTS is a join for PostgreSQL, which may read the whole table
    for one page.
    """
    return f"(({query} LIMIT 1) IS NOT NULL)"


class ManyRows(NamedTuple):
    """An `INSERT ... VALUES (:name, ...) ...`, taken apart: what stands before its values, their names, and what stands
    behind them."""

    head: str
    names: tuple[str, ...]
    tail: str

    @classmethod
    @cache
    def of(cls, statement: str) -> ManyRows:
        head, separator, rest = statement.partition("VALUES (")
        values, _, tail = rest.partition(")")
        assert separator, f"not an INSERT of values: {statement}"
        return cls(f"{head}VALUES ", tuple(one.strip().removeprefix(":") for one in values.split(",")), tail)


def cut_pieces(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """64, 32, 16, ... of them, so that there are few statements to prepare."""
    begin = 0
    while begin < len(values):
        count = 1 << (min(most, len(values) - begin).bit_length() - 1)
        yield values[begin : begin + count]
        begin += count


def all_of(sql: Sql, statement: str, keys: Sequence[Any], **values: Any) -> list[tuple[Any, ...]]:
    """The rows of a query in which `{keys}` stands for many, piece by piece."""
    rows: list[tuple[Any, ...]] = []
    for query, names in _pieces(statement, keys):
        rows += sql.all(query, **names, **values)
    return rows


def expect_all_of(sql: Sql, statement: str, keys: Sequence[Any], **values: Any) -> None:
    """`Sql.expect` of the same."""
    for query, names in _pieces(statement, keys):
        sql.expect(query, **names, **values)


def _pieces(statement: str, keys: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for begin in range(0, len(keys), PIECE):
        names = {f"key{place}": key for place, key in enumerate(keys[begin : begin + PIECE])}
        yield statement.format(keys=", ".join([f":{name}" for name in names])), names


VERSION: Final = 1

UNDELIVERED: Final = 0
DELIVERED: Final = 1
MARKER: Final = 2
ABANDONED: Final = 3
"""What a row of a session says (`session_rows.tag`)."""

END_MS: Final = "seen_ns / 1000000 + expiry_ms"
IS_LEFT: Final = "length(connection) = 0 AND expiry_ms >= 0"
IS_HELD: Final = "length(connection) > 0 AND expiry_ms >= 0"
"""When a session is over that nobody has in hand, in ms; which sessions those are; and those that somebody has in hand,
and that may be over if they are not heard of."""

TABLES: Final = (
    # One row.  `time_ns`: of the last commit; `identity`: of this store and no other; `routes`: how often routes have
    # changed, `forgotten`: up to which of these changes those that removed something are not kept any more; `tokens`:
    # the highest that was given; `sessions`: how many there are; `before_ns`: time of the commit before; `ahead_ns`,
    # `stopped_ns`: as in `StoreTime`.
    "CREATE TABLE @store (one NUMBER PRIMARY KEY CHECK (one = 1), version NUMBER NOT NULL, time_ns NUMBER NOT NULL,"
    " identity BYTES, routes NUMBER NOT NULL, forgotten NUMBER NOT NULL, tokens NUMBER NOT NULL,"
    " sessions NUMBER NOT NULL DEFAULT 0, before_ns NUMBER NOT NULL DEFAULT 0, ahead_ns NUMBER NOT NULL DEFAULT 0,"
    " stopped_ns NUMBER NOT NULL DEFAULT 0, retained NUMBER NOT NULL DEFAULT 0,"
    " retained_bytes NUMBER NOT NULL DEFAULT 0)",
    f"INSERT INTO @store VALUES (1, {VERSION}, 0, NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
    # A process that serves sessions: its `life`, until when it is thought to live, and the number of the last batch of
    # requests that it has committed.
    "CREATE TABLE @nodes (name BYTES PRIMARY KEY, life NUMBER NOT NULL, until_ns NUMBER NOT NULL,"
    " batch NUMBER NOT NULL)",
    # A client id: its session, its highest token, and which connection has it locked ("": none) until when; who locked
    # it last, of those with this id (NULL, "": unknown), in which attempt.
    "CREATE TABLE @clients (client BYTES PRIMARY KEY, session BYTES, token NUMBER NOT NULL, holder BYTES NOT NULL,"
    " until_ns NUMBER NOT NULL, instance BYTES, attempt NUMBER NOT NULL DEFAULT 0)",
    # `owner`: who is live ("": nobody); `connection`: in whose hands it is ("": nobody's), which was said last at
    # `seen_ns`; `expiry_ms` (-1: never) counts from then.  `revision` counts commits of the state, `places` what ever
    # was in flight.
    "CREATE TABLE @sessions (session BYTES PRIMARY KEY, client BYTES NOT NULL, token NUMBER NOT NULL,"
    " owner BYTES NOT NULL, connection BYTES NOT NULL, expiry_ms NUMBER NOT NULL, seen_ns NUMBER NOT NULL,"
    " revision NUMBER NOT NULL, places NUMBER NOT NULL)",
    # The state: of each writer the last that was taken; what is in flight; what is queued behind it.
    "CREATE TABLE @taken (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL, number NUMBER NOT NULL,"
    " PRIMARY KEY (session, writer))",
    "CREATE TABLE @packets (session BYTES NOT NULL, packet NUMBER NOT NULL, place NUMBER NOT NULL,"
    " status BYTES NOT NULL, number NUMBER NOT NULL, message BYTES NOT NULL, filter BYTES NOT NULL,"
    " qos NUMBER NOT NULL, until_ns NUMBER NOT NULL DEFAULT 0, PRIMARY KEY (session, packet))",
    "CREATE TABLE @queued (session BYTES NOT NULL, place NUMBER NOT NULL, number NUMBER NOT NULL,"
    " message BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL, until_ns NUMBER NOT NULL DEFAULT 0,"
    " PRIMARY KEY (session, place))",
    # `version`: of the store's routes when this one changed; one that is `gone` is kept for those who know it still;
    # `options`: of a front, as it numbers them.
    "CREATE TABLE @routes (session BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL, version NUMBER NOT NULL,"
    " gone NUMBER NOT NULL, options NUMBER NOT NULL DEFAULT 0, PRIMARY KEY (session, filter))",
    "CREATE UNIQUE INDEX routes_by_version ON @routes (version)",
    # Of a writer and session: its epochs, of which the greatest is its own, and the number of the last row under each.
    "CREATE TABLE @epochs (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL, last NUMBER NOT NULL,"
    " PRIMARY KEY (session, writer, epoch))",
    # A marker has the number 0, and `token`, `n` and `k` of its own.  `more`: as of `Queued`, in MessagePack (NULL, or
    # empty: no more).
    "CREATE TABLE @session_rows (session BYTES NOT NULL, writer BYTES NOT NULL, epoch NUMBER NOT NULL,"
    " number NUMBER NOT NULL, tag NUMBER NOT NULL, message BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL,"
    " token NUMBER NOT NULL, n NUMBER NOT NULL, k NUMBER NOT NULL, time_ns NUMBER NOT NULL,"
    " until_ns NUMBER NOT NULL DEFAULT 0, more BYTES, PRIMARY KEY (session, writer, epoch, number, tag))",
    # Who refers to a message, for the collector.
    f"CREATE INDEX rows_by_message ON @session_rows (message) WHERE tag = {UNDELIVERED}",
    "CREATE INDEX packets_by_message ON @packets (message)",
    "CREATE INDEX queued_by_message ON @queued (message)",
    # `head`: headers, key and timestamp (`message_head`); NULL: the message has none.
    "CREATE TABLE @messages (id BYTES PRIMARY KEY, topic BYTES NOT NULL, payload BYTES NOT NULL, qos NUMBER NOT NULL,"
    " time_ns NUMBER NOT NULL, head BYTES)",
    "CREATE INDEX messages_by_time ON @messages (time_ns, id)",
    # The last message of a topic that was published to be retained; the columns of `store` count them and their bytes.
    "CREATE TABLE @retained (topic BYTES PRIMARY KEY, payload BYTES NOT NULL, qos NUMBER NOT NULL,"
    " until_ns NUMBER NOT NULL, head BYTES)",
    # Few rows among many: without an index of their own a look for them reads all the others.
    f"CREATE INDEX markers ON @session_rows (session, writer, epoch, token, n) WHERE tag = {MARKER}",
    f"CREATE INDEX marks ON @session_rows (session, writer, epoch, number) WHERE tag = {DELIVERED}",
    "CREATE INDEX gone_routes ON @routes (version) WHERE gone = 1",
    "CREATE INDEX nodes_by_end ON @nodes (until_ns)",
    "CREATE INDEX retained_by_end ON @retained (until_ns) WHERE until_ns > 0",
    f"CREATE INDEX sessions_left ON @sessions (({END_MS})) WHERE {IS_LEFT}",
    f"CREATE INDEX sessions_held ON @sessions (client) WHERE {IS_HELD}",
    "CREATE INDEX clients_alone ON @clients (client) WHERE session IS NULL",
    # A packet id of QoS 2 that the client of a session has published and not released; its message.
    "CREATE TABLE @received (session BYTES NOT NULL, packet NUMBER NOT NULL, message BYTES NOT NULL,"
    " PRIMARY KEY (session, packet))",
    # A row that is still to be stored, of a message that comes to a subscription once; since when.  `topic` of a
    # retained message, for which a newer one takes the place of the row.
    "CREATE TABLE @fan_out (message BYTES NOT NULL, session BYTES NOT NULL, filter BYTES NOT NULL, qos NUMBER NOT NULL,"
    " until_ns NUMBER NOT NULL, time_ns NUMBER NOT NULL, topic BYTES, PRIMARY KEY (message, session, filter))",
    "CREATE INDEX fan_out_by_time ON @fan_out (time_ns, message)",
    "CREATE INDEX fan_out_by_session ON @fan_out (session)",
    "CREATE INDEX fan_out_by_topic ON @fan_out (topic)",
    # The will of a connection, at this `node` in this `life`; `due_ns`: when it is sent (0: its connection may live),
    # `delay_ms` after the connection ended, or at the end of its session; `identity`: of its client, for permissions.
    "CREATE TABLE @wills (connection BYTES PRIMARY KEY, session BYTES NOT NULL, client BYTES NOT NULL,"
    " identity BYTES NOT NULL, topic BYTES NOT NULL, payload BYTES NOT NULL, qos NUMBER NOT NULL,"
    " retain NUMBER NOT NULL, expiry_ms NUMBER, head BYTES, delay_ms NUMBER NOT NULL, due_ns NUMBER NOT NULL,"
    " node BYTES NOT NULL, life NUMBER NOT NULL)",
    "CREATE INDEX wills_by_session ON @wills (session)",
    "CREATE INDEX wills_by_due ON @wills (due_ns, node, life)",
    # Of groups whose streams are in the same database.
    # Groups that only SUBSCRIBE of a front declared; `idle_ns`: since when no session subscribes them (0: one does,
    # -1: they are being destroyed).
    "CREATE TABLE @declared_groups (filter BYTES PRIMARY KEY, idle_ns NUMBER NOT NULL)",
    # Of a group and a stream: the offset behind the last message that was stored for a session.
    "CREATE TABLE @carried (filter BYTES NOT NULL, stream BYTES NOT NULL, next NUMBER NOT NULL,"
    " PRIMARY KEY (filter, stream))",
    # Messages of a group that sessions which have ended never acknowledged.
    "CREATE TABLE @returned (filter BYTES NOT NULL, time_ns NUMBER NOT NULL, part NUMBER NOT NULL,"
    " message BYTES NOT NULL, topic BYTES NOT NULL, payload BYTES NOT NULL, head BYTES,"
    " PRIMARY KEY (filter, time_ns, part))",
    "CREATE UNIQUE INDEX returned_by_message ON @returned (message)",
)

NAMES: Final = tuple(one.split("@")[1].split(" ")[0] for one in TABLES if one.startswith("CREATE TABLE"))


FENCE: Final = "UPDATE @nodes SET life = life + 1"
"""A node that stood still while the store was upgraded finds that it was superseded."""

_INSERT: Final = re.compile(r"INSERT INTO @(\w+) (?=VALUES|SELECT)")


def _list_columns(table: str) -> tuple[str, ...]:
    """The names in a CREATE TABLE."""
    parts = re.sub(r"\([^()]*\)", "", table.partition(" (")[2][:-1]).split(", ")
    return tuple(one.split(" ")[0] for one in parts if not one.startswith("PRIMARY KEY"))


COLUMNS: Final = dict(zip(NAMES, (_list_columns(one) for one in TABLES if one.startswith("CREATE TABLE")), strict=True))


@cache
def name_columns(statement: str) -> str:
    """The statement, which says which columns it inserts: tables of a newer version may have more (PS-542)."""
    return _INSERT.sub(lambda found: f"{found[0]}({', '.join(COLUMNS[found[1]])}) ", statement)


def _on_sqlite(statement: str) -> str:
    statement = statement.replace("@", "").replace("NUMBER", "INTEGER").replace("BYTES", "BLOB")
    clustered = statement.startswith(("CREATE TABLE session_rows", "CREATE TABLE queued", "CREATE TABLE packets"))
    return f"{statement} WITHOUT ROWID" if clustered else statement


SQLITE: Final = sqlite.SqliteLayout(
    title="persistent sessions",
    application=0x67707331,
    version=VERSION,
    statements=tuple(_on_sqlite(one) for one in TABLES),
    users="SELECT name FROM nodes WHERE until_ns > ? ORDER BY name",
    fence=FENCE.replace("@", ""),
)
"""The application_id is "gps1"."""


logger = logging.getLogger("gapless")

SAY_AGAIN_NS: Final = 60_000_000_000
"""While ages stand still it is said again after that."""

STOPPED: Final = (
    "%s: its clock has been set ahead by %.0f s: nothing expires and nothing is deleted for its age, "
    "until the clock is set back, or you run `gapless sessions clock --accept --store ...` (no age counts what the "
    "clock has leapt over)"
)

UNUSED_NS: Final = 3_600_000_000_000
UNUSED: Final = (
    "%s: nobody has written to it for %.1f hours: that time counts in all ages, so what has expired meanwhile is "
    "deleted now; if the clock is wrong, stop all nodes and set it back"
)


class TimeWatch:
    """`where`: the store, for the log; `steady`: nanoseconds of a clock that nobody sets; `warn`: as a logger does;
    `boot`: of the machine, as long as that clock runs ("": unknown); `wall`: the clock of this machine."""

    def __init__(
        self,
        where: str,
        steady: Clock = steady_ns,
        warn: Callable[..., object] = logger.warning,
        boot: str = "",
        wall: Clock = time.time_ns,
    ) -> None:
        self.boot = boot
        self._wall = wall
        self._noted_ns: int | None = None
        self._is_new = True
        self._where = where
        self._steady = steady
        self._warn = warn
        self._known: Steady | None = None
        self._said_ns = 0
        self._is_stopped = False
        self._read: tuple[StoreTime, int, int | None, int] = (StoreTime(0), 0, None, 0)
        """Of the last read: what was known, what the clock showed, what was expected, and store time."""

    @property
    def is_new(self) -> bool:
        """It has not looked yet, and knows nothing of an earlier process."""
        return self._known is None

    def begin(self, lead_ns: int) -> None:
        """A process of the same boot has seen store time so far ahead of the steady clock."""
        self._known = Steady(lead_ns, self._steady())
        self._noted_ns = lead_ns

    def take_lead(self) -> tuple[int, ...]:
        """The lead that is to be noted for later processes of this boot; none where it is noted."""
        found = find_new_lead(self._known, self._noted_ns)
        if found and self.boot:
            self._noted_ns = found[0]
            return found
        return ()

    def commit(self, known: StoreTime, clock_ns: int) -> StoreTime:
        """The time of a commit that follows `known`, where the clock of the database shows `clock_ns`."""
        steady_ns = self._steady()
        expected_ns = self._expected_ns(known, clock_ns, steady_ns)
        if self._is_new:
            self._say_unused(known, clock_ns, expected_ns)
        found = next_time(known, clock_ns, expected_ns)
        self._look(found.time_ns, steady_ns)
        self._say(found, steady_ns)
        return found

    def read(self, known: StoreTime, clock_ns: int) -> int:
        """Store time for a read."""
        steady_ns = self._steady()
        expected_ns = self._expected_ns(known, clock_ns, steady_ns)
        if self._is_new:
            self._say_unused(known, clock_ns, expected_ns)
        now_ns = time_of_read(known, clock_ns, expected_ns)
        self._look(now_ns, steady_ns)
        self._read = (known, clock_ns, expected_ns, now_ns)
        return now_ns

    def describe_clock(self) -> ClockState:
        """The clock at the last read: a commit would find it so."""
        known, clock_ns, expected_ns, now_ns = self._read
        return ClockState(clock_ns, now_ns, next_time(known, clock_ns, expected_ns).stopped_ns)

    def _expected_ns(self, known: StoreTime, clock_ns: int, steady_ns: int) -> int | None:
        if self._known is None:
            return expect_first_time(known, clock_ns, self._wall())
        return self._known.expected_time_ns(steady_ns)

    def _look(self, time_ns: int, steady_ns: int) -> None:
        known = self._known
        self._known = Steady(time_ns - steady_ns, steady_ns) if known is None else known.look(time_ns, steady_ns)

    def _say_unused(self, known: StoreTime, clock_ns: int, expected_ns: int | None) -> None:
        """At the first look: unless the machine runs since, nobody can tell such a time from a clock that was set ahead
        meanwhile."""
        passed_ns = time_of_read(known, clock_ns, expected_ns) - known.time_ns
        self._is_new = False
        if known.time_ns and passed_ns > UNUSED_NS:
            self._warn(UNUSED, self._where, passed_ns / UNUSED_NS)

    def _say(self, found: StoreTime, steady_ns: int) -> None:
        was, self._is_stopped = self._is_stopped, bool(found.stopped_ns)
        if self._is_stopped and (not was or steady_ns - self._said_ns >= SAY_AGAIN_NS):
            self._said_ns = steady_ns
            self._warn(STOPPED, self._where, found.ahead_ns / 1e9)
        elif was and not self._is_stopped:
            self._warn("%s: ages count again", self._where)
