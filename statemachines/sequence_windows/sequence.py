"""Sequence: the number of a message: a frame of 29 bits, and a base of 35 (source: "Multicast sequence numbers").

The frame says when the stream began, in units of 2^33 ns (8.589934592 s); the base counts the messages of the stream
from 1.  Frame 0 and base 0 are never sent.  The layout lasts until 2^62 ns, 2116-02-20.
"""

from __future__ import annotations

FRAME_SHIFT = 33
"""Of nanoseconds: a frame is 2^33 of them."""
BASE_BITS = 35
FRAME_NS = 1 << FRAME_SHIFT
BASE_MAX = (1 << BASE_BITS) - 1
FRAME_MAX = (1 << 29) - 1
NUMBER_MAX = (1 << 64) - 1
FIRST_FRAME = 1
"""A clock that says 1970 is not set: what it says is taken for the first frame there is."""


def frame_at(t_ns: int) -> int:
    """The frame of an instant; greater than `FRAME_MAX` once the layout has ended."""
    return max(FIRST_FRAME, t_ns >> FRAME_SHIFT)


def start_of(frame: int) -> int:
    """When the frame begins, in nanoseconds."""
    return frame << FRAME_SHIFT


def number_of(frame: int, base: int) -> int:
    """The 64 bits of both."""
    return frame << BASE_BITS | base


def frame_of(number: int) -> int:
    """When its stream began."""
    return number >> BASE_BITS


def base_of(number: int) -> int:
    """Which message of its stream it is."""
    return number & BASE_MAX


def first_of(t_ns: int) -> int:
    """The first number of a stream that begins now."""
    return number_of(frame_at(t_ns), 1)


def is_number(number: int) -> bool:
    """It can have been sent: of a frame, and with a base."""
    return FIRST_FRAME <= frame_of(number) <= FRAME_MAX and base_of(number) > 0
