"""PostgreSQL: sessions in a schema of their own.

A transaction that writes takes the row of `store` first and holds it until it is committed: transactions of all
processes have one order, and one whose connection was lost in its commit is over before the next one looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import asdict, replace
from sqlalchemy import Connection, TextClause, text

from statemachines.drivers.clock import Clock
from statemachines.drivers.persistent_sessions.sql import ManyRows, Sql
from statemachines.drivers.persistent_sessions.tables import (
    NAMES,
    POSTGRES_STATEMENTS,
    POSTGRES_UPGRADES,
    SCHEMA,
    VERSION,
    on_postgres,
)
from statemachines.drivers.persistent_sessions.time_watch import TimeWatch
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.failure import BUSY_S
from statemachines.drivers.sql.pipeline import Pipeline, open_pipeline
from statemachines.drivers.sql.postgres import CLOCK, Database, Layout
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.store_time import StoreTime, time_of_read

if TYPE_CHECKING:
    from statemachines.drivers.shared_subscriptions.guest_streams import GuestStreams

T = TypeVar("T")


class Found(NamedTuple):
    """The time of a transaction, up to when ages count, and the time of the last commit that it sees."""

    now_ns: int
    aged_ns: int
    seen_ns: int


Settle = Callable[[Sql, tuple[Any, ...]], Found]
"""What is made of the row with the time."""

KIND: Final = "session store"


def _upgrade(statements: tuple[str, ...], connection: Connection) -> tuple[str, ...]:
    for statement in statements:
        connection.execute(text(statement))
    return ()


LAYOUT: Final = Layout(
    schema=SCHEMA,
    version=VERSION,
    lock=0x67707331,
    statements=POSTGRES_STATEMENTS,
    known_by=("store", "session_rows"),
    needed={KIND: dict.fromkeys(NAMES, ("SELECT", "INSERT", "UPDATE", "DELETE"))},
    upgrades={version: partial(_upgrade, statements) for version, statements in POSTGRES_UPGRADES.items()},
)


@cache
def _ours(statement: str) -> TextClause:
    return text(on_postgres(statement))


@cache
def _for_driver(statement: str) -> str:
    """With values as the driver names them."""
    return re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", on_postgres(statement).replace("%", "%%"))


STAMP: Final = (
    f"UPDATE @store SET before_ns = time_ns, time_ns = greatest(time_ns + 1, {CLOCK} - ahead_ns)"
    f" RETURNING time_ns, before_ns, ahead_ns, stopped_ns, {CLOCK}"
)
CORRECT: Final = "UPDATE @store SET time_ns = :time_ns, ahead_ns = :ahead_ns, stopped_ns = :stopped_ns"
TIME: Final = f"SELECT time_ns, ahead_ns, stopped_ns, {CLOCK} FROM @store"


class PostgresSql:
    """A transaction on a server, which shows its time when it is asked: it goes out with the first query.  `stamp`, and
    what is made of it."""

    def __init__(self, pipeline: Pipeline, stamp: str, clock: dict[str, Any], settle: Settle) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._driver = driver = pipeline.driver
        self._stamp = driver.execute(_for_driver(stamp), clock)
        self._settle = settle
        self._found: Found | None = None

    @property
    def now_ns(self) -> int:
        return self._time.now_ns

    @property
    def seen_ns(self) -> int:
        return self._time.seen_ns

    @property
    def aged_ns(self) -> int:
        return self._time.aged_ns

    @property
    def _time(self) -> Found:
        if self._found is None:
            row = self._stamp.fetchone()
            assert row is not None
            self._found = self._settle(self, row)
        return self._found

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return self._driver.execute(_for_driver(statement), values).fetchall()

    def run(self, statement: str, **values: Any) -> None:
        self._driver.execute(_for_driver(statement), values)

    def count(self, statement: str, **values: Any) -> int:
        found = self._driver.execute(_for_driver(statement), values)
        self.all("SELECT 1")  # so that it has come
        return found.rowcount

    def streams(self) -> GuestStreams:
        """The streams of groups in this database; they are there."""
        from statemachines.drivers.shared_subscriptions.postgres.guest_streams import PostgresGuestStreams

        _ = self.now_ns
        self._pipeline.leave()  # theirs are SQLAlchemy's statements, each of which is waited for
        return PostgresGuestStreams(self._pipeline.connection, self._clock)

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            names = ManyRows.of(statement).names
            values = [dict(zip(names, row, strict=True)) for row in rows]
            self._driver.cursor().executemany(_for_driver(statement), values)


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

        self._database = Database(url, KIND, LAYOUT, busy_s, clock, agree)
        self.where = self._database.url

    @contextmanager
    def writing(self, watch: TimeWatch | None = None, *, may_lose: bool = False) -> Iterator[Sql]:
        """All or nothing, and alone."""

        def settle(sql: Sql, row: tuple[Any, ...]) -> Found:
            """Nothing more goes out, unless the clock has leapt, or has come back."""
            time_ns, before_ns, ahead_ns, stopped_ns, clock_ns = row
            found = stamped = StoreTime(time_ns, ahead_ns, stopped_ns)
            if watch is not None:
                found = watch.commit(replace(stamped, time_ns=before_ns), clock_ns)
            if (found.ahead_ns, found.stopped_ns) == (ahead_ns, stopped_ns):
                found = stamped
            else:
                sql.run(CORRECT, **asdict(found))
            return Found(found.time_ns, found.age_limit_ns(found.time_ns), found.time_ns)

        with self._database.transaction() as connection, open_pipeline(connection) as pipeline:
            sql = PostgresSql(pipeline, STAMP, self._database.clock, settle)
            yield sql
            _ = sql.now_ns  # whoever watches the clock sees every transaction

    @contextmanager
    def reading(self, watch: TimeWatch | None = None) -> Iterator[Sql]:
        """One state."""

        def settle(sql: Sql, row: tuple[Any, ...]) -> Found:
            *known, clock_ns = row
            found = StoreTime(*known)
            now_ns = time_of_read(found, clock_ns, None) if watch is None else watch.read(found, clock_ns)
            return Found(now_ns, found.age_limit_ns(now_ns), found.time_ns)

        with self._database.snapshot() as connection, open_pipeline(connection) as pipeline:
            sql = PostgresSql(pipeline, TIME, self._database.clock, settle)
            yield sql
            _ = sql.now_ns  # whoever watches the clock sees every transaction

    def last_commit_ns(self) -> int:
        """When something was committed last."""
        with self._database.single() as connection:
            return int(connection.execute(_ours("SELECT time_ns FROM @store")).scalar_one())

    async def run(self, work: Callable[[], T]) -> T:
        """`work()` in the thread."""
        return await self._database.run(work)

    async def close(self) -> None:
        """No more requests."""
        await self._database.close()
