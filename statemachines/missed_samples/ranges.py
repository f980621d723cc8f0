"""Ranges: sets of numbers as sorted, disjoint, inclusive ranges; no cost grows with the length of a range."""

from __future__ import annotations

from bisect import bisect_left

Range = tuple[int, int]
"""(first, last), inclusive."""

Ranges = tuple[Range, ...]


def add(ranges: Ranges, first: int, last: int) -> Ranges:
    """With `first`..`last`; ranges that touch become one."""
    begin = bisect_left(ranges, first - 1, key=_last)
    end = begin
    while end < len(ranges) and ranges[end][0] <= last + 1:
        first, last = min(first, ranges[end][0]), max(last, ranges[end][1])
        end += 1
    return (*ranges[:begin], (first, last), *ranges[end:])


def remove(ranges: Ranges, first: int, last: int) -> Ranges:
    """Without `first`..`last`."""
    begin = bisect_left(ranges, first, key=_last)
    end = begin
    kept: list[Range] = []
    while end < len(ranges) and ranges[end][0] <= last:
        low, high = ranges[end]
        if low < first:
            kept.append((low, first - 1))
        if high > last:
            kept.append((last + 1, high))
        end += 1
    return (*ranges[:begin], *kept, *ranges[end:])


def size(ranges: Ranges) -> int:
    """How many numbers."""
    return sum(last - first + 1 for first, last in ranges)


def _last(one: Range) -> int:
    return one[1]
