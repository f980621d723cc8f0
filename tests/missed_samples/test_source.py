"""One source of a missed-samples Subscriber through networks drawn at random; its clauses are in steps/source.txt."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.kernel import Ask, Node, Tell
from statemachines.missed_samples.message import (
    Deliver,
    Heartbeat,
    Missed,
    QueryEnded,
    Sample,
)
from statemachines.missed_samples.ranges import add, overlap, size
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import (
    SourceRecord,
    SourceStatus,
)


class Bench:
    """A source; what it told and what it asked, and each step compared with the step of `transitions`."""

    def __init__(self, **recovery):
        record = SourceRecord("p", Recovery(**recovery))
        self.node = Node(SOURCE, record, name="s/p", now_ns=0, check=True, observe=self.saw)
        self.before = record
        self.told = []
        self.asked = []
        self.now = 0

    def saw(self, node, event, before, step, now_ns):
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
    def status(self):
        return self.node.record.status


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
