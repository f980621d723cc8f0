"""RecoveryQuery: what a receiver asks a publisher for: messages that are known to be missing."""

from __future__ import annotations

import msgspec

from statemachines.sequence_windows.sequence import base_of, frame_of


class RecoveryQuery(msgspec.Struct, frozen=True, gc=False):
    """Messages `first`..`last` of `publisher` in its `life` on `subject`, both included and of one frame; some of those
    between may have come.  `run` and `n` say which query it is: they go back with its end.  Life 0: of whichever has
    them."""

    publisher: str
    subject: str
    first: int
    last: int
    run: str = ""
    n: int = 0
    life: int = 0

    @property
    def frame(self) -> int:
        """Of all of them."""
        return frame_of(self.first)

    @property
    def is_sound(self) -> bool:
        """Whether it can be answered at all: a range of numbers of one frame."""
        return 0 < self.first <= self.last and self.frame == frame_of(self.last) and base_of(self.first) > 0
