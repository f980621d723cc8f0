"""KnownProgress: S7, progress grows; S8, the end is final; S6 and S16, what a progress may say; L5, what is unread."""

from __future__ import annotations

import msgspec

from statemachines.kernel import BrokenProperty
from statemachines.shared_subscriptions.message import END_OF_STREAM, HOLES_MAX, Ranges
from statemachines.shared_subscriptions.properties.offset_ranges import OffsetRanges


class KnownProgress(msgspec.Struct, frozen=True, gc=False):
    """Of one stream, what somebody goes by: a leader, or the group store."""

    progress: int = 0

    def observe(self, stream: str, progress: int, what: str) -> tuple[KnownProgress, tuple[BrokenProperty, ...]]:
        """It goes by this progress from now on; `what` says whose that is."""
        known = self.progress
        if progress == known:
            return self, ()
        after = KnownProgress(progress)
        if progress > known:
            return after, ()
        shrunk = BrokenProperty("S7", f"{stream}: {what} progress falls from {known} to {progress}")
        if known != END_OF_STREAM:
            return after, (shrunk,)
        return after, (BrokenProperty("S8", f"{stream} has ended, and its {what} progress becomes {progress}"), shrunk)


def check_progress(stream: str, progress: int, what: str, acknowledged: int, stored: int) -> tuple[BrokenProperty, ...]:
    """Progress that somebody relies on, where all below `acknowledged` is, and `stored` messages are there."""
    if not passes(progress, acknowledged, stored):
        return ()
    broken = BrokenProperty("S6", f"{stream}: {what} progress {progress}, acknowledged only below {acknowledged}")
    if is_stored(progress, stored, has_ended=True):
        return (broken,)
    return (BrokenProperty("S16", f"{stream}: {what} progress {progress}, and {stored} messages are stored"), broken)


def passes(progress: int, acknowledged: int, stored: int) -> bool:
    """Whether it passes a message that was not acknowledged; the end of a stream passes none if all that is stored
    is."""
    return progress > acknowledged and not (progress == END_OF_STREAM and acknowledged == stored)


def is_stored(progress: int, stored: int, has_ended: bool) -> bool:
    """Whether the store has so many messages of a stream, or it has ended, if that is said."""
    return has_ended if progress == END_OF_STREAM else progress <= stored


def is_unread(acknowledged: int, published: int) -> bool:
    """L5: something that was published is not acknowledged."""
    return acknowledged < published


def check_ranges(stream: str, ranges: Ranges, what: str, acknowledged: OffsetRanges) -> tuple[BrokenProperty, ...]:
    """S6, of what is said to be acknowledged behind a progress."""
    for first, last in ranges:
        if not acknowledged.has_all(first, last):
            return (BrokenProperty("S6", f"{stream}: {first} to {last} are {what}, and were not acknowledged"),)
    return ()


def check_kept_ranges(stream: str, before: Ranges, progress: int, after: Ranges) -> tuple[BrokenProperty, ...]:
    """S7, of what is durable behind a progress: it stays so, or the progress has passed it."""
    if len(after) >= HOLES_MAX:
        return ()
    known = OffsetRanges().add(0, progress - 1)
    for first, last in after:
        known = known.add(first, last)
    for first, last in before:
        if not known.has_all(first, last):
            return (BrokenProperty("S7", f"{stream}: {first} to {last} were durable, and are no more"),)
    return ()
