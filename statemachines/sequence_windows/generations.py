"""Generations: the two maps of a window, outside any record: a persistent map would cost each of a million subjects.

A flip swaps the maps, whatever their size.  What was dropped is freed a little at a time, by those who come after.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

E = TypeVar("E")

AT_A_TIME = 64
"""So many subjects of a dropped generation are freed with each message."""


class Generations(Generic[E]):
    """Subject -> entry, in `current` and `old`.  A subject counts as `overhead` bytes and its name, as the source has
    it, and what its entry has beyond that (`extra`)."""

    __slots__ = ("_bytes", "_dropped", "_old_bytes", "current", "extra", "old", "overhead")

    def __init__(self, overhead: int, extra: Callable[[E], int] = lambda entry: 0) -> None:
        self.overhead = overhead
        self.extra = extra
        self.current: dict[str, E] = {}
        self.old: dict[str, E] = {}
        self._dropped: list[dict[str, E]] = []
        self._bytes = 0
        self._old_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Bytes of both."""
        return self._bytes + self._old_bytes

    @property
    def is_freeing(self) -> bool:
        """Something that was dropped is still to be freed."""
        return bool(self._dropped)

    def grow(self, size_bytes: int) -> None:
        """The entry of a subject of the current one has so much more."""
        self._bytes += size_bytes

    def cost(self, subject: str) -> int:
        """Bytes of a subject, what its entry has beyond that apart."""
        return self.overhead + (len(subject) if subject.isascii() else len(subject.encode()))

    def add(self, subject: str, entry: E) -> None:
        """A subject that is in neither."""
        self.current[subject] = entry
        self._bytes += self.cost(subject)

    def move(self, subject: str) -> E | None:
        """A subject of the old one goes to the current one; None: it is not there."""
        entry = self.old.pop(subject, None)
        if entry is not None:
            self.current[subject] = entry
            cost = self.cost(subject) + self.extra(entry)
            self._bytes += cost
            self._old_bytes -= cost
        return entry

    def remove(self, subject: str) -> E | None:
        """It is kept no longer; None: it was not."""
        entry = self.current.pop(subject, None)
        if entry is not None:
            self._bytes -= self.cost(subject) + self.extra(entry)
            return entry
        entry = self.old.pop(subject, None)
        if entry is not None:
            self._old_bytes -= self.cost(subject) + self.extra(entry)
        return entry

    def flip(self) -> None:
        """The current one becomes the old one, which is dropped at once and freed later."""
        if self.old:
            self._dropped.append(self.old)
        self.old, self.current = self.current, {}
        self._old_bytes, self._bytes = self._bytes, 0

    def free(self, at_most: int = AT_A_TIME) -> bool:
        """Free some of what was dropped; whether there is more."""
        for _ in range(at_most):
            if not self._dropped:
                return False
            last = self._dropped[-1]
            if last:
                last.popitem()
            else:
                self._dropped.pop()
        return bool(self._dropped)

    def __len__(self) -> int:
        return len(self.current) + len(self.old)
