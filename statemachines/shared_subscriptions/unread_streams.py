"""Unread streams: what groups have not read of the generations that somebody wants to drop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from statemachines.kernel import Answer, ConfigurationError
from statemachines.shared_subscriptions.claim import PAGE
from statemachines.shared_subscriptions.group_store import Read, ReadDone, Scan, StoredRecord, record_key
from statemachines.shared_subscriptions.listing import GroupListing, ListedGroup
from statemachines.shared_subscriptions.names import PROGRESS
from statemachines.shared_subscriptions.stream_store import ListStreams, StreamInfo, StreamsListed, parse_filter

NAMED_MAX: Final = 3
"""An error names so many streams."""

AskGroups = Callable[[Read | Scan], Answer]
AskStreams = Callable[[ListStreams], Answer]


def check_read(oldest: int, groups: AskGroups, streams: AskStreams) -> int:
    """Returns the oldest generation that is left when all before `oldest` are dropped.

    Raises `ConfigurationError` where a group has not read all that would be dropped.
    """
    listed = streams(ListStreams(1, "#", 0, "", 1))
    assert isinstance(listed, StreamsListed)
    oldest = min(oldest, listed.generation)
    listing = GroupListing()
    while not listing.is_over:
        listing = listing.take(groups(listing.request))
    unread = [
        f"{info.count - progress} of {info.stream} by {group.subscription}"
        for group in listing.found
        if not group.is_destroyed
        for info, progress in find_progress(group, oldest, groups, streams)
        if progress < info.count
    ]
    if unread:
        others = f" and of {len(unread) - NAMED_MAX} more streams" if len(unread) > NAMED_MAX else ""
        rule = f"would drop messages that are not read: {', '.join(unread[:NAMED_MAX])}{others}"
        raise ConfigurationError("oldest", oldest, f"{rule}; wait, destroy the group, or give force=True")
    return oldest


def find_progress(
    group: ListedGroup, oldest: int, groups: AskGroups, streams: AskStreams
) -> Iterator[tuple[StreamInfo, int]]:
    """The streams of the group in generations before `oldest`, and how far it has read them."""
    name, topic_filter = parse_filter(group.subscription)
    after, more = "", True
    while more:
        page = streams(ListStreams(1, topic_filter, group.start_ns, after, PAGE))
        assert isinstance(page, StreamsListed)
        old = [info for info in page.streams if info.generation < oldest]
        read = groups(Read(1, tuple(record_key(name, topic_filter, f"{PROGRESS}{info.stream}") for info in old)))
        assert isinstance(read, ReadDone)
        for info, stored in zip(old, read.records, strict=True):
            yield info, max(info.first, value_of(stored))
        more = page.more
        after = page.streams[-1].stream if more else ""


def value_of(stored: StoredRecord | None) -> int:
    """The progress in a record."""
    return stored.value if stored is not None and isinstance(stored.value, int) else 0
