"""HeldNumbers: the numbers of a stream that have come and were not told yet, with the row in which each came."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple


class NumberRange(NamedTuple):
    """Numbers `first`..`last` came in `row`."""

    first: int
    last: int
    row: int


class HeldNumbers:
    """Parts that do not overlap, in order."""

    def __init__(self) -> None:
        self.parts: list[NumberRange] = []

    def __len__(self) -> int:
        return sum(part.last - part.first + 1 for part in self.parts)

    def add(self, first: int, last: int, row: int) -> int:
        """They came; how many of them are new."""
        parts = self.parts
        if not parts or parts[-1].last < first:
            parts.append(NumberRange(first, last, row))
            return last - first + 1
        at = max(bisect_right(parts, (first, first, row)) - 1, 0)
        new: list[NumberRange] = []
        begin = first
        for part in parts[at:]:
            if part.first > last:
                break
            if begin < part.first:
                new.append(NumberRange(begin, part.first - 1, row))
            begin = max(begin, part.last + 1)
        if begin <= last:
            new.append(NumberRange(begin, last, row))
        if new:
            self.parts = sorted([*parts, *new])
        return sum(part.last - part.first + 1 for part in new)

    def take(self, first: int, last: int) -> Iterator[NumberRange]:
        """Those of a range that have come; they and everything below are held no more."""
        kept: list[NumberRange] = []
        taken: list[NumberRange] = []
        for part in self.parts:
            if part.first > last:
                kept.append(part)
                continue
            if part.last >= first:
                taken.append(NumberRange(max(part.first, first), min(part.last, last), part.row))
            if part.last > last:
                kept.append(NumberRange(last + 1, part.last, part.row))
        self.parts = kept
        yield from taken

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self.parts, (number, 1 << 63, 0)) - 1
        return at >= 0 and self.parts[at].last >= number
