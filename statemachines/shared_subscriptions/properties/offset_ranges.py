"""OffsetRanges: a set of offsets of one stream."""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from statemachines.shared_subscriptions.message import Ranges


class OffsetRanges(msgspec.Struct, frozen=True, gc=False):
    """First and last offsets, in order; neighbours are one range.  A reader goes forward, so there are few."""

    ranges: Ranges = ()

    @property
    def prefix(self) -> int:
        """How many offsets from 0 on are there without a hole."""
        return self.ranges[0][1] + 1 if self.ranges and not self.ranges[0][0] else 0

    def add(self, first: int, last: int) -> OffsetRanges:
        """With `first`..`last`, if that is anything."""
        ranges = self.ranges
        if last < first:
            return self
        if not ranges or ranges[-1][1] + 1 < first:
            return OffsetRanges((*ranges, (first, last)))
        if ranges[-1][0] <= first:  # as it is nearly always
            return OffsetRanges((*ranges[:-1], (ranges[-1][0], max(last, ranges[-1][1]))))
        begin = self._find(first - 1)
        end = begin
        while end < len(ranges) and ranges[end][0] <= last + 1:
            first, last = min(first, ranges[end][0]), max(last, ranges[end][1])
            end += 1
        return OffsetRanges((*ranges[:begin], (first, last), *ranges[end:]))

    def has_all(self, first: int, last: int) -> bool:
        """Whether all of `first`..`last` is there."""
        at = self._find(first)
        return at < len(self.ranges) and self.ranges[at][0] <= first and last <= self.ranges[at][1]

    def count_in(self, first: int, last: int) -> int:
        """How many of `first`..`last` are there."""
        count = 0
        for begin, end in self.ranges[self._find(first) :]:
            if begin > last:
                break
            count += min(end, last) - max(begin, first) + 1
        return count

    def _find(self, offset: int) -> int:
        """The first range that ends at `offset` or behind it."""
        ranges = self.ranges
        if not ranges or ranges[-1][1] < offset:
            return len(ranges)
        return bisect_left(ranges, offset, key=lambda one: one[1])
