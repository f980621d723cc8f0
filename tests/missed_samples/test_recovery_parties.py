"""Publisher, cache and subscriber of missed-samples recovery, clause by clause (spec/missed_samples/clauses.md)."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_words import ask
from samples_world import KEY

from statemachines import kernel
from statemachines.missed_samples import keys
from statemachines.missed_samples.cache import (
    CACHE,
    CacheRecord,
)
from statemachines.missed_samples.publisher import (
    PUBLISHER,
    Beats,
    Declare,
    Publish,
    PublisherRecord,
)
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.selector import Malformed, parse
from statemachines.missed_samples.serial_number import unwrap_number, wrap_number

# -- publisher ------------------------------------------------------------------------------------------------------


def publisher(**given):
    node = kernel.Node(PUBLISHER, PublisherRecord("p", KEY, **given), name="p", now_ns=0, check=True)
    node.feed(Declare(), 0)
    return node


def test_ALONE_a_publisher_hears_nobody_so_it_is_the_same_for_any_number_of_subscribers():
    """Nor does it send to anybody in particular: what goes out goes to its key."""
    assert PUBLISHER.alphabet
    assert not [event for event in PUBLISHER.alphabet if issubclass(event, (kernel.Message, kernel.Answer))]
    node = publisher(beats=Beats.PERIODIC, period_ms=100)
    sent = [*node.feed(Publish(), 0), *node.fire(100 * MS)]
    assert {one.to for one in sent if isinstance(one, kernel.Send)} == {KEY}


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(0, 5), st.sampled_from([64, 3]))
def test_MS_36_under_one_id_no_number_is_repeated(counts, more, width):
    first = publisher(width=width)
    for count in counts:
        first.feed(Publish(count), 0)
    second = publisher(width=width, next=first.record.next)
    for _ in range(more):
        (kept, sent) = second.feed(Publish(), 0)
        assert kept.event.first >= sum(counts)
        assert sent.message.first == wrap_number(kept.event.first, width)


def test_MS_35_nothing_is_published_as_no_sample():
    with pytest.raises(ValueError, match="publish 0: expected at least 1"):
        Publish(0)


# -- cache ----------------------------------------------------------------------------------------------------------


@given(st.text(alphabet="_snmaxtime=;.0123456789[]()-now"))
def test_MS_45_no_text_is_worse_than_malformed(text):
    with suppress(Malformed):
        parse(text, 64, 10**18)
    node = kernel.Node(CACHE, CacheRecord(), name="c", now_ns=0, check=True)
    assert node.feed(ask(text), 0)


# -- keys -----------------------------------------------------------------------------------------------------------


def test_MS_47_the_plain_layout():
    assert keys.plain_key("p~2", "demo/a") == "p~2/demo/a"
    assert keys.read_plain("p~2/demo/a") == keys.KeyPlace("p~2", "demo/a")
    assert keys.read_plain("*/demo/**") == keys.KeyPlace("*", "demo/**")


def test_MS_47_the_advanced_layout():
    source = keys.make_source_id("a1f", 12)
    assert source == "a1f/12"
    assert keys.make_source_key(source, "demo/a") == "demo/a/@adv/pub/a1f/12/_"
    assert keys.make_query_key(source, "demo/a") == "demo/a/@adv/*/a1f/12/**"
    assert keys.make_query_key("*", "demo/a") == "demo/a/@adv/**"
    assert keys.make_heartbeat_key("demo/a") == "demo/a/@adv/pub/**"
    for key in (keys.make_source_key(source, "demo/a"), keys.make_query_key(source, "demo/a")):
        assert keys.read_advanced(key) == keys.KeyPlace(source, "demo/a")
    assert keys.read_advanced("demo/a/@adv/**") == keys.KeyPlace("*", "demo/a")
    assert not keys.matches("demo/**", keys.make_source_key(source, "demo/a")), "@adv is verbatim"
    assert keys.matches(keys.make_heartbeat_key("demo/a"), keys.make_source_key(source, "demo/a"))
    assert keys.matches(keys.make_query_key(source, "demo/a"), keys.make_source_key(source, "demo/a"))


@pytest.mark.parametrize("key", ["", "/", "p", "p/", "/a", "p/a//b", "p q/a", "p/a?x", "p/a#", "p/**/**", "p/a*b",
                                 "p/" + "a" * 5_000, "\u00e9/a", "p/a\n"])  # fmt: skip
def test_MS_47_no_plain_key(key):
    with pytest.raises(keys.BadKey, match="expected"):
        keys.read_plain(key)


@pytest.mark.parametrize("key", ["", "demo/a", "@adv/pub/a1/2/_", "a/@adv/pub/a1/2", "a/@adv/sub/a1/2/_",
                                 "a/@adv/pub/A1/2/_", "a/@adv/pub/0a/2/_", "a/@adv/pub/a1/x/_", "a/@adv/pub/a1/02/_",
                                 "a/@adv/pub/a1/4294967296/_", "a/@adv/pub//2/_", "a/@adv/pub/" + "a" * 33 + "/2/_",
                                 "a//@adv/pub/a1/2/_", "a/@adv/pub/a1/2/_/"])  # fmt: skip
def test_MS_47_no_advanced_key(key):
    with pytest.raises(keys.BadKey, match="expected"):
        keys.read_advanced(key)


@given(
    st.text(max_size=40), st.sampled_from([keys.read_plain, keys.read_advanced, keys.check_expression, keys.check_key])
)
def test_MS_47_no_text_is_worse_than_a_bad_key(text, read):
    with suppress(keys.BadKey):
        assert read(text)


@pytest.mark.parametrize(
    ("expression", "key", "found"),
    [
        ("a/b", "a/b", True), ("a/b", "a/c", False), ("a/*", "a/b", True), ("a/*", "a/b/c", False), ("a/*", "a", False),
        ("a/**", "a", True), ("a/**", "a/b/c", True), ("**", "a/b", True), ("**/c", "a/b/c", True),
        ("**/c", "a/c/b", False), ("a/**/c/*", "a/c/c/d", True), ("a/b$*", "a/bcd", True), ("a/$*d", "a/bcd", True),
        ("a/b$*d", "a/bcd", True), ("a/b$*b", "a/b", False), ("a/x$*y$*z", "a/x1y2z", True),
        ("a/x$*y$*z", "a/xz", False), ("**", "@a", False), ("*", "@a", False), ("@a", "@a", True),
        ("**/b", "a/@c/b", False), ("a", "a/b", False), ("$*", "@a", False),
    ],
)  # fmt: skip
def test_MS_47_which_keys_an_expression_is_about(expression, key, found):
    assert keys.matches(keys.check_expression(expression), keys.check_key(key)) is found


# -- subscriber -----------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(-100, 100), st.integers(3, 32))
def test_MS_62_the_nearest_number_is_read(number, away, width):
    half = 2 ** (width - 1)
    near = max(0, number + max(-half + 1, min(half, away)))
    assert unwrap_number(wrap_number(number, width), near, width) == number
    assert unwrap_number(number, near, 64) == number
