"""Ranges: sets of numbers as sorted, disjoint, inclusive ranges.

No cost grows with the length of a range; a change copies a tuple of references, one for each range.
"""

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
    return ranges[:begin] + ((first, last),) + ranges[end:]  # noqa: RUF005 (three slices are copied as a whole)


def overlap(ranges: Ranges, first: int, last: int) -> int:
    """How many numbers of `first`..`last` are in it."""
    count = 0
    for index in range(bisect_left(ranges, first, key=_last), len(ranges)):
        low, high = ranges[index]
        if low > last:
            break
        count += min(high, last) - max(low, first) + 1
    return count


def size(ranges: Ranges) -> int:
    """How many numbers."""
    return sum(last - first + 1 for first, last in ranges)


def _last(one: Range) -> int:
    return one[1]
