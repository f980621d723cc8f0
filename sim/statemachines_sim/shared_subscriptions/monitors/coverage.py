"""Coverage: which offsets of a stream are acknowledged, and when each was delivered last."""

from __future__ import annotations


class Covered:
    """Which offsets of a stream are covered: all below `prefix`, and ranges above it."""

    __slots__ = ("above", "prefix")

    def __init__(self) -> None:
        self.prefix = 0
        self.above: dict[int, int] = {}

    def add(self, first: int, last: int) -> None:
        """Cover `first`..`last`."""
        if first > self.prefix:
            self.above[first] = max(last, self.above.get(first, last))
            return
        self.prefix = max(self.prefix, last + 1)
        while self.above and (first := min(self.above)) <= self.prefix:
            self.prefix = max(self.prefix, self.above.pop(first) + 1)

    def has(self, first: int, last: int) -> bool:
        """Whether all of `first`..`last` is covered."""
        at = max(first, self.prefix)
        for begin, end in sorted(self.above.items()):
            at = end + 1 if begin <= at <= end else at
        return at > last


class Deliveries:
    """When each offset of a stream was delivered last: ranges in order, each with the number of its delivery."""

    __slots__ = ("ranges",)

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, int]] = []

    def add(self, first: int, last: int, number: int) -> tuple[int, int]:
        """Deliver `first`..`last`: how many of them were delivered before, and the latest number of such a one."""
        ranges = self.ranges
        again, latest = 0, -1
        above: list[tuple[int, int, int]] = []
        while ranges and ranges[-1][1] >= first:
            begin, end, earlier = ranges.pop()
            if begin <= last:
                again += min(end, last) - max(begin, first) + 1
                latest = max(latest, earlier)
            if end > last:
                above.append((max(begin, last + 1), end, earlier))
            if begin < first:
                ranges.append((begin, first - 1, earlier))
                break
        ranges.append((first, last, number))
        ranges.extend(reversed(above))
        return again, latest
