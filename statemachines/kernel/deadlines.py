"""Deadlines: the earliest deadline of each of many, and which of them comes first."""

from __future__ import annotations

from heapq import heappop, heappush


class Deadlines:
    """One live entry for each name; the cost of a change does not grow with their number but by its logarithm.

    `heap` may hold entries that are over: its first is never later than the earliest deadline.
    """

    __slots__ = ("_at", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}

    def move(self, name: str, deadline_ns: int | None) -> bool:
        """It is due then (None: never); whether that is a change."""
        at = self._at
        if deadline_ns == at.get(name):
            return False
        if deadline_ns is None:
            del at[name]
        else:
            at[name] = deadline_ns
            heappush(self.heap, (deadline_ns, name))
            if len(self.heap) > 64 and len(self.heap) > 4 * len(at):
                self.heap[:] = sorted((one, other) for other, one in at.items())
        return True

    def first(self) -> tuple[int, str] | None:
        """The earliest deadline and its name, of equal ones the least name."""
        heap, at = self.heap, self._at
        while heap:
            deadline, name = heap[0]
            if at.get(name) == deadline:
                return heap[0]
            heappop(heap)
        return None
