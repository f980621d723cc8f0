"""The stream store's meaning, and the filters."""

from __future__ import annotations

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Appended,
    ListStreams,
    StreamInfo,
    StreamStore,
    matches,
    parse_filter,
    shard_of,
    stream_id,
)

STORE = StreamStore(shards=4)


def filled(*topics):
    state = STORE.initial()
    for number, topic in enumerate(topics):
        state, _ = STORE.apply(state, Append(number, topic, 3), number + 1)
    return state


def test_SS_217_offsets_of_a_stream_have_no_holes():
    state = filled("a")
    state, (answer,) = STORE.apply(state, Append(9, "a", 2), 5)
    assert answer == Appended(9, stream_id("a", 4, 0), 3, 4)


def test_SS_218_a_listing_comes_in_pages_by_id_and_from_the_start_time():
    state = filled("a", "b", "c")
    ids = sorted(stream_id(topic, 4, 0) for topic in "abc")
    _, (first,) = STORE.apply(state, ListStreams(1, "#", 0, "", 2), 9)
    _, (second,) = STORE.apply(state, ListStreams(2, "#", 0, first.streams[-1].stream, 2), 9)
    assert [info.stream for info in (*first.streams, *second.streams)] == ids
    assert (first.more, second.more) == (True, False)
    _, (late,) = STORE.apply(state, ListStreams(3, "a", 2, "", 9), 9)
    assert late.streams == (StreamInfo(stream_id("a", 4, 0), shard_of("a", 4), 0, 3, 3),)


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("#", "a/b", True),
        ("a/#", "a", True),
        ("a/+", "a/b", True),
        ("a/+", "a/b/c", False),
        ("a/+/c", "a//c", True),
        ("+", "$SYS", False),
        ("#", "$SYS/x", False),
        ("$SYS/#", "$SYS/x", True),
        ("a/b", "a", False),
    ],
)
def test_filters_match_as_in_mqtt(topic_filter, topic, expected):
    assert matches(topic_filter, topic) is expected


@pytest.mark.parametrize(
    "subscription",
    [
        "a/b",
        "$shared/",
        "$shared//a",
        "$shared/g",
        "$shared/g/",
        "$shared/g+/a",
        "$queue/a",
        "$queue/q/",
        "$share/g/$queue/a",
        "$share/g/a#",
        "$share/g/#/b",
        "$share/g/a+",
    ],
)
def test_SS_212_a_malformed_subscription_is_refused_with_the_rule(subscription):
    with pytest.raises(ConfigurationError, match="must "):
        parse_filter(subscription)
