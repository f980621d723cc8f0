"""One source of a missed-samples Subscriber, fed with ranges, clause by clause (spec/missed_samples/clauses.md)."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples_world import newest, window

from statemachines.kernel import Ask, ConfigurationError, Node, Tell
from statemachines.missed_samples.message import (
    Deliver,
    Heartbeat,
    Missed,
    QueryEnded,
    QueryGoesOn,
    Sample,
)
from statemachines.missed_samples.ranges import add, overlap, size
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import (
    Appeared,
    Disappeared,
    HistoryEnded,
    PeriodOver,
    QueryTimeout,
    Rested,
    RetentionOver,
    SourceRecord,
    SourceStatus,
)


class Bench:
    """A source; what it told and what it asked, and each step compared with the step of `transitions`."""

    def __init__(self, *, history=False, **recovery):
        record = SourceRecord("p", Recovery(**recovery), history=history)
        self.node = Node(SOURCE, record, name="s/p", now_ns=0, check=True, observe=self.saw)
        self.before = record
        self.told = []
        self.asked = []
        self.clauses = []
        self.now = 0

    def saw(self, node, event, before, step, now_ns):
        self.clauses.append(SOURCE.lines[step.row].clause)
        reference = SOURCE.reference_step(self.before, event, now_ns)
        assert (reference.record, reference.effects, reference.row) == (step.record, step.effects, step.row)
        self.before = step.record

    def feed(self, event):
        return self.keep(self.node.feed(event, self.now))

    def keep(self, effects):
        told = [effect.event for effect in effects if isinstance(effect, Tell)]
        self.told += told
        self.asked += [effect.request for effect in effects if isinstance(effect, Ask)]
        return told

    def sample(self, first, last=None):
        return self.feed(Sample("p", first, first if last is None else last))

    def tick(self):
        """To the next timer, if one is armed."""
        deadline = self.node.deadline()
        assert deadline is not None
        self.now = max(self.now, deadline)
        return self.keep(self.node.fire(self.now))

    @property
    def record(self):
        return self.node.record

    @property
    def status(self):
        return self.record.status


def test_MS_01_the_first_contact_decides_where_a_source_begins():
    bench = Bench()
    assert bench.sample(7, 9) == [Deliver("p", 7, 9)]
    late = Bench()
    assert late.feed(Heartbeat("p", 4)) == []
    assert late.sample(5) == [Deliver("p", 5, 5)]
    assert bench.asked == late.asked == []
    gap = Bench()
    gap.feed(Heartbeat("p", 4))
    gap.sample(7)
    assert gap.asked == [window("p", 1, 5)]


def test_MS_02_the_past_is_asked_for_where_it_counts():
    bench = Bench(past=True)
    bench.sample(3)
    assert bench.asked == [window("p", 1, 0)]
    assert bench.sample(0, 2) == [Deliver("p", 0, 3)]
    beat = Bench(past=True)
    beat.feed(Heartbeat("p", 1))
    assert beat.asked == [window("p", 1, 0)]


def test_MS_03_in_order_at_once_and_older_ones_dropped_and_counted():
    bench = Bench()
    bench.sample(0, 4)
    assert bench.sample(3, 6) == [Deliver("p", 5, 6)]
    assert bench.sample(1) == []
    assert bench.record.dropped == 3
    bench.sample(9)
    bench.sample(9)
    assert bench.record.dropped == 4


def test_MS_04_what_is_ahead_is_held_and_the_hole_is_asked_for():
    bench = Bench()
    bench.sample(0)
    assert bench.sample(5, 9) == []
    assert bench.asked == [window("p", 1, 1)]
    assert bench.status is SourceStatus.RECOVERING


def test_MS_05_what_has_become_contiguous_is_delivered():
    bench = Bench()
    bench.sample(0)
    bench.sample(5)
    bench.sample(9)
    assert bench.sample(1, 4) == [Deliver("p", 1, 5)]
    assert bench.status is SourceStatus.RECOVERING
    bench.feed(QueryEnded("p", 1))
    assert bench.sample(7) == []


def test_MS_05_also_while_it_rests():
    bench = Bench(reliable=False)
    bench.sample(0)
    bench.sample(4)
    bench.feed(QueryEnded("p", 1))
    assert bench.status is SourceStatus.RESTING
    assert bench.sample(1, 2) == [Deliver("p", 1, 2)]
    assert bench.status is SourceStatus.RESTING


def test_MS_06_with_nothing_missing_it_is_live_and_an_open_query_does_not_matter():
    bench = Bench()
    bench.sample(0)
    bench.sample(2)
    assert bench.sample(1) == [Deliver("p", 1, 2)]
    assert bench.status is SourceStatus.LIVE
    assert list(bench.node.armed_timers()) == [("retention", "p")]
    bench.feed(QueryEnded("p", 1, 2))
    assert bench.clauses[-1] == "MS-12"
    bench.sample(5)
    bench.feed(QueryEnded("p", 2))
    assert bench.status is SourceStatus.RESTING
    bench.sample(3, 4)
    assert bench.status is SourceStatus.LIVE


@pytest.mark.parametrize("state", ["live", "recovering", "resting"])
def test_MS_07_a_heartbeat_shows_what_was_lost_at_the_end(state):
    bench = Bench()
    bench.sample(0)
    if state != "live":
        bench.sample(3)
    if state == "resting":
        bench.feed(QueryEnded("p", 1))
    bench.feed(Heartbeat("p", 6))
    assert bench.clauses[-1] == "MS-07"
    assert bench.record.top == 7
    assert len(bench.asked) == 1, "at once only when nothing was missing before"


def test_MS_08_a_reply_convicts_what_it_did_not_bring():
    bench = Bench()
    bench.sample(0)
    bench.sample(5)
    bench.sample(2)
    assert bench.feed(QueryEnded("p", 1, 5)) == [
        Missed("p", 1, 1),
        Deliver("p", 2, 2),
        Missed("p", 3, 4),
        Deliver("p", 5, 5),
    ]
    assert bench.status is SourceStatus.LIVE


def test_MS_08_only_below_the_highest_number_that_it_brought():
    bench = Bench()
    bench.sample(0)
    bench.feed(Heartbeat("p", 3))
    bench.feed(Heartbeat("p", 6))
    assert bench.feed(QueryEnded("p", 1, 3)) == [Missed("p", 1, 3)]
    assert bench.asked[-1] == window("p", 2, 4)


def test_MS_08_not_where_replies_may_be_lost():
    bench = Bench(reliable=False)
    bench.sample(0)
    bench.sample(2)
    assert bench.feed(QueryEnded("p", 1, 2)) == []
    assert bench.status is SourceStatus.RESTING


def test_MS_09_what_came_to_be_missing_later_is_asked_for_at_the_end_of_the_query():
    bench = Bench()
    bench.sample(0)
    bench.sample(2)
    bench.sample(9)
    assert bench.feed(QueryEnded("p", 1, 2)) == [Missed("p", 1, 1), Deliver("p", 2, 2)]
    assert bench.asked[-1] == window("p", 2, 3)
    assert bench.status is SourceStatus.RECOVERING


def test_MS_10_without_a_reply_a_number_is_asked_for_again_after_growing_pauses():
    bench = Bench(retries=2)
    bench.sample(0)
    bench.sample(2)
    pauses = []
    for n in (1, 2):
        assert bench.feed(QueryEnded("p", n)) == []
        pauses.append(bench.node.deadline() - bench.now)
        bench.tick()
    assert pauses == [100 * MS, 200 * MS]
    assert bench.feed(QueryEnded("p", 3)) == [Missed("p", 1, 1), Deliver("p", 2, 2)]
    assert bench.asked == [window("p", n, 1) for n in (1, 2, 3)]


def test_MS_10_the_pauses_double_up_to_the_greatest():
    bench = Bench(retries=6)
    bench.sample(0)
    bench.sample(2)
    pauses = []
    for n in range(1, 7):
        bench.feed(QueryEnded("p", n))
        pauses.append((bench.node.armed_timers()["rest", "p"] - bench.now) // MS)
        bench.tick()
    assert pauses == [100, 200, 400, 800, 1_000, 1_000]


def test_MS_10_attempts_count_per_number():
    bench = Bench(retries=1)
    bench.sample(0)
    bench.sample(2)
    bench.feed(QueryEnded("p", 1))
    bench.sample(4)
    bench.tick()
    assert bench.asked[-1] == window("p", 2, 1)
    assert bench.feed(QueryEnded("p", 2)) == [Missed("p", 1, 1), Deliver("p", 2, 2)]
    bench.tick()
    assert bench.feed(QueryEnded("p", 3)) == [Missed("p", 3, 3), Deliver("p", 4, 4)]


def test_MS_10_new_holes_do_not_shorten_the_pauses():
    bench = Bench(retries=2)
    bench.sample(0)
    for number in range(2, 100, 2):
        bench.sample(number)
        bench.feed(QueryEnded("p", len(bench.asked)))
    assert numbers(bench, Missed) == []
    assert len(bench.asked) == 1


def test_MS_11_a_query_that_never_ends_counts_as_one_that_brought_nothing():
    bench = Bench(retries=1)
    bench.sample(0)
    bench.sample(2)
    assert bench.tick() == []
    assert bench.now == 2_000 * MS
    bench.feed(QueryEnded("p", 1, 2))
    assert bench.status is SourceStatus.RESTING, "too late"
    bench.tick()
    assert bench.tick() == [Missed("p", 1, 1), Deliver("p", 2, 2)]


def test_MS_11_what_was_asked_for_often_enough_is_reported_and_the_rest_waits():
    bench = Bench(retries=0)
    bench.sample(0)
    bench.sample(2)
    bench.sample(4)
    assert bench.tick() == [Missed("p", 1, 1), Deliver("p", 2, 2)]
    assert (bench.status, bench.record.missing) == (SourceStatus.RESTING, 1)


def test_MS_12_a_heartbeat_that_says_nothing_new_changes_nothing():
    bench = Bench()
    bench.sample(0, 4)
    before = bench.record
    assert bench.feed(Heartbeat("p", 4)) == []
    assert bench.clauses[-1] == "MS-12"
    assert bench.feed(QueryEnded("p", 3, 1)) == []
    assert bench.feed(QueryGoesOn("p", 3)) == []
    assert bench.record == before
    assert bench.asked == [], "without loss no query is sent"


@pytest.mark.parametrize("state", ["unknown", "history", "live", "recovering", "resting"])
def test_MS_13_late_timers_change_nothing(state):
    bench = Bench(history=state == "history")
    if state != "unknown":
        bench.sample(0)
    if state in ("recovering", "resting"):
        bench.sample(2)
    if state == "resting":
        bench.feed(QueryEnded("p", 1))
    assert bench.status.value == state
    taken = {"live": {PeriodOver, RetentionOver}, "recovering": {QueryTimeout, RetentionOver}}
    taken["resting"] = {Rested, RetentionOver}
    before = bench.record
    for event in set(SOURCE.timer_registry().values()) - taken.get(state, set()):
        assert bench.feed(event("p")) == []
        assert bench.clauses[-1] == "MS-13"
    assert bench.record == before


# -- history, periodic queries, retention ---------------------------------------------------------------------------


def test_MS_14_while_the_first_query_is_open_everything_is_held():
    bench = Bench(history=True)
    assert bench.sample(7) == []
    assert bench.sample(3, 4) == []
    assert bench.sample(9) == []
    assert (bench.status, bench.record.held) == (SourceStatus.HISTORY, ((3, 4), (7, 7), (9, 9)))
    beat = Bench(history=True)
    beat.feed(Heartbeat("p", 4))
    beat.sample(2, 3)
    beat.feed(Heartbeat("p", 5))
    assert (beat.status, beat.record.held, beat.record.missing) == (SourceStatus.HISTORY, ((2, 3),), 2)
    assert bench.asked == beat.asked == []


def test_MS_15_at_its_end_delivery_begins_with_the_lowest_that_came():
    bench = Bench(history=True, past=True)
    bench.sample(7, 9)
    bench.sample(3, 6)
    assert bench.feed(HistoryEnded()) == [Deliver("p", 3, 9)]
    assert (bench.status, bench.asked) == (SourceStatus.LIVE, [])


def test_MS_15_holes_are_asked_for_then():
    bench = Bench(history=True)
    bench.sample(7, 9)
    bench.sample(3, 4)
    assert bench.feed(HistoryEnded()) == [Deliver("p", 3, 4)]
    assert (bench.status, bench.asked) == (SourceStatus.RECOVERING, [window("p", 1, 5)])


def test_MS_15_a_source_met_after_it_begins_as_any_other():
    bench = Bench(history=True, past=True)
    bench.feed(HistoryEnded())
    bench.sample(2)
    assert bench.asked == [window("p", 1, 0)]
    bench.feed(HistoryEnded())
    assert bench.clauses[-1] == "MS-15"


@pytest.mark.parametrize(("first", "status"), [(5, SourceStatus.LIVE), (6, SourceStatus.RECOVERING)])
def test_MS_16_more_than_may_be_held_ends_the_waiting(first, status):
    bench = Bench(history=True, history_limit=6)
    bench.sample(0, 4)
    assert bench.sample(first, first + 1)[0].first == 0
    assert bench.status is status
    assert bench.asked == ([] if status is SourceStatus.LIVE else [window("p", 1, 5)])
    wide = Bench(history=True, history_limit=6)
    assert wide.sample(5, 11) == [Deliver("p", 5, 11)]
    assert wide.status is SourceStatus.LIVE


def test_MS_17_the_source_is_asked_periodically_while_nothing_is_missing():
    bench = Bench(period_ms=500)
    bench.sample(0)
    bench.tick()
    assert (bench.now, bench.asked) == (500 * MS, [newest("p", 1, 1)])
    assert bench.sample(1, 2) == [Deliver("p", 1, 2)], "lost at the end"
    bench.tick()
    bench.feed(QueryEnded("p", 2))
    assert (bench.status, len(bench.asked)) == (SourceStatus.LIVE, 2)
    bench.tick()
    bench.tick()
    assert (bench.now, bench.status) == ((3 * 500 + 2_000) * MS, SourceStatus.LIVE), "a query that never ends"
    assert bench.node.armed_timers()["period", "p"] == bench.now + 500 * MS


def test_MS_17_from_the_first_contact_on_even_by_a_heartbeat():
    bench = Bench(period_ms=500)
    bench.feed(Heartbeat("p", 4))
    bench.tick()
    assert (bench.now, bench.asked) == (500 * MS, [newest("p", 1, 5)])


@pytest.mark.parametrize(("new", "asked"), [(True, [newest("p", 1, 0), window("p", 2, 0)]), (False, [])])
def test_MS_18_of_a_source_that_came_up_meanwhile_nothing_is_past(new, asked):
    bench = Bench()
    bench.feed(Appeared("p", new))
    bench.sample(2)
    assert bench.asked == asked


@pytest.mark.parametrize("first", [Sample("p", 3, 3), Heartbeat("p", 2)])
def test_MS_18_nor_while_the_first_query_is_open(first):
    bench = Bench(history=True)
    bench.feed(Appeared("p", True))
    assert bench.feed(first) == []
    assert bench.status is SourceStatus.HISTORY
    bench.feed(HistoryEnded())
    assert bench.asked == [window("p", 1, 0)]
    bench.sample(0, 3)
    assert numbers(bench, Deliver) == [0, 1, 2, 3]


def test_MS_18_nor_where_the_first_sample_ends_the_waiting():
    bench = Bench(history=True, history_limit=2)
    bench.feed(Appeared("p", True))
    assert bench.sample(3, 9) == []
    assert (bench.status, bench.asked) == (SourceStatus.RECOVERING, [window("p", 1, 0)])


def test_MS_18_a_source_is_known_to_live_from_its_token_until_that_goes():
    bench = Bench(retention_ms=1_000)
    bench.sample(0)
    bench.feed(Appeared("p", False))
    for _ in range(3):
        bench.tick()
    assert bench.status is SourceStatus.LIVE, "silent, and known to live"
    bench.feed(Disappeared("p"))
    bench.tick()
    assert bench.status is SourceStatus.GONE


@pytest.mark.parametrize(("first", "last"), [(5, 1), (5, 4), (-1, 3), (-5, -2)])
def test_MS_24_a_malformed_range_never_reaches_the_machine(first, last):
    good = msgspec.msgpack.encode(Sample("p", 5, 7))
    bad = msgspec.msgpack.encode(["sample", "p", first, last])
    assert msgspec.msgpack.decode(good, type=Sample) == Sample("p", 5, 7)
    with pytest.raises(msgspec.ValidationError, match=f"{first}..{last} of 'p': expected 0 <= first <= last"):
        msgspec.msgpack.decode(bad, type=Sample)
    with pytest.raises(ValueError, match="expected 0 <= first <= last"):
        Sample("p", first, last)


def test_MS_24_a_heartbeat_says_at_least_that_nothing_was_sent():
    bench = Bench()
    bench.feed(Heartbeat("p", -1))
    assert bench.sample(0) == [Deliver("p", 0, 0)]
    with pytest.raises(ValueError, match="at least -1"):
        Heartbeat("p", -2)


@pytest.mark.parametrize(
    ("key", "value"),
    [("retries", -1), ("timeout_ms", 0), ("backoff_ms", 0), ("backoff_max_ms", 99), ("pending", -1),
     ("history_limit", -1), ("period_ms", -1), ("retention_ms", 0)],
)  # fmt: skip
def test_MS_24_a_setting_that_cannot_be_is_refused_by_name(key, value):
    with pytest.raises(ConfigurationError, match=f"{key} = {value}: at least"):
        Recovery(**{key: value})


def test_MS_19_a_silent_source_is_forgotten_and_not_one_that_lives():
    bench = Bench(retention_ms=1_000)
    bench.sample(0)
    bench.tick()
    assert bench.status is SourceStatus.LIVE, "it was heard of"
    bench.feed(Appeared("p", True))
    bench.tick()
    assert bench.status is SourceStatus.LIVE, "it is known to live"
    bench.feed(Disappeared("p"))
    bench.tick()
    assert (bench.status, bench.now) == (SourceStatus.GONE, 3_000 * MS)
    assert bench.node.stopped


def test_MS_19_not_while_something_is_missing():
    bench = Bench(retention_ms=1_000)
    bench.sample(0)
    bench.sample(2)
    bench.tick()
    bench.node.fire(1_999 * MS)
    bench.now = 1_999 * MS
    assert bench.status is SourceStatus.RECOVERING
    assert bench.node.armed_timers()["retention", "p"] == 2_000 * MS
    bench.sample(1)
    beats = Bench(retention_ms=1_000)
    beats.sample(0)
    for _ in range(3):
        beats.feed(Heartbeat("p", 0))
        beats.tick()
    assert beats.status is SourceStatus.LIVE, "a source that sends heartbeats is not silent"
    unmet = Bench()
    unmet.feed(Appeared("p", True))
    unmet.feed(Disappeared("p"))
    assert unmet.status is SourceStatus.GONE


def test_MS_21_as_many_as_may_be_held_are_and_no_more_holes_go_than_must():
    bench = Bench(pending=10)
    bench.sample(0)
    bench.sample(2, 6)
    assert bench.sample(8, 12) == []
    assert bench.record.held_count == 10
    assert bench.sample(14) == [Missed("p", 1, 1), Deliver("p", 2, 6)]
    assert bench.record.held == ((8, 12), (14, 14))
    assert bench.sample(16, 20) == [Missed("p", 7, 7), Deliver("p", 8, 12)]


def test_MS_21_exactly_as_many_remain():
    bench = Bench(pending=6)
    bench.sample(0)
    bench.sample(2, 6)
    assert bench.sample(8, 13) == [Missed("p", 1, 1), Deliver("p", 2, 6)]
    assert (bench.record.held_count, bench.record.missing) == (6, 1)


def test_MS_21_beyond_what_may_be_held_the_oldest_hole_is_given_up():
    bench = Bench(pending=10)
    bench.sample(0)
    bench.sample(2, 8)
    assert bench.sample(12, 16) == [Missed("p", 1, 1), Deliver("p", 2, 8)]
    wide = Bench(pending=10)
    wide.sample(0)
    assert wide.sample(5, 40) == [Missed("p", 1, 4), Deliver("p", 5, 40)]
    assert wide.status is SourceStatus.LIVE


def test_MS_23_the_convicted_are_reported_at_once_and_dropped_when_they_come():
    bench = Bench(retries=0, reliable=False)
    bench.sample(0)
    bench.sample(4)
    bench.sample(8)
    assert bench.feed(QueryEnded("p", 1)) == [Missed("p", 1, 3), Deliver("p", 4, 4)]
    assert bench.sample(1, 3) == []
    assert bench.record.dropped == 3
    assert bench.sample(5, 7) == [Deliver("p", 5, 8)]


# -- whole recoveries -----------------------------------------------------------------------------------------------


def cut(chance, last, longest):
    """0..last cut into ranges."""
    parts, first = [], 0
    while first <= last:
        end = min(last, first + chance.randrange(longest))
        parts.append((first, end))
        first = end + 1
    return parts


def recover(seed, *, last=60, loss=0.4, cached=lambda number: True, reply_loss=0.0, longest=6):
    """Publish 0..last through a network that loses, repeats and reorders; answer queries from a cache."""
    chance = random.Random(seed)
    bench = Bench(past=True, retries=3, reliable=reply_loss == 0)
    wire = [part for part in cut(chance, last, longest) if chance.random() > loss]
    wire += [part for part in wire if chance.random() < 0.2]
    wire = sorted(wire, key=lambda part: part[0] + chance.randrange(12))
    served = 0
    while True:
        while wire:
            bench.sample(*wire.pop(0))
            if chance.random() < 0.3:
                served = serve(bench, chance, served, last, cached, reply_loss)
        bench.feed(Heartbeat("p", last))
        served = serve(bench, chance, served, last, cached, reply_loss)
        if bench.status is SourceStatus.LIVE:
            return bench
        if bench.node.deadline() is not None and served == len(bench.asked):
            bench.tick()


def serve(bench, chance, served, last, cached, reply_loss):
    """Answer the queries that are open."""
    while served < len(bench.asked):
        query = bench.asked[served]
        served += 1
        brought = 0
        end = min(last, query.last)
        for low, high in cut(chance, end - query.first, 5) if query.first <= end else []:
            for number in range(query.first + low, query.first + high + 1):
                if cached(number) and chance.random() >= reply_loss:
                    bench.sample(number)
                    brought = query.reach_of(number, 64)
        bench.feed(QueryEnded("p", query.n, brought))
    return served


def numbers(bench, kind):
    return [number for one in bench.told if isinstance(one, kind) for number in range(one.first, one.last + 1)]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9))
def test_NOGAP_ORDER_ONCE_everything_in_a_cache_is_delivered_once_and_in_order(seed):
    bench = recover(seed)
    assert numbers(bench, Deliver) == list(range(61))
    assert numbers(bench, Missed) == []


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**9), st.sets(st.integers(0, 60)), st.sampled_from([0.0, 0.3]))
def test_REPORT_what_is_not_delivered_is_reported_once_and_in_order(seed, gone, reply_loss):
    bench = recover(seed, cached=lambda number: number not in gone, reply_loss=reply_loss)
    settled = [(number, type(one)) for one in bench.told for number in range(one.first, one.last + 1)]
    assert [number for number, _ in settled] == list(range(61))
    if not reply_loss:
        assert set(numbers(bench, Missed)) <= gone


@given(st.integers(0, 10**9), st.integers(1, 20))
def test_QUIET_in_order_nothing_is_asked_and_how_samples_are_cut_does_not_matter(seed, longest):
    chance = random.Random(seed)
    whole, parts = Bench(), Bench()
    whole.sample(0, 99)
    for part in cut(chance, 99, longest):
        parts.sample(*part)
    assert numbers(whole, Deliver) == numbers(parts, Deliver) == list(range(100))
    assert whole.asked == parts.asked == []


def test_a_range_of_any_length_is_one_small_step():
    bench = Bench()
    bench.sample(0, 10**15)
    bench.sample(10**15 + 1, 2 * 10**15)
    assert bench.told == [Deliver("p", 0, 10**15), Deliver("p", 10**15 + 1, 2 * 10**15)]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)), max_size=30))
def test_ranges_are_sets(parts):
    ranges, known = (), set()
    for first, more in parts:
        part = set(range(first, first + more + 1))
        assert overlap(ranges, first, first + more) == len(known & part)
        ranges, known = add(ranges, first, first + more), known | part
        assert {number for low, high in ranges for number in range(low, high + 1)} == known
        assert size(ranges) == len(known)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(ranges))
