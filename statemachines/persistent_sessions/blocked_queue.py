"""BlockedQueue: rows of one writer that wait for older rows of other writers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from statemachines.kernel import Map
from statemachines.persistent_sessions.message import Queued


class BlockedRow(msgspec.Struct, frozen=True, gc=False):
    """A row of a writer that is taken, and what was stored before `bound_ns` comes before it."""

    epoch: int
    queued: Queued
    bound_ns: int


class BlockedQueue(msgspec.Struct, frozen=True, gc=False):
    """`rows` under running numbers, the first of them under `head`.  Adding or dropping a row copies no other row."""

    rows: Map[int, BlockedRow] = Map()
    head: int = 0

    @property
    def first(self) -> BlockedRow:
        """The oldest; raises `KeyError` if there is none."""
        return self.row_at(0)

    @property
    def last(self) -> BlockedRow:
        """The youngest; raises `KeyError` if there is none."""
        return self.row_at(len(self) - 1)

    def row_at(self, place: int) -> BlockedRow:
        """The row that has `place` others before it; raises `KeyError` if there is none."""
        return self.rows[self.head + place]

    def add(self, rows: Iterable[BlockedRow]) -> BlockedQueue:
        """With these behind the others.  A queue begins with the number of its first row, so that the same rows are
        the same queue."""
        head, items = self.head, self.rows.mutate()
        for row in rows:
            head = head if items else row.queued.number
            items[head + len(items)] = row
        return BlockedQueue(items.finish(), head)

    def drop(self, count: int) -> BlockedQueue:
        """Without the first `count`."""
        items = self.rows.mutate()
        for place in range(self.head, self.head + count):
            del items[place]
        return BlockedQueue(items.finish(), self.head + count)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[BlockedRow]:
        return (self.rows[place] for place in range(self.head, self.head + len(self.rows)))
