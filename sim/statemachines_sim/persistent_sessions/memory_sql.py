"""MemorySql: a transaction on a database in memory, which keeps what every transaction asks for as Python values.

That is the time of the store, its identity, and the life and last batch of a node: two of three statements of a run.
They come to their tables when another statement asks for them, so what any statement finds is the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from statemachines.drivers.persistent_sessions.sqlite import STAMP, TIME, SqliteSql
from statemachines.drivers.persistent_sessions.store import CHECK, WRITE_BATCH
from statemachines.drivers.persistent_sessions.time_watch import TimeWatch
from statemachines.persistent_sessions.store_time import StoreTime, next_time, time_of_read

READ_LIFE: Final = "SELECT life, batch FROM @nodes WHERE name = :name"

Life = tuple[int, int]
"""Life and last batch of a node."""


@cache
def touches(statement: str) -> tuple[bool, bool]:
    """Whether a statement reads or writes the time of the store, and the batches of nodes."""
    return "@store" in statement and "_ns" in statement, "@nodes" in statement and "batch" in statement


class StoreBook:
    """What a database in memory knows of its tables `store` and `nodes`; `time` is None before it was read."""

    def __init__(self, connection: sqlite3.Connection, identity: bytes) -> None:
        self.connection = connection
        self.identity = identity
        self.time: StoreTime | None = None
        self.lives: dict[bytes, Life] = {}
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

    def flush(self, *, time: bool = True, lives: bool = True) -> None:
        """The tables have it, too."""
        if time and self._is_time_new:
            known = self.read_time()
            self.connection.execute(STAMP, (known.time_ns, known.ahead_ns, known.stopped_ns))
            self._is_time_new = False
        if lives and self._new_lives:
            for name in sorted(self._new_lives):
                self.connection.execute("UPDATE nodes SET batch = ? WHERE name = ?", (self.lives[name][1], name))
            self._new_lives.clear()

    def forget(self, *, time: bool = True, lives: bool = True) -> None:
        """Another has written these tables."""
        if time:
            self.time = None
        if lives:
            self.lives.clear()

    def go_back(self, time: StoreTime | None, lives: dict[bytes, Life]) -> None:
        """A transaction is undone, before which it was so."""
        self.time, self.lives = time, lives
        self._is_time_new = time is not None
        self._new_lives = set(lives)


class MemorySql(SqliteSql):
    """Begins with the first statement that writes, and ends with `end`."""

    def __init__(self, book: StoreBook, clock_ns: int, watch: TimeWatch | None, *, writes: bool) -> None:
        known = book.read_time()
        self._book = book
        self._before = known, dict(book.lives)
        self._has_begun = False
        if writes:
            known = next_time(known, clock_ns, None) if watch is None else watch.commit(known, clock_ns)
            book.write_time(known)
            now_ns = known.time_ns
        else:
            now_ns = time_of_read(known, clock_ns, None) if watch is None else watch.read(known, clock_ns)
        super().__init__(book.connection, now_ns, known.age_limit_ns(now_ns), known.time_ns)

    def all(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        if statement == CHECK:
            return [(self._book.identity, *self._read_life(values["name"]))]
        time, lives = touches(statement)
        if time or lives:
            self._begin()
            self._book.flush(time=time, lives=lives)
        return super().all(statement, **values)

    def run(self, statement: str, **values: Any) -> None:
        if statement == WRITE_BATCH and values["name"] in self._book.lives:
            self._book.write_batch(values["name"], values["batch"])
        else:
            self.count(statement, **values)

    def count(self, statement: str, **values: Any) -> int:
        self._begin()
        time, lives = touches(statement)
        if not time and not lives:
            return super().count(statement, **values)
        self._book.flush(time=time, lives=lives)
        count = super().count(statement, **values)
        self._book.forget(time=time, lives=lives)
        return count

    def put_many(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self._begin()
        super().put_many(statement, rows)

    def end(self) -> None:
        """All of it is there."""
        if self._has_begun:
            self._connection.execute("COMMIT")

    def undo(self) -> None:
        """Nothing of it was."""
        if self._has_begun:
            self._connection.execute("ROLLBACK")
        self._book.go_back(*self._before)

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
