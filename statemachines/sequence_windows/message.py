"""Messages: numbers on their way, and what the machines tell the host about them.

Numbers come as ranges of one frame, so that one step stands for a batch.  In a trace the frame stands in the column
`term`, and the bases in `first` and `last`.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from statemachines.kernel import Event, Message, TraceColumns
from statemachines.sequence_windows.sequence import (
    BASE_MAX,
    FIRST_FRAME,
    FRAME_MAX,
    frame_at,
    frame_of,
    is_number,
    number_of,
)

OF_FRAME = TraceColumns(term="frame")


class Numbered(Message, frozen=True, gc=False):
    """Messages `first`..`last` of the stream that began in `frame`; `time_ns`: when it began, `chain`: the last number
    of the stream before it (0: the message does not say).

    Raises ValueError where frame or bases are none, or a time or chain is negative (decoding a message then fails as
    for any malformed one).
    """

    columns: ClassVar = OF_FRAME

    frame: int
    first: int
    last: int
    time_ns: int = 0
    chain: int = 0

    def __post_init__(self) -> None:
        if not FIRST_FRAME <= self.frame <= FRAME_MAX:
            raise ValueError(f"frame {self.frame}: expected {FIRST_FRAME} to {FRAME_MAX}")
        if not 0 < self.first <= self.last <= BASE_MAX:
            raise ValueError(f"bases {self.first}..{self.last}: expected 0 < first <= last <= {BASE_MAX}")
        if self.time_ns < 0 or self.chain < 0:
            raise ValueError(f"time {self.time_ns}, chain {self.chain}: expected nothing below 0")

    @property
    def number(self) -> int:
        """The first number."""
        return number_of(self.frame, self.first)

    @property
    def end(self) -> int:
        """The last number."""
        return number_of(self.frame, self.last)

    @property
    def begin_ns(self) -> int:
        """When the stream began, as far as it can be believed: within its frame; else 0."""
        return self.time_ns if self.time_ns and frame_at(self.time_ns) == self.frame else 0

    @property
    def before(self) -> int:
        """The last number of the stream before, as far as it can be believed: on a first message, of an earlier frame;
        else 0."""
        if self.first != 1 or not is_number(self.chain) or frame_of(self.chain) >= self.frame:
            return 0
        return self.chain

    @property
    def strange(self) -> bool:
        """It carries a time or a chain that cannot be, and is ignored."""
        return self.begin_ns != self.time_ns or self.before != self.chain


class Verdict(Enum):
    """What a message is to a receiver.  Those from FIRST to CYCLE are delivered, the others dropped and counted."""

    FIRST = "first"
    NEXT = "next"
    SKIP = "skip"
    CYCLE = "cycle"
    REPEAT = "repeat"
    NOT_SUBSCRIBED = "not_subscribed"


DELIVERED = (Verdict.FIRST, Verdict.NEXT, Verdict.SKIP, Verdict.CYCLE)


class Judged(Event, frozen=True, gc=False):
    """To the host: what messages `first`..`last` are.  `lost`: how many are missing before them.  Where that is
    `unknown` they may be more: 1 is told, or `LOSS_MAX` where more are missing than that.  In a trace the verdict
    stands in `key`, the loss in `grant`."""

    columns: ClassVar = TraceColumns(key="verdict_text", term="frame", grant="lost")

    verdict: Verdict
    frame: int
    first: int
    last: int
    lost: int = 0
    unknown: bool = False

    @property
    def known_lost(self) -> int:
        """How many messages are known to be missing: none where it is unknown how many."""
        return 0 if self.unknown else self.lost

    @property
    def is_delivered(self) -> bool:
        """The application gets them."""
        return self.verdict in DELIVERED

    @property
    def verdict_text(self) -> str:
        """The verdict, and whether its loss is unknown."""
        return f"{self.verdict.value} unknown" if self.unknown else self.verdict.value

    @property
    def number(self) -> int:
        """The first number."""
        return number_of(self.frame, self.first)


LOSS_MAX = 32767
"""That more messages than these are missing is unknown: a number so far ahead may be one that nobody sent."""
