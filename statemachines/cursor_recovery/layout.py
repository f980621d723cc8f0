"""Layout: where the words of a queue lie in its segment, in bytes from the beginning.

    header | heads, lost, bells | read cursors | write cursors | incarnations | holders | guard | data area | guard

Each head, each cursor and the count of the lost has a cache line of its own: processes that use different ones do not
slow each other down.  The guards hold a pattern that nobody ever changes, so that a write outside the data area shows.
"""

from __future__ import annotations

from statemachines.cursor_recovery.memory import CELL, LOST, READ_HEAD, SLOTS, WRITE_HEAD, Queue
from statemachines.kernel import ConfigurationError

WORD = 8
LINE = 64
HEADER_WORDS = 16
GUARD = LINE
"""Bytes of a guard, on each side of the data area."""
GUARD_BYTES = bytes.fromhex("6755") * (GUARD // 2)
CURSORS_MAX = 4096
"""Of one pool: an operation may have to look at each."""
READERS_WAIT = "readers_wait"
"""Not 0: a reader sleeps until a writer rings."""
WRITERS_WAIT = "writers_wait"
"""Not 0: a writer sleeps until a reader rings."""
READERS_ASLEEP = "readers_asleep"
"""How many readers wait; those that were killed meanwhile stay counted."""
WRITERS_ASLEEP = "writers_asleep"
"""How many writers wait."""
_FIELDS = {"state": 0, "position": WORD, "messages": 2 * WORD}


def holder_of(slot: int) -> str:
    """The process number of who has the slot, for people and where locks cannot tell; no machine reads it."""
    return f"holder/{slot}"


class Layout:
    """Offsets in bytes; `ConfigurationError` for pools with more cursors than a segment has room for."""

    def __init__(self, queue: Queue) -> None:
        for key in ("read_cursors", "write_cursors"):
            if getattr(queue, key) > CURSORS_MAX:
                raise ConfigurationError(key, getattr(queue, key), f"1 to {CURSORS_MAX}")
        self.queue = queue
        at = HEADER_WORDS * WORD
        self._single: dict[str, int] = {}
        for name in (READ_HEAD, WRITE_HEAD, LOST, READERS_WAIT, WRITERS_WAIT):
            self._single[name] = at
            at += LINE
        self._single[READERS_ASLEEP] = self._single[READERS_WAIT] + WORD
        self._single[WRITERS_ASLEEP] = self._single[WRITERS_WAIT] + WORD
        self._pools = {"read": at, "write": at + queue.read_cursors * LINE}
        at = self._pools["write"] + queue.write_cursors * LINE
        self._slots = {"incarnation": at, "holder": at + SLOTS * WORD}
        self.guard_before = at + 2 * SLOTS * WORD
        self.data = self.guard_before + GUARD
        self.guard_after = self.data + queue.capacity
        self.size = self.guard_after + GUARD
        """Bytes of the whole segment."""

    def offset_of(self, address: str) -> int:
        """Where the word, or the cell of the data area, lies; `KeyError` for a name that is none.

        The lock of a slot is not in memory: the operating system keeps it.
        """
        kind, *rest = address.split("/")
        if kind == "data":
            return self.data + self._within(address, int(rest[0]), self.queue.capacity)
        if kind in self._slots:
            return self._slots[kind] + self._within(address, int(rest[0]), SLOTS) * WORD
        if kind in self._pools:
            cursors = self.queue.read_cursors if kind == "read" else self.queue.write_cursors
            return self._pools[kind] + self._within(address, int(rest[0]), cursors) * LINE + _FIELDS[rest[1]]
        return self._single[address]

    def parts(self, position: int, size: int) -> tuple[tuple[int, int], ...]:
        """The (offset, bytes) of `size` bytes of data from a position on: two where they cross the end of the area.

        They are no more than the area, and begin at a cell (CR-21).
        """
        if size > self.queue.capacity or position % CELL:
            raise ValueError(f"{size} bytes at {position} are not in a data area of {self.queue.capacity}")
        at = position % self.queue.capacity
        first = min(size, self.queue.capacity - at)
        return ((self.data + at, first),) if first == size else ((self.data + at, first), (self.data, size - first))

    @staticmethod
    def _within(address: str, number: int, count: int) -> int:
        if not 0 <= number < count:
            raise KeyError(address)
        return number
