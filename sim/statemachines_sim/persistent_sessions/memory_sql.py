"""MemorySql: a transaction on a database in memory, which keeps what a run asks for most often as Python values.

That is the time of the store, its identity, the life and last batch of a node, and the tables of `LAYOUTS`. They come
to SQLite when a statement that is not in `memory_statements` asks for them, so what any statement finds is the same.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Self

from statemachines.drivers.persistent_sessions.host_requests import ROUTES
from statemachines.drivers.persistent_sessions.sql import ManyRows
from statemachines.drivers.persistent_sessions.sqlite import STAMP, TIME, SqliteSql
from statemachines.drivers.persistent_sessions.store import CHECK, WRITE_BATCH
from statemachines.drivers.persistent_sessions.time_watch import TimeWatch
from statemachines.persistent_sessions.store_time import StoreTime, next_time, time_of_read
from statemachines_sim.persistent_sessions.memory_statements import CHANGES, KEPT, LAYOUTS, PUTS, QUERIES
from statemachines_sim.persistent_sessions.memory_table import MemoryTable

READ_LIFE: Final = "SELECT life, batch FROM @nodes WHERE name = :name"

Life = tuple[int, int]
"""Life and last batch of a node."""


class StatementUse(NamedTuple):
    """What a statement reads or writes of that which is kept: the time of the store, batches of nodes, the versions of
    routes, and `tables`."""

    time: bool
    lives: bool
    routes: bool
    tables: tuple[str, ...]


@cache
def find_use(statement: str) -> StatementUse:
    """By its text."""
    words = set(re.findall(r"@(\w+)", statement))
    tables = tuple(layout.name for layout in LAYOUTS if layout.name in words)
    of_store = "store" in words
    return StatementUse(
        of_store and "_ns" in statement, "nodes" in words and "batch" in statement,
        of_store and ("routes" in statement or "forgotten" in statement), tables,
    )  # fmt: skip


class StoreBook:
    """What a database in memory knows of its tables `store` and `nodes`; `time` is None before it was read."""

    def __init__(self, connection: sqlite3.Connection, identity: bytes) -> None:
        self.connection = connection
        self.identity = identity
        self.time: StoreTime | None = None
        self.lives: dict[bytes, Life] = {}
        self.routes: list[tuple[Any, ...]] | None = None
        """What `ROUTES` finds."""
        self.tables = {layout.name: MemoryTable(layout, connection) for layout in LAYOUTS}
        self._stale = set(self.tables)
        self._is_time_new = False
        self._new_lives: set[bytes] = set()

    def read_time(self) -> StoreTime:
        """The time of the store."""
        if self.time is None:
            self.time = StoreTime(*self.connection.execute(TIME).fetchone())
        return self.time

    def write_time(self, time: StoreTime) -> None:
        """The time of a commit."""
        self.time, self._is_time_new = time, True

    def write_batch(self, name: bytes, batch: int) -> None:
        """A node whose life is known has committed this batch."""
        self.lives[name] = self.lives[name][0], batch
        self._new_lives.add(name)

    def loaded(self) -> Mapping[str, MemoryTable]:
        """The tables, as every statement finds them."""
        if self._stale:
            for name in self._stale:
                self.tables[name].load()
            self._stale.clear()
        return self.tables

    def flush(self, *, time: bool = True, lives: bool = True, tables: Sequence[str] | None = None) -> None:
        """The tables have it, too; `tables`: these of `LAYOUTS` (None: all)."""
        for name in self.tables if tables is None else tables:
            self.tables[name].flush()
        if time and self._is_time_new:
            known = self.read_time()
            self.connection.execute(STAMP, (known.time_ns, known.ahead_ns, known.stopped_ns))
            self._is_time_new = False
        if lives and self._new_lives:
            for node in sorted(self._new_lives):
                self.connection.execute("UPDATE nodes SET batch = ? WHERE name = ?", (self.lives[node][1], node))
            self._new_lives.clear()

    def forget(self, *, time: bool = True, lives: bool = True, routes: bool = True, tables: Sequence[str] = ()) -> None:
        """Another has written these tables."""
        for name in tables:
            self.tables[name].forget()
        self._stale.update(tables)
        if time:
            self.time = None
        if lives:
            self.lives.clear()
        if routes:
            self.routes = None

    def commit(self) -> None:
        """A transaction is over."""
        for table in self.tables.values():
            table.commit()

    def copy_from(self, other: StoreBook) -> None:
        """All that `other` knows, whose connection was copied."""
        self.forget()
        for name, table in other.loaded().items():
            self.tables[name].copy_from(table)
        self._stale.clear()

    def go_back(self, time: StoreTime | None, lives: dict[bytes, Life], has_begun: bool) -> None:
        """A transaction is undone, before which it was so; `has_begun`: in SQLite, too."""
        for table in self.tables.values():
            table.go_back(has_begun)
        self._stale = {name for name, table in self.tables.items() if not table.is_loaded}
        self.time, self.lives, self.routes = time, lives, None
        self._is_time_new = time is not None
        self._new_lives = set(lives)


class MemorySql(SqliteSql):
    """A transaction, and the context of it.  In SQLite it begins with the first statement that is not kept here.  An
    exception undoes one that writes."""

    def __init__(self, book: StoreBook, clock_ns: int, watch: TimeWatch | None, *, writes: bool) -> None:
        known = book.time or book.read_time()
        self._book = book
        self._before = known, dict(book.lives)
        self._has_begun = self._has_changed = False
        self._writes = writes
        if writes:
            known = next_time(known, clock_ns, None) if watch is None else watch.commit(known, clock_ns)
            book.write_time(known)
            now_ns = known.time_ns
        else:
            now_ns = time_of_read(known, clock_ns, None) if watch is None else watch.read(known, clock_ns)
        super().__init__(book.connection, now_ns, known.age_limit_ns(now_ns), known.time_ns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._writes and kind is not None:
            self._undo()
        else:
            self._end()

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        query = QUERIES.get(statement)
        if query is not None:
            return query(self._book.loaded(), values)
        if statement == CHECK:
            return [(self._book.identity, *self._read_life(values["name"]))]
        if statement == ROUTES:
            if self._book.routes is None:
                self._book.routes = super().all(statement)
            return self._book.routes
        self._flush(find_use(statement))
        return super().all(statement, **values)

    def run(self, statement: str, **values: Any) -> None:
        self.count(statement, **values)

    def count(self, statement: str, **values: Any) -> int:
        change = CHANGES.get(statement)
        if change is not None:
            self._has_changed = True
            return change(self._book.loaded(), values)
        if statement == WRITE_BATCH and values["name"] in self._book.lives:
            self._book.write_batch(values["name"], values["batch"])
            return 1
        table = PUTS.get(statement)
        if table is not None:
            return self._put(table, statement, [tuple(values[name] for name in ManyRows.of(statement).names)])
        touched = find_use(statement)
        self._flush(touched)
        self._begin()
        count = super().count(statement, **values)
        self._book.forget(time=touched.time, lives=touched.lives, routes=touched.routes, tables=touched.tables)
        return count

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        table = PUTS.get(statement)
        if table is not None:
            self._put(table, statement, rows)
            return
        assert not find_use(statement).tables, f"its table is kept as values: {statement}"
        self._begin()
        super().put_many(statement, rows)

    def _put(self, name: str, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
        if not rows:
            return 0
        self._has_changed = True
        table = self._book.loaded()[name]
        is_kept, is_new = statement in KEPT, "ON CONFLICT" not in statement
        count = 0
        for row in rows:
            if row[: table.layout.key] in table.rows:
                if is_kept:
                    continue
                if is_new:
                    raise sqlite3.IntegrityError(f"UNIQUE constraint failed: {name}")
            table.put(row)
            count += 1
        return count

    def _flush(self, touched: StatementUse) -> None:
        if touched.time or touched.lives or touched.tables:
            self._begin()
            self._book.flush(time=touched.time, lives=touched.lives, tables=touched.tables)

    def _end(self) -> None:
        """All of it is there."""
        if self._has_begun:
            self._connection.execute("COMMIT")
        if self._has_begun or self._has_changed:
            self._book.commit()

    def _undo(self) -> None:
        """Nothing of it was."""
        if self._has_begun:
            self._connection.execute("ROLLBACK")
        self._book.go_back(*self._before, self._has_begun)

    def _read_life(self, name: bytes) -> Life:
        """(0, 0): nobody knows the node."""
        found = self._book.lives.get(name)
        if found is None:
            rows = super().all(READ_LIFE, name=name)
            if not rows:
                return (0, 0)
            life, batch = rows[0]
            found = self._book.lives[name] = (life, batch)
        return found

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._connection.execute("BEGIN")
