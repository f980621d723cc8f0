"""PostgreSQL: sessions in a schema of their own.

A transaction that writes takes the row of `store` first and holds it until it is committed: transactions of all
processes have one order, and one whose connection was lost in its commit is over before the next one looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

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
from statemachines.drivers.sql.postgres import CLOCK, Database, Layout
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.store_time import StoreTime, time_of_read

if TYPE_CHECKING:
    from statemachines.drivers.shared_subscriptions.guest_streams import GuestStreams

T = TypeVar("T")

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


STAMP: Final = _ours(
    f"UPDATE @store SET before_ns = time_ns, time_ns = greatest(time_ns + 1, {CLOCK} - ahead_ns)"
    f" RETURNING time_ns, before_ns, ahead_ns, stopped_ns, {CLOCK}"
)
CORRECT: Final = _ours("UPDATE @store SET time_ns = :time_ns, ahead_ns = :ahead_ns, stopped_ns = :stopped_ns")
TIME: Final = _ours(f"SELECT time_ns, ahead_ns, stopped_ns, {CLOCK} FROM @store")


class PostgresSql:
    """A transaction on a server."""

    def __init__(self, connection: Connection, now_ns: int, aged_ns: int, clock: dict[str, Any]) -> None:
        self._connection = connection
        self._clock = clock
        self.now_ns = now_ns
        self.aged_ns = aged_ns

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(_ours(statement), values)]

    def run(self, statement: str, **values: Any) -> int:
        return self._connection.execute(_ours(statement), values).rowcount

    def streams(self) -> GuestStreams:
        """The streams of groups in this database; they are there."""
        from statemachines.drivers.shared_subscriptions.postgres.guest_streams import PostgresGuestStreams

        return PostgresGuestStreams(self._connection, self._clock)

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            names = ManyRows.of(statement).names
            self._connection.execute(_ours(statement), [dict(zip(names, row, strict=True)) for row in rows])


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
        with self._database.transaction() as connection:
            found = self._stamp(connection, watch)
            yield PostgresSql(connection, found.time_ns, found.age_limit_ns(found.time_ns), self._database.clock)

    def _stamp(self, connection: Connection, watch: TimeWatch | None) -> StoreTime:
        """One round trip, unless the clock has leapt, or has come back."""
        time_ns, before_ns, ahead_ns, stopped_ns, clock_ns = connection.execute(STAMP, self._database.clock).one()
        stamped = StoreTime(time_ns, ahead_ns, stopped_ns)
        found = stamped if watch is None else watch.commit(replace(stamped, time_ns=before_ns), clock_ns)
        if (found.ahead_ns, found.stopped_ns) == (ahead_ns, stopped_ns):
            return stamped
        connection.execute(CORRECT, asdict(found))
        return found

    @contextmanager
    def reading(self, watch: TimeWatch | None = None) -> Iterator[Sql]:
        """One state."""
        with self._database.snapshot() as connection:
            *known, clock_ns = connection.execute(TIME, self._database.clock).one()
            found = StoreTime(*known)
            now_ns = time_of_read(found, clock_ns, None) if watch is None else watch.read(found, clock_ns)
            yield PostgresSql(connection, now_ns, found.age_limit_ns(now_ns), self._database.clock)

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
