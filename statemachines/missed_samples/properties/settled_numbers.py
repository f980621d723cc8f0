"""SettledNumbers: what an application was told of one source, and whether ORDER, ONCE and REPORT hold.

settled, broken = settled.observe(first, last)          it is given, or told of the loss of, `first` to `last`
"""

from __future__ import annotations

import msgspec

from statemachines.kernel import BrokenProperty

Broken = tuple[BrokenProperty, ...]


class SettledNumbers(msgspec.Struct, frozen=True, gc=False):
    """One lifetime of a source.  `begin`: its first number (-1: the first that is told decides); `next`: the lowest
    number that is neither delivered nor reported."""

    begin: int = -1
    next: int = 0

    def observe(self, first: int, last: int) -> tuple[SettledNumbers, Broken]:
        """The numbers `first` to `last` are delivered or reported."""
        if self.begin < 0:
            return SettledNumbers(first, last + 1), ()
        return SettledNumbers(self.begin, max(self.next, last + 1)), judge_range(self.begin, self.next, first, last)


def judge_range(begin: int, expected: int, first: int, last: int) -> Broken:
    """What breaks when `first` to `last` are told and `expected` is next; the lifetime began with `begin`."""
    if first == expected:
        return ()
    where = f"{first}..{last} is told"
    if first < begin:
        return (BrokenProperty("ORDER", f"{where}, and {begin} is the first number"),)
    if first < expected:
        return (BrokenProperty("ONCE", f"{where}, and everything below {expected} is settled"),)
    return (BrokenProperty("REPORT", f"{where}, and nothing was said of {expected}"),)


def judge_publication(sent: int, expected: int) -> Broken:
    """ORDER: a publisher has given `sent` numbers, after `expected` before."""
    return () if sent > expected else (BrokenProperty("ORDER", f"a number is given again: {sent}, after {expected}"),)
