"""PublishedNumbers: what a publisher has numbered on one subject (MONO)."""

from __future__ import annotations

import msgspec

from statemachines.kernel import BrokenProperty
from statemachines.sequence_windows.properties.names import MONO


class PublishedNumbers(msgspec.Struct, frozen=True, gc=False):
    """`count` of messages, and the `highest` number (0: none)."""

    count: int = 0
    highest: int = 0

    def observe(self, first: int, last: int) -> tuple[PublishedNumbers, tuple[BrokenProperty, ...]]:
        """Messages get the numbers `first` to `last`."""
        after = PublishedNumbers(self.count + last - first + 1, last)
        if self.highest < first <= last:
            return after, ()
        return after, (BrokenProperty(MONO, f"number {first:#x} to {last:#x} after {self.highest:#x}"),)
