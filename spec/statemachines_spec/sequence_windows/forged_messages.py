"""Forged messages: messages with a TIME or CHAIN that cannot be, whatever was sent before them, and such as nobody
has sent."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.sequence_windows.message import Numbered
from statemachines.sequence_windows.sequence import base_of, frame_of, number_of, start_of

FORGERIES = 6
"""No message has more."""


def forgeries(event: Numbered) -> tuple[Numbered, ...]:
    """The message with each of them; a CHAIN on a message that does not begin a stream is one by itself."""
    frame = event.frame
    times = (start_of(frame) - 1, start_of(frame + 1))
    chains: tuple[int, ...] = (number_of(frame - 1, 1),)
    if event.first == 1:
        own, later = number_of(frame, 1), number_of(frame + 1, 1)
        no_base, no_frame = number_of(frame - 1, 0), number_of(0, 5)
        chains = (own, later, no_base, no_frame)
    return (
        *(replace(event, time_ns=time_ns, chain=0) for time_ns in times),
        *(replace(event, time_ns=0, chain=chain) for chain in chains),
    )


def forge_message(event: Numbered, number: int) -> Numbered:
    """One of them by its number, from 1 on."""
    made = forgeries(event)
    return made[number % len(made)]


LEAP = 65
"""A number so far ahead in its frame that nobody comes to it within the bounds."""
INVENTIONS = 5
"""So many messages are invented behind each."""
FRAMES_ON = 5
"""A frame that nobody comes to within the bounds."""


def invent_message(last: int, number: int) -> Numbered:
    """One of those by its number, from 1 on: far ahead of `last`, in its frame or in a later one."""
    frame, base = frame_of(last), base_of(last) + LEAP
    later = frame + FRAMES_ON
    made = (
        Numbered(frame, base, base),
        Numbered(frame, base + LEAP, base + LEAP),
        Numbered(later, 1, 1),
        Numbered(later, 1, 1, 0, last),
        Numbered(later, 7, 7),
    )
    return made[number - 1]


def strip_message(event: Numbered) -> Numbered:
    """The message with neither."""
    return replace(event, time_ns=0, chain=0)
