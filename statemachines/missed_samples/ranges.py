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


def remove(ranges: Ranges, first: int, last: int) -> Ranges:
    """Without `first`..`last`."""
    if not ranges or last < ranges[0][0] or first > ranges[-1][1]:
        return ranges
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
    return ranges[:begin] + tuple(kept) + ranges[end:]


def overlap(ranges: Ranges, first: int, last: int) -> int:
    """How many numbers of `first`..`last` are in it."""
    count = 0
    for index in range(bisect_left(ranges, first, key=_last), len(ranges)):
        low, high = ranges[index]
        if low > last:
            break
        count += min(high, last) - max(low, first) + 1
    return count


def union(*several: Ranges) -> Ranges:
    """What is in any of `several`; ranges that touch become one."""
    merged: list[Range] = []
    for first, last in sorted(one for ranges in several for one in ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def size(ranges: Ranges) -> int:
    """How many numbers."""
    return sum(last - first + 1 for first, last in ranges)


def _last(one: Range) -> int:
    return one[1]
