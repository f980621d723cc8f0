"""Publisher, cache and subscriber of missed-samples recovery, clause by clause (spec/missed_samples/clauses.md)."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples_world import KEY, World, newest, window

from statemachines import kernel
from statemachines.missed_samples import keys, message, subscriber_record
from statemachines.missed_samples.cache import (
    CACHE,
    CacheQuery,
    CacheRecord,
    Published,
    Reply,
    ReplyEnded,
    ReplyRefused,
    Withdraw,
)
from statemachines.missed_samples.publisher import (
    PUBLISHER,
    Beats,
    Declare,
    HeartbeatDue,
    Publish,
    PublisherRecord,
    PublisherStatus,
    Stamped,
    Undeclare,
)
from statemachines.missed_samples.recovery import MS
from statemachines.missed_samples.selector import Malformed, Selector, history_text, parse, range_text
from statemachines.missed_samples.serial_number import is_range, origin, unwrap_number, wrap_number
from statemachines.missed_samples.source_record import Appeared, Disappeared, QueryTimeout, SourceStatus
from statemachines.missed_samples.subscriber import SUBSCRIBER

# -- publisher ------------------------------------------------------------------------------------------------------


def publisher(**given):
    node = kernel.Node(PUBLISHER, PublisherRecord("p", KEY, **given), name="p", now_ns=0, check=True)
    node.feed(Declare(), 0)
    return node


def beats(node, now):
    return [(now, one.message.last) for one in node.fire(now) if isinstance(one, kernel.Send)]


def test_MS_30_heartbeats_are_off_by_default():
    node = publisher()
    node.feed(Publish(), 0)
    assert node.record.status is PublisherStatus.SILENT
    assert node.armed_timers() == {}
    for beats in (Beats.OFF, Beats.SPORADIC):
        quiet = publisher(beats=beats)
        assert quiet.feed(HeartbeatDue("p"), 0) == [], "late"


def test_MS_31_periodic_heartbeats_say_the_last_number_once_a_period():
    node = publisher(beats=Beats.PERIODIC, period_ms=100)
    node.feed(Publish(3), 0)
    seconds = [100 * MS, 200 * MS]
    assert [beats(node, now) for now in seconds] == [[(100 * MS, 2)], [(200 * MS, 2)]]
    node.feed(Publish(), 250 * MS)
    assert beats(node, 299 * MS) == [], "what is published moves no heartbeat"
    assert beats(node, 300 * MS) == [(300 * MS, 3)]


def test_MS_32_sporadic_heartbeats_follow_a_change():
    node = publisher(beats=Beats.SPORADIC, period_ms=100)
    assert node.armed_timers() == {}
    node.feed(Publish(), 0)
    node.feed(Publish(), 60 * MS)
    assert beats(node, 99 * MS) == [], "a period after the first change"
    assert beats(node, 100 * MS) == [(100 * MS, 1)]
    assert node.armed_timers() == {}, "and no more until something changes"
    node.feed(Publish(), 500 * MS)
    assert node.armed_timers() == {("heartbeat", "p"): 600 * MS}


def test_MS_32_a_publisher_has_changed_only_by_publishing():
    (invariant,) = [one for one in PUBLISHER.invariants if one.clause == "MS-32"]
    assert invariant.holds(PublisherRecord("p", KEY, status=PublisherStatus.CHANGED, next=1))
    assert not invariant.holds(PublisherRecord("p", KEY, status=PublisherStatus.CHANGED))


@pytest.mark.parametrize("beats", Beats)
def test_MS_33_numbers_from_0_on_kept_first_then_sent(beats):
    node = publisher(beats=beats)
    assert node.feed(Publish(), 0) == [kernel.Tell(Stamped("p", 0, 0)), kernel.Send(KEY, message.Sample("p", 0, 0))]
    assert node.feed(Publish(3), 0) == [kernel.Tell(Stamped("p", 1, 3)), kernel.Send(KEY, message.Sample("p", 1, 3))]


def test_MS_33_the_wire_carries_the_lowest_bits():
    node = publisher(width=32, next=2**32 - 1)
    assert node.feed(Publish(2), 0) == [
        kernel.Tell(Stamped("p", 2**32 - 1, 2**32)),
        kernel.Send(KEY, message.Sample("p", 2**32 - 1, 2**32)),
    ]
    assert node.feed(Publish(), 0)[1] == kernel.Send(KEY, message.Sample("p", 1, 1))
    beating = publisher(width=32, next=2**32 + 5, beats=Beats.PERIODIC, period_ms=1)
    assert beats(beating, MS) == [(MS, 4)]


def test_MS_34_no_heartbeat_before_anything_was_published():
    node = publisher(beats=Beats.PERIODIC, period_ms=100)
    assert beats(node, 100 * MS) == []
    node.feed(Publish(), 150 * MS)
    assert beats(node, 200 * MS) == [(200 * MS, 0)]


def test_ALONE_a_publisher_hears_nobody_so_it_is_the_same_for_any_number_of_subscribers():
    """Nor does it send to anybody in particular: what goes out goes to its key."""
    assert PUBLISHER.alphabet
    assert not [event for event in PUBLISHER.alphabet if issubclass(event, (kernel.Message, kernel.Answer))]
    node = publisher(beats=Beats.PERIODIC, period_ms=100)
    sent = [*node.feed(Publish(), 0), *node.fire(100 * MS)]
    assert {one.to for one in sent if isinstance(one, kernel.Send)} == {KEY}


def test_MS_35_nothing_before_it_is_declared_nor_after():
    node = kernel.Node(PUBLISHER, PublisherRecord("p", KEY), name="p", now_ns=0)
    with pytest.raises(kernel.LocalProtocolError):
        node.feed(Publish(), 0)
    node.feed(Declare(), 0)
    with pytest.raises(kernel.LocalProtocolError):
        node.feed(Declare(), 0)
    node.feed(Undeclare(), 0)
    assert node.record.status is PublisherStatus.CLOSED
    with pytest.raises(kernel.ProtocolError):
        node.feed(Publish(), 0)
    with pytest.raises(ValueError, match="publish 0: expected at least 1"):
        Publish(0)


@pytest.mark.parametrize(("key", "value"), [("width", 1), ("width", 65), ("period_ms", 0), ("next", -1)])
def test_MS_35_a_publisher_that_cannot_be_is_refused_by_name(key, value):
    with pytest.raises(kernel.ConfigurationError, match=f"{key} = {value}"):
        PublisherRecord("p", KEY, **{key: value})


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


# -- cache ----------------------------------------------------------------------------------------------------------


def cache(**given):
    return kernel.Node(CACHE, CacheRecord(**given), name="c", now_ns=0, check=True)


def fill(node, *numbers, source="p", key=KEY, **given):
    for number in numbers:
        first, last = number if isinstance(number, tuple) else (number, number)
        node.feed(Published(key, source, first, last, **given), 0)


def asked(node, parameters="", source="p", expression=KEY, t_ns=0):
    return [one.message for one in node.feed(CacheQuery("s", 7, source, expression, parameters, t_ns), 0)]


def brought(node, parameters="", source="p", **given):
    *replies, end = asked(node, parameters, source, **given)
    assert end == ReplyEnded(7)
    return [number for one in replies for number in range(one.first, one.last + 1)]


def test_MS_40_a_sample_without_source_information_is_not_taken_in():
    node = cache()
    fill(node, 0, source="")
    assert asked(node, source="*", expression="**") == [ReplyEnded(7)]


def test_MS_41_nothing_from_elsewhere_and_nothing_of_another():
    node = cache(local=True, history=9)
    fill(node, 0)
    fill(node, 1, local=True)
    assert brought(node) == [1]
    mine = cache(prefix="p", history=9)
    fill(mine, 0, source="q")
    fill(mine, 1)
    assert brought(mine, source="*") == [1]
    here = cache(expression="demo/*", history=9)
    fill(here, 0, key="other/a")
    fill(here, 1)
    assert brought(here, expression="**") == [1]
    narrow = cache(width=3, history=9)
    fill(narrow, 8)
    fill(narrow, 7)
    assert brought(narrow) == [7]


def test_MS_42_one_queue_for_each_key_and_source_each_number_once():
    node = cache(history=3)
    fill(node, 5, 4, 5, 4)
    fill(node, 1, 2, source="q")
    fill(node, 1, key="demo/b")
    assert asked(node, source="*", expression="demo/*") == [
        Reply(7, "demo/a", "p", 4, 5),
        Reply(7, "demo/b", "p", 1, 1),
        Reply(7, "demo/a", "q", 1, 2),
        ReplyEnded(7),
    ]


def test_MS_43_full_the_lowest_goes_and_what_is_below_is_not_taken_in():
    node = cache(history=3)
    fill(node, 2, 5, 7)
    fill(node, 1)
    assert brought(node) == [2, 5, 7], "what is sent again pushes out nothing newer"
    fill(node, 6)
    assert brought(node) == [5, 6, 7]
    fill(node, (8, 40))
    assert brought(node) == [38, 39, 40]
    one = cache()
    fill(one, 3, 2)
    assert brought(one) == [3]
    wide = cache(history=3)
    fill(wide, 10, (1, 5))
    assert brought(wide) == [4, 5, 10]


def test_MS_43_the_invariant_tells_a_queue_that_is_too_long():
    (invariant,) = [one for one in CACHE.invariants if one.clause == "MS-43"]
    node = cache(history=3)
    fill(node, 1, 2, 3)
    record = node.record
    assert invariant.holds(record)
    assert not invariant.holds(msgspec.structs.replace(record, history=2))
    queue = msgspec.structs.replace(record.queues["p", KEY], count=2)
    assert not invariant.holds(msgspec.structs.replace(record, queues=record.queues.set(("p", KEY), queue)))


@pytest.mark.parametrize(
    ("parameters", "numbers"),
    [
        ("", [1, 2, 3, 6, 7, 9]),
        ("_sn=..", [1, 2, 3, 6, 7, 9]),
        ("_sn=2..6", [2, 3, 6]),
        ("_sn=3..", [3, 6, 7, 9]),
        ("_sn=..6", [1, 2, 3, 6]),
        ("_sn=7", [7]),
        ("_sn=8", []),
        ("_sn=10..", []),
        ("_max=2", [7, 9]),
        ("_max=0", []),
        ("_max=99", [1, 2, 3, 6, 7, 9]),
        ("_sn=..6;_max=2", [3, 6]),
        ("other=..x;_sn=1", [1]),
    ],
)
def test_MS_44_a_query_is_answered_with_what_it_asks_for_in_order(parameters, numbers):
    node = cache(history=9)
    fill(node, 9, 1, 2, (6, 7), 3)
    assert brought(node, parameters) == numbers
    assert brought(node, parameters, source="q") == []
    assert brought(node, parameters, expression="demo/b") == []


@pytest.mark.parametrize(
    ("parameters", "numbers"),
    [
        ("_time=[now(-2s)..now()]", [3, 4]),
        ("_time=]now(-2s)..now()]", [4]),
        ("_time=[now(-2s)..now()[", [3, 4]),
        ("_time=[..4s]", None),
        ("_time=[..2000000000]", [1, 2]),
        ("_time=[2000000000..3000000000[", [2]),
        ("_time=[now(-50ms)..now(+1h)]", []),
        ("_time=[..]", [1, 2, 3, 4]),
        ("_time=[now(-2s)..];_max=1", [4]),
    ],
)
def test_MS_44_of_a_time(parameters, numbers):
    node = cache(history=9)
    for number in (1, 2, 3, 4):
        fill(node, number, t_ns=number * 1_000 * MS)
    fill(node, 5)
    if numbers is None:
        assert isinstance(asked(node, parameters)[0], ReplyRefused)
        return
    wanted = [*numbers, 5] if parameters == "_time=[..]" else numbers
    assert brought(node, parameters, t_ns=5_000 * MS) == wanted, "of a sample without a time nobody says when it was"


def test_MS_44_the_time_of_a_sample_is_that_of_the_first_that_came():
    node = cache(history=2)
    fill(node, 1, t_ns=1_000)
    fill(node, (1, 2), t_ns=2_000)
    assert brought(node, "_time=[..1000]") == [1]
    fill(node, 3, t_ns=3_000)
    assert dict(node.record.queues["p", KEY].times) == {2: 2_000, 3: 3_000}, "no time is kept of what is not"


@pytest.mark.parametrize(
    "parameters",
    ["_sn=", "_sn=a..b", "_sn=5..3", "_sn=-1..", "_sn=1...3", "_sn=1..2..3", "_sn=0x1", "_sn=\u0661..", "_sn=1 ..",
     "_sn=18446744073709551616", "_sn=99999999999999999999999", "_max=", "_max=..", "_max=-1", "_sn=1;_sn=2",
     "_time=", "_time=1..2", "_time=[x..]", "_time=[now(..]", "_time=[now(-1)..]", "_time=[1..2", "x" * 5_000],
)  # fmt: skip
def test_MS_45_what_cannot_be_read_is_answered_with_an_error(parameters):
    node = cache(history=9)
    fill(node, 1, 2, 3)
    (refused,) = asked(node, parameters)
    assert isinstance(refused, ReplyRefused)
    assert refused.n == 7
    assert "expected" in refused.why
    assert len(refused.why) < 250
    with pytest.raises(Malformed, match="expected"):
        parse(parameters, 64, 0)


@given(st.text(alphabet="_snmaxtime=;.0123456789[]()-now"))
def test_MS_45_no_text_is_worse_than_malformed(text):
    with suppress(Malformed):
        parse(text, 64, 10**18)
    assert asked(cache(), text)


def test_MS_45_what_is_asked_for_is_what_is_read():
    assert parse(range_text(3), 64, 0) == Selector(first=3)
    assert parse(range_text(3, 9), 64, 0) == Selector(3, 9)
    assert parse(history_text(2, 1_500), 64, 2_000 * MS) == Selector(newest=2, begin_ns=500 * MS)
    assert parse(history_text(0, 0), 64, 0) == Selector()


def test_MS_46_a_cache_that_is_withdrawn_answers_nothing():
    node = cache()
    fill(node, 0)
    node.feed(Withdraw(), 0)
    assert node.stopped
    with pytest.raises(kernel.ProtocolError):
        asked(node)


def test_MS_43_a_history_of_none_is_refused_by_name():
    with pytest.raises(kernel.ConfigurationError, match="history = 0: at least 1"):
        CacheRecord(history=0)


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


def test_MS_47_a_key_of_a_sample_has_no_wildcard():
    for bad in ("a/*", "**", "a$*"):
        with pytest.raises(keys.BadKey, match="without"):
            keys.check_key(bad)


# -- subscriber -----------------------------------------------------------------------------------------------------


def test_MS_50_with_history_it_begins_with_one_query_about_every_source():
    world = World(history=subscriber_record.History(3, 1_000), past=True)
    assert world.asked == [message.Query("*", 1, 0, 3, 1_000)]
    assert world.node.record.status is subscriber_record.SubscriberStatus.HISTORY
    assert list(world.node.armed_timers()) == [("history", "")]
    with pytest.raises(kernel.ConfigurationError, match="newest = -1"):
        subscriber_record.History(newest=-1)
    with pytest.raises(kernel.ConfigurationError, match="age_ms = -1"):
        subscriber_record.History(age_ms=-1)


def test_MS_51_without_history_it_asks_nothing_and_begins_once():
    world = World()
    assert (world.asked, world.node.record.status) == ([], subscriber_record.SubscriberStatus.SUBSCRIBED)
    with pytest.raises(kernel.LocalProtocolError):
        world.tell(subscriber_record.Subscribe())
    node = kernel.Node(SUBSCRIBER, subscriber_record.SubscriberRecord(), name="s", now_ns=0)
    events = (
        message.Sample("p", 0, 0),
        message.Unnumbered(),
        message.Heartbeat("p", 3),
        Appeared("p", True),
        Disappeared("p"),
    )
    for event in (*events, message.QueryEnded("p", 1, 1), QueryTimeout("p"), subscriber_record.HistoryTimeout()):
        assert node.feed(event, 0) == []
    assert node.record == subscriber_record.SubscriberRecord()


@pytest.mark.parametrize("event", [message.Sample("p", 8, 8), message.Heartbeat("p", 8)])
def test_MS_52_a_number_that_the_wire_does_not_have_counts_for_nothing(event):
    world = World(width=3)
    world.tell(event)
    assert "p" not in world.node.record.sources
    world.tell(message.Sample("p", 7, 9))
    assert world.told == [message.Deliver("p", 7, 9)], "a range may come round"


def test_MS_53_what_comes_of_a_source_goes_to_it():
    world = World()
    world.tell(Appeared("q", True))
    world.tell(message.Sample("p", 4, 4))
    world.tell(message.Heartbeat("q", 1))
    assert world.told == [message.Deliver("p", 4, 4)]
    assert world.asked == [newest("q", 1, 0), window("q", 2, 0)], "of a source that came up meanwhile nothing is past"
    world.tell(Disappeared("q"))
    assert not world.source("q").alive
    world.tell(Disappeared("r"))
    assert "r" not in world.node.record.sources


def test_MS_54_a_sample_without_source_information_is_passed_on():
    for world in (World(), World(history=subscriber_record.History())):
        assert world.tell(message.Unnumbered()) == [message.DeliverUnnumbered()]
        assert not world.node.record.sources


def test_MS_55_a_heartbeat_that_nothing_was_sent_yet():
    world = World(past=True)
    world.tell(message.Heartbeat("p", -1))
    assert world.asked == [], "nothing is missing"
    assert world.source().status is SourceStatus.LIVE
    world.tell(message.Sample("p", 0, 3))
    world.tell(message.Heartbeat("p", -1))
    assert (world.asked, world.source().top, world.told) == ([], 4, [message.Deliver("p", 0, 3)])
    narrow = World(width=3, past=True)
    narrow.tell(message.Heartbeat("p", -1))
    narrow.tell(message.Sample("p", 3, 3))
    assert narrow.asked == [window("p", 1, 8)]
    narrow.tell(message.Heartbeat("p", -1))
    assert narrow.source().top == 12


@pytest.mark.parametrize(
    "end", [message.QueryEnded("*", 1, 1), message.QueryEnded("*", 1), subscriber_record.HistoryTimeout()]
)
def test_MS_56_at_the_end_of_the_first_query_every_source_goes_on_in_order(end):
    world = World(history=subscriber_record.History(), retries=0)
    world.tell(message.Sample("q", 4, 4))
    world.tell(message.Sample("p", 3, 3))
    world.tell(message.Sample("p", 1, 1))
    assert world.told == []
    assert world.tell(end) == [message.Deliver("p", 1, 1), message.Deliver("q", 4, 4)]
    assert world.node.record.status is subscriber_record.SubscriberStatus.SUBSCRIBED
    assert world.asked[1:] == [window("p", 1, 2)]
    assert ("history", "") not in world.node.armed_timers()
    assert world.tell(message.Sample("r", 9, 9)) == [message.Deliver("r", 9, 9)], "met later, it begins as any other"


def test_MS_56_the_first_query_is_waited_for_as_long_as_any():
    world = World(history=subscriber_record.History(), timeout_ms=700, retries=0)
    world.tell(message.Sample("p", 3, 3))
    assert world.tick() == [message.Deliver("p", 3, 3)]
    assert world.now == 700 * MS


def test_MS_57_an_end_or_a_timer_goes_to_its_source():
    world = World(retries=0, timeout_ms=500, backoff_ms=10, retention_ms=3_000, period_ms=900)
    for source in ("p", "q"):
        world.tell(message.Sample(source, 0, 0))
        world.tell(message.Sample(source, 2, 2))
    assert world.asked == [window("p", 1, 1), window("q", 1, 1)]
    assert world.tell(message.QueryEnded("q", 1)) == [message.Missed("q", 1, 1), message.Deliver("q", 2, 2)]
    assert world.source("p").status is SourceStatus.RECOVERING
    assert world.tick() == [message.Missed("p", 1, 1), message.Deliver("p", 2, 2)]
    world.wait(900)
    assert world.asked[2:] == [newest("q", 2, 3), newest("p", 2, 3)], "each has its own period"
    world.wait(10_000)
    assert dict(world.node.record.sources) == {}, "silent for a retention"


def test_MS_57_a_pause_of_one_source_is_its_own():
    world = World(retries=1, backoff_ms=10, backoff_max_ms=10)
    world.tell(message.Sample("p", 0, 0))
    world.tell(message.Sample("p", 2, 2))
    world.tell(message.QueryEnded("p", 1))
    world.tick()
    assert (world.now, world.asked) == (10 * MS, [window("p", 1, 1), window("p", 2, 1)])


def test_MS_58_closed_it_forgets_everything():
    world = World(history=subscriber_record.History())
    world.tell(message.Sample("p", 0, 0))
    world.tell(subscriber_record.Unsubscribe())
    assert world.node.stopped
    assert world.node.armed_timers() == {}
    with pytest.raises(kernel.ProtocolError):
        world.tell(message.Sample("p", 1, 1))


def test_MS_59_ends_and_timers_of_what_is_forgotten_change_nothing():
    world = World()
    before = world.node.record
    for event in (message.QueryEnded("p", 1, 1), message.QueryEnded("*", 1, 1), Disappeared("p"), QueryTimeout("p")):
        assert world.tell(event) == []
    assert world.tell(subscriber_record.HistoryTimeout()) == []
    assert world.node.record == before


def test_MS_60_a_source_that_is_gone_is_not_kept():
    world = World()
    world.tell(Appeared("p", True))
    assert "p" in world.node.record.sources
    world.tell(Disappeared("p"))
    assert dict(world.node.record.sources) == {}


def test_MS_60_the_invariant_tells_a_source_that_is_not_sound():
    (invariant,) = [one for one in SUBSCRIBER.invariants if one.clause == "MS-60"]
    world = World()
    world.tell(message.Sample("p", 0, 3))
    record, source = world.node.record, world.source()
    touching = message.Sample("p", 4, 4)
    assert invariant.holds(record)
    assert invariant.touched(record, touching)
    for bad in ({"status": SourceStatus.GONE}, {"expected": 3}, {"held": ((9, 9),)}):
        broken = record.sources.set("p", msgspec.structs.replace(source, **bad))
        broken = msgspec.structs.replace(record, sources=broken)
        assert not invariant.holds(broken)
        assert not invariant.touched(broken, touching)
    for other in (
        record.sources.set("q", source),
        record.sources.set("p", msgspec.structs.replace(source, history=True)),
    ):
        assert not invariant.holds(msgspec.structs.replace(record, sources=other))


def test_MS_61_the_numbers_of_queries_rise_over_everything_that_is_forgotten():
    world = World(retention_ms=1_000)
    world.tell(message.Sample("p", 0, 0))
    world.tell(message.Sample("p", 2, 2))
    world.tell(message.Sample("p", 1, 1))
    world.wait(5_000)
    assert dict(world.node.record.sources) == {}, "the query has not ended yet"
    world.tell(message.Sample("p", 7, 7))
    world.tell(message.Sample("p", 9, 9))
    assert world.asked == [window("p", 1, 1), window("p", 2, 8)]
    assert world.tell(message.QueryEnded("p", 1, 9)) == [], "the end of the earlier one convicts nothing"
    assert world.tell(message.QueryEnded("p", 2, 2)) == [message.Missed("p", 8, 8), message.Deliver("p", 9, 9)]


@pytest.mark.parametrize("width", [3, 32])
def test_MS_62_numbers_that_come_round(width):
    top = 2**width - 1
    world = World(width=width)
    world.tell(message.Sample("p", top - 1, top - 1))
    world.tell(message.Sample("p", 0, 0))
    assert world.asked == [window("p", 1, 2 * 2**width - 1)]
    world.tell(message.Sample("p", top, top))
    world.tell(message.Sample("p", top, top))
    assert world.numbers(message.Deliver) == [top - 1, top, 0]
    assert world.source().dropped == 1
    beat = World(width=width)
    beat.tell(message.Sample("p", top, top))
    beat.tell(message.Heartbeat("p", 0))
    assert beat.asked == [window("p", 1, 2 * 2**width)]


def test_MS_62_what_was_before_the_turn_is_older():
    world = World(history=subscriber_record.History(), width=3)
    world.tell(message.Sample("p", 0, 0))
    world.tell(message.Sample("p", 7, 7))
    assert world.tell(message.QueryEnded("*", 1, 1)) == [message.Deliver("p", 7, 8)]


@given(st.integers(0, 10**6), st.integers(-100, 100), st.integers(3, 32))
def test_MS_62_the_nearest_number_is_read(number, away, width):
    half = 2 ** (width - 1)
    near = max(0, number + max(-half + 1, min(half, away)))
    assert unwrap_number(wrap_number(number, width), near, width) == number
    assert unwrap_number(number, near, 64) == number


def test_MS_62_where_counting_begins_and_what_is_a_range():
    assert (origin(64), origin(32)) == (0, 2**32)
    assert is_range(3, 3, 64)
    assert not is_range(4, 3, 64)
    assert is_range(6, 1, 3)
    assert not is_range(1, 6, 3)
    node = cache(width=3, history=9)
    fill(node, 6, 7, 0, 1)
    assert brought(node, "_sn=7..0") == [7, 8], "the last of a range is so many after its first"
    assert brought(node, "_sn=..7") == [6, 7]
    assert isinstance(asked(node, "_sn=8")[0], ReplyRefused)


def test_MS_24_a_source_without_a_name_of_its_own_is_malformed():
    for source in ("", "*"):
        with pytest.raises(ValueError, match="expected the name of one source"):
            message.Sample(source, 0, 0)
        with pytest.raises(ValueError, match="heartbeat"):
            message.Heartbeat(source, 0)
    with pytest.raises(ValueError, match="expected the name of one source"):
        Published(KEY, "*", 0, 0)
    with pytest.raises(kernel.ConfigurationError, match="width = 65"):
        subscriber_record.SubscriberRecord(width=65)
    with pytest.raises(kernel.ConfigurationError, match="width = 1"):
        CacheRecord(width=1)


def test_MS_14_a_query_that_is_answered_within_its_own_step_enters_nothing_twice():
    """What the machine asks stands in its effects, and so after the step: the answer is another step."""
    world = World()
    world.tell(message.Sample("p", 0, 0))
    effects = world.node.feed(message.Sample("p", 2, 2), 0)
    (ask,) = [one for one in effects if isinstance(one, kernel.Ask)]
    assert world.source().status is SourceStatus.RECOVERING
    assert ask.request == window("p", 1, 1)
    assert world.tell(message.Sample("p", 1, 1)) == [message.Deliver("p", 1, 2)]
    assert world.tell(message.QueryEnded("p", 1, 2)) == []
