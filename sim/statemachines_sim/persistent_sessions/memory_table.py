"""MemoryTable: a table of a database in memory, kept as Python values; SQLite has it when a statement asks for it."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

TableRow = tuple[Any, ...]
RowKey = tuple[Any, ...]


class TableLayout(NamedTuple):
    """`width`: columns; the first `key` of them are the primary key; `message`: the column that names a message (-1:
    none has one); `is_indexed`: which rows are found by it."""

    name: str
    width: int
    key: int
    message: int = -1
    is_indexed: Callable[[TableRow], bool] = lambda row: True


class MemoryTable:
    """`rows` by key, and `order`: the keys as the primary key sorts them; `load` them before."""

    def __init__(self, layout: TableLayout, connection: sqlite3.Connection) -> None:
        self.layout = layout
        self.rows: dict[RowKey, TableRow] = {}
        self.order: list[RowKey] = []
        self.undo: list[tuple[RowKey, TableRow | None]] = []
        """What the open transaction has replaced, in its order."""
        self._connection = connection
        self._key_names: list[str] = []
        self.is_loaded = False
        self._new: set[RowKey] = set()
        self._written: set[RowKey] = set()
        self._found: dict[bytes, set[RowKey]] | None = None
        self._before: tuple[dict[RowKey, TableRow], list[RowKey]] | None = None
        self._is_lost = False
        """A statement of the open transaction has changed it in SQLite, and it had not been loaded."""

    def load(self) -> None:
        """As SQLite has it, where a statement has changed it there."""
        if not self.is_loaded:
            found = self._connection.execute(f"SELECT * FROM {self.layout.name}")
            self._take({row[: self.layout.key]: row for row in found})

    def put(self, row: TableRow) -> None:
        """A row, in the place of one that has its key."""
        key = row[: self.layout.key]
        self.undo.append((key, self.rows.get(key)))
        self._put(key, row)

    def remove(self, key: RowKey) -> bool:
        """Whether the row was there."""
        row = self.rows.get(key)
        if row is None:
            return False
        self.undo.append((key, row))
        self._remove(key, row)
        return True

    def by_message(self) -> Mapping[bytes, set[RowKey]]:
        """Message -> the keys of the indexed rows that name it, if there ever were any."""
        if self._found is None:
            self._found = {}
            for key, row in self.rows.items():
                self._index(key, row)
        return self._found

    def list_of(self, message: bytes) -> set[RowKey] | tuple[()]:
        """The keys of the indexed rows that name the message."""
        return self.by_message().get(message, ())

    def flush(self) -> None:
        """SQLite has it, too."""
        if not self._new:
            return
        name, width, columns = self.layout[:3]
        if not self._key_names:
            self._key_names = [one[1] for one in self._connection.execute(f"PRAGMA table_info({name})")][:columns]
        gone = [key for key in self._new if key not in self.rows]
        where = " AND ".join(f"{one} = ?" for one in self._key_names)
        self._connection.executemany(f"DELETE FROM {name} WHERE {where}", gone)
        there = sorted(key for key in self._new if key in self.rows)
        put = f"INSERT OR REPLACE INTO {name} VALUES ({', '.join('?' * width)})"
        self._connection.executemany(put, [self.rows[key] for key in there])
        self._written |= self._new
        self._new.clear()

    def forget(self) -> None:
        """A statement has changed it in SQLite, after a `flush`."""
        if self._before is None and not self.is_loaded:
            self._is_lost = True
        elif self._before is None and not self._is_lost:
            self._go_back()
            self._new.clear()
            self._before = self.rows, self.order
        self.is_loaded = False

    def commit(self) -> None:
        """The transaction is over."""
        if self.undo:
            self.undo.clear()
        if self._written:
            self._written.clear()
        self._before, self._is_lost = None, False

    def go_back(self, has_begun: bool) -> None:
        """Nothing of it was; `has_begun`: SQLite has undone what was flushed to it meanwhile."""
        if has_begun:
            self._new |= self._written
        if self._before is not None:
            self._take(*self._before)
        elif self._is_lost:
            self._new.clear()
            self.is_loaded = False
        else:
            self._go_back()
        self.commit()

    def copy_from(self, other: MemoryTable) -> None:
        """All of it, and what SQLite has not of it."""
        self._take(dict(other.rows), list(other.order))
        self._new = set(other._new)

    def _go_back(self) -> None:
        for key, row in reversed(self.undo):
            if row is not None:
                self._put(key, row)
            elif key in self.rows:
                self._remove(key, self.rows[key])
        self.undo.clear()

    def _take(self, rows: dict[RowKey, TableRow], order: list[RowKey] | None = None) -> None:
        self.rows, self.order = rows, sorted(rows) if order is None else order
        self._found = None
        self.is_loaded = True

    def _put(self, key: RowKey, row: TableRow) -> None:
        before = self.rows.get(key)
        if before is None:
            insort(self.order, key)
        if self._found is not None:
            if before is not None:
                self._remove_from_index(key, before)
            self._index(key, row)
        self.rows[key] = row
        self._new.add(key)

    def _remove(self, key: RowKey, row: TableRow) -> None:
        del self.order[bisect_left(self.order, key)]
        if self._found is not None:
            self._remove_from_index(key, row)
        del self.rows[key]
        self._new.add(key)

    def _index(self, key: RowKey, row: TableRow) -> None:
        layout = self.layout
        if layout.message >= 0 and layout.is_indexed(row):
            assert self._found is not None
            self._found.setdefault(row[layout.message], set()).add(key)

    def _remove_from_index(self, key: RowKey, row: TableRow) -> None:
        layout = self.layout
        if layout.message >= 0 and layout.is_indexed(row):
            assert self._found is not None
            self._found[row[layout.message]].discard(key)
