"""PostgreSQL: sessions in a schema of their own.

A transaction that writes takes the row of `store` first and holds it until it is committed: transactions of all
processes have one order, and one whose connection was lost in its commit is over before the next one looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, Final, TypeVar

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
from statemachines.drivers.sql.failure import BUSY_S
from statemachines.drivers.sql.postgres import CLOCK, Database, Layout

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


class PostgresSql:
    """A transaction on a server."""

    def __init__(self, connection: Connection, now_ns: int) -> None:
        self._connection = connection
        self.now_ns = now_ns

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._connection.execute(_ours(statement), values)]

    def run(self, statement: str, **values: Any) -> int:
        return self._connection.execute(_ours(statement), values).rowcount

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            names = ManyRows.of(statement).names
            self._connection.execute(_ours(statement), [dict(zip(names, row, strict=True)) for row in rows])


class PostgresSessions:
    """The database at `url`; raises as `Database` does."""

    def __init__(self, url: str, busy_s: float = BUSY_S, clock: Clock | None = None, *, identity: bytes) -> None:
        def agree(connection: Connection) -> None:
            connection.execute(
                _ours("UPDATE @store SET identity = :identity WHERE identity IS NULL"), {"identity": identity}
            )

        self._database = Database(url, KIND, LAYOUT, busy_s, clock, agree)
        self.where = self._database.url

    @contextmanager
    def writing(self) -> Iterator[Sql]:
        """All or nothing, and alone."""
        with self._database.transaction() as connection:
            yield PostgresSql(connection, self._database.stamp(connection))

    @contextmanager
    def reading(self) -> Iterator[Sql]:
        """One state."""
        with self._database.snapshot() as connection:
            found = connection.execute(
                _ours(f"SELECT greatest(time_ns, {CLOCK}) FROM @store"), self._database.clock
            ).scalar_one()
            yield PostgresSql(connection, int(found))

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
