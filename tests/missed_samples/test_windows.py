"""Windows of queries, silence, progress, and what one answer may convict: clause by clause, and as it was found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from samples_world import World, newest
from test_source import Bench
from test_source_invariants import holds

from statemachines.missed_samples.message import Deliver, Heartbeat, Missed, Query, QueryEnded, QueryGoesOn, Sample
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.source_record import (
    Appeared,
    HistoryEnded,
    OpenQueries,
    QueryWindow,
    SourceRecord,
    SourceStatus,
)
from statemachines.missed_samples.subscriber_record import History, SubscriberStatus


def asked(bench):
    """First and last of every query so far."""
    return [(one.first, one.last) for one in bench.asked]


def gap(last, **given):
    """0 is delivered, and `last` shows that everything between is missing."""
    bench = Bench(**given)
    bench.sample(0)
    bench.sample(last)
    return bench


def test_MS_65_what_is_missing_is_asked_for_in_windows_that_do_not_meet():
    bench = Bench(window=10, windows=3)
    bench.sample(0)
    bench.sample(95, 99)
    assert asked(bench) == [(1, 10), (11, 20), (21, 30)]
    apart = Bench(window=10, windows=3, pending=500)
    apart.sample(0)
    apart.feed(Sample("p", 3, 40))
    assert asked(apart) == [(1, 10)]
    apart.sample(45, 60)
    apart.feed(QueryEnded("p", 1, 0))
    apart.tick()
    assert asked(apart)[1:] == [(1, 10), (41, 50)], "what has come between two holes is passed over"


def test_MS_65_the_invariant_tells_windows_that_meet_or_are_too_many():
    windows = (QueryWindow(1, 1, 4), QueryWindow(2, 5, 8))
    good = SourceRecord(
        "p", Recovery(windows=2), SourceStatus.RECOVERING, expected=1, top=9, asking=OpenQueries(windows)
    )
    assert holds("MS-65")(good)
    for bad in (
        {"asking": OpenQueries((QueryWindow(1, 1, 5), QueryWindow(2, 5, 8)))},
        {"asking": OpenQueries((*windows, QueryWindow(3, 9, 9)))},
        {"asking": OpenQueries()},
        {"status": SourceStatus.RESTING},
    ):
        assert not holds("MS-65")(replace(good, **bad))


def test_MS_09_the_end_of_a_window_makes_room_for_the_next():
    bench = gap(99, window=10, windows=2)
    bench.sample(1, 10)
    bench.feed(QueryEnded("p", 1, 10))
    assert asked(bench) == [(1, 10), (11, 20), (21, 30)]
    assert bench.status is SourceStatus.RECOVERING
    bench.feed(QueryEnded("p", 2, 0))
    assert len(bench.asked) == 3, "one has failed: nothing more is asked for until the round is over"


def test_MS_08_a_window_convicts_when_nothing_before_it_is_missing():
    bench = gap(30, window=10, windows=3)
    bench.sample(12, 15)
    assert bench.feed(QueryEnded("p", 2, 5)) == [], "an older number may still come"
    bench.sample(1, 9)
    assert bench.feed(QueryEnded("p", 1, 9)) == []
    bench.sample(10)
    assert bench.told[-2:] == [Deliver("p", 10, 10)] or bench.told[-1] == Deliver("p", 10, 10)
    assert bench.feed(QueryEnded("p", 3, 0)) == [Missed("p", 11, 11), Deliver("p", 12, 15)]


def test_MS_66_each_reply_begins_a_silence_anew():
    bench = gap(200)
    for number in range(1, 100, 3):
        bench.now += 1_900 * MS
        bench.sample(number)
        bench.feed(QueryGoesOn("p", 1))
    assert bench.status is SourceStatus.RECOVERING, "an answer of a minute"
    assert bench.node.armed_timers()["query", "p"] - bench.now == 3_800 * MS, "twice the longest silence that ended"
    bench.now += 3_799 * MS
    bench.feed(QueryGoesOn("p", 1))
    bench.tick()
    assert bench.status is SourceStatus.RESTING


def test_MS_66_what_is_waited_for_doubles_and_has_an_end():
    bench = gap(2, retries=9, timeout_ms=1_000, timeout_max_ms=5_000)
    waited = []
    for _ in range(4):
        waited.append((bench.node.armed_timers()["query", "p"] - bench.now) // MS)
        bench.tick()
        bench.tick()
    assert waited == [1_000, 2_000, 4_000, 5_000]
    bench.feed(QueryGoesOn("p", bench.asked[-1].n))
    bench.feed(QueryEnded("p", bench.asked[-1].n))
    bench.tick()
    assert bench.node.armed_timers()["query", "p"] - bench.now == 5_000 * MS, (
        "it was silent for long, and answers all the same"
    )
    late = gap(9)
    late.tick()
    late.now += 50 * MS
    late.feed(QueryGoesOn("p", 1))
    assert late.record.asking.silence_ns == 2_050 * MS, "measured, though nobody waits for it any more"


def test_MS_66_history_too_is_waited_for_from_its_last_reply():
    world = World(history=History())
    for _ in range(10):
        world.wait(1_900)
        world.tell(QueryGoesOn("*", 1))
    assert world.node.record.status is SubscriberStatus.HISTORY
    world.wait(2_000)
    assert world.node.record.status is SubscriberStatus.PAUSED


def test_MS_67_a_query_that_brought_something_is_no_failed_try():
    """As it was found: a slow link breaks each answer off, and each brings a little."""
    bench = gap(200, retries=0)
    for number in range(1, 200, 10):
        bench.sample(number, number + 8)
        bench.feed(QueryEnded("p", len(bench.asked)))
        bench.sample(number + 9)
    assert Missed not in {type(one) for one in bench.told}
    quiet = gap(200, retries=0)
    quiet.sample(1)
    quiet.tick()
    assert quiet.told == [Deliver("p", 0, 0), Deliver("p", 1, 1)], "nor where it falls silent behind that"


def test_MS_68_after_silence_one_window_is_asked_for():
    bench = gap(99, window=10, windows=4)
    assert len(bench.asked) == 4
    bench.tick()
    bench.tick()
    assert asked(bench)[4:] == [(1, 10)]
    bench.sample(1)
    bench.feed(QueryGoesOn("p", 5))
    bench.sample(2, 10)
    bench.feed(QueryEnded("p", 5, 10))
    assert asked(bench)[5:] == [(11, 20), (21, 30), (31, 40), (41, 50)], "somebody answers again"


def test_MS_69_of_a_long_hole_the_end_is_asked_for_where_its_beginning_is_in_no_cache():
    bench = gap(1_000, window=10, windows=2)
    for n in (1, 2):
        bench.feed(QueryEnded("p", n))
    bench.tick()
    assert bench.asked[2:] == [Query("p", 3, 1, 10, 0, 1_000)]
    bench.sample(991, 999)
    assert bench.feed(QueryEnded("p", 3, 1_000)) == [], "there may be more than it was asked for"
    assert bench.asked[3:] == [Query("p", 4, 1, 10, 0, 991)]
    bench.sample(988, 990)
    assert bench.feed(QueryEnded("p", 4, 991)) == [Missed("p", 1, 987), Deliver("p", 988, 1_000)]
    assert bench.status is SourceStatus.LIVE


def test_MS_69_a_cache_that_has_little_of_a_long_hole_costs_few_queries():
    world = World()
    world.publisher()
    world.cache(owner="p", history=1_000)
    world.publish()
    world.publish(count=100_000, lost=True)
    world.publish(count=2)
    while world.source().status is not SourceStatus.LIVE:
        world.answer_all()
        if world.source().status is SourceStatus.RESTING:
            world.tick()
    assert world.numbers(Missed) == list(range(1, 99_003))
    assert len(world.asked) < 20


@pytest.mark.parametrize("given", [{"past": True}, {}])
def test_MS_71_a_source_that_is_known_by_its_token_alone_is_asked(given):
    bench = Bench(**given)
    bench.feed(Appeared("p", not given))
    assert bench.asked == [newest("p", 1, 0)]
    bench.feed(Appeared("p", not given))
    assert len(bench.asked) == 1, "once"
    bench.sample(5, 6)
    assert asked(bench)[1:] == [(0, 255)], "it was there, and has sent more"
    old = Bench()
    old.feed(Appeared("p", False))
    assert old.asked == []


def test_MS_71_while_the_first_query_is_open_it_is_asked_after_that():
    bench = Bench(history=True)
    bench.feed(Appeared("p", True))
    assert bench.asked == []
    bench.feed(HistoryEnded())
    assert bench.asked == [newest("p", 1, 0)]


def test_MS_72_a_first_query_that_nobody_answered_is_sent_again():
    world = World(history=History(3), retries=2)
    world.publisher()
    world.cache(owner="p", history=9)
    world.publish(count=5, lost=True)
    world.publish()
    pauses = []
    for _ in range(2):
        world.end_empty()
        assert world.node.record.status is SubscriberStatus.PAUSED
        pauses.append((world.node.deadline() - world.now) // MS)
        world.tick()
    assert pauses == [100, 200]
    assert [(one.n, one.newest) for one in world.asked] == [(1, 3), (2, 3), (3, 3)]
    assert world.told == []
    world.answer()
    assert world.numbers(Deliver) == [3, 4, 5]


def test_MS_72_a_late_answer_to_an_earlier_one_counts_and_after_the_retries_everybody_goes_on():
    late = World(history=History())
    late.tell(Sample("p", 7, 7))
    late.tick()
    assert late.tell(QueryEnded("*", 1, 1)) == [Deliver("p", 7, 7)]
    never = World(history=History(), retries=1)
    never.tell(Sample("p", 7, 7))
    for _ in range(3):
        never.tick()
    assert never.told == [Deliver("p", 7, 7)]


def test_a_heartbeat_that_is_next_is_believed_however_large_the_wire():
    world = World(jump=5)
    world.tell(Sample("p", 0, 0))
    world.tell(Heartbeat("p", 5))
    assert world.source().top == 6


def test_a_slow_answer_behind_a_silence_that_is_longer_than_every_timeout_loses_nothing():
    """As it was found: 3 MB of somebody else's answer lie before ours on a link of 200 kB/s."""
    world = World()
    world.publisher()
    world.cache(owner="p", history=5_000)
    world.publish()
    world.publish(count=3_000, lost=True)
    world.publish()
    world.wait(20_000)
    assert world.numbers(Missed) == []
    while world.source().status is not SourceStatus.LIVE:
        world.answer_all()
        world.tick()
    assert world.numbers(Deliver) == list(range(3_002))
