"""The properties of one source under any loss, repetition, order, cut and timing (spec/missed_samples/clauses.md).

A world of pure parts: what was published, a cache that holds some of it, and queries that are answered in full, in
part, with nothing, or never.  Hypothesis chooses every move, so a failing run shrinks to the shortest one.  The
observer of a source judges every step.

One source of a missed-samples Subscriber through networks drawn at random; its clauses are in steps/source.txt.

The invariants of a source tell records that break them from records that do not.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.kernel import Ask, Node, Tell
from statemachines.missed_samples import message
from statemachines.missed_samples.message import Deliver, Heartbeat, Missed, QueryEnded, Sample
from statemachines.missed_samples.properties import AskedNumbers, ObservedSource, judge_hole
from statemachines.missed_samples.ranges import add, overlap, size
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import HistoryEnded, QueryTimeout, SourceRecord, SourceStatus

LAST = 40


class World:
    """One source over a cache; `when` is the time at which each number was first known to exist."""

    def __init__(self, recovery: Recovery, cached: set[int], *, history: bool = False) -> None:
        self.recovery = recovery
        self.cached = cached
        self.now = 0
        self.told = []
        self.seen = ObservedSource(waits=history)
        self.open = []
        self.came = 0
        self.queries = 0
        self.known = {}
        self.settled = {}
        self.before = SourceRecord("p", recovery, history=history)
        self.node = Node(SOURCE, self.before, name="s/p", now_ns=0, check=True, observe=self.compare)

    def compare(self, node, event, status, step, now_ns):
        assert step == SOURCE.reference_step(self.before, event, now_ns)
        self.before = step.record
        self.inform(event)

    def inform(self, event):
        """The observer learns of an event before what comes of it."""
        seen = self.seen
        match event:
            case message.Sample(_, first, last):
                seen = seen.observe_samples(first, last, self.recovery)
                if seen.held_count > self.recovery.history_limit:
                    seen = replace(seen, waits=False)
            case message.Heartbeat(_, last):
                seen = seen.observe_heartbeat(last, self.recovery)
            case message.QueryEnded(_, n, brought):
                seen = seen.observe_query_end(n, brought, self.recovery)
            case QueryTimeout():
                seen = seen.observe_timeout(self.recovery)
            case HistoryEnded():
                seen = replace(seen, waits=False)
        self.seen = seen

    def feed(self, event):
        if isinstance(event, message.Sample):
            self.came = self.now
        if isinstance(event, message.Sample | message.Heartbeat):
            for number in range(event.last + 1):
                self.known.setdefault(number, self.now)
        self.perform(self.node.feed(event, self.now))

    def perform(self, effects):
        broken = ()
        for effect in effects:
            if isinstance(effect, Tell):
                self.told.append(effect.event)
                first, last = effect.event.first, effect.event.last
                if isinstance(effect.event, message.Deliver):
                    self.seen, found = self.seen.observe_delivered(first, last)
                else:
                    self.seen, found = self.seen.observe_missed(first, last, self.recovery)
                self.settled |= dict.fromkeys(range(first, last + 1), self.now)
                broken += found
            elif isinstance(effect, Ask):
                query = effect.request
                asked = AskedNumbers(query.n, query.first, query.last, query.newest)
                self.seen, found = self.seen.observe_query(asked, self.recovery)
                broken += found
                self.open.append(query)
                self.queries += 1
        broken += self.seen.judge_step(self.recovery) + self.seen.judge_convicted(self.recovery)
        assert broken + self.seen.judge_count(self.node.record.dropped) == ()

    def answer(self, brought, step):
        """End the query that has been open longest after it brought the cached numbers among `brought`, `step` at a
        time, in whole or what is newest of it."""
        if not self.open:
            return
        query = self.open.pop(0)
        wanted = [number for number in sorted(self.cached) if query.reach_of(number, 64)][-query.newest :]
        numbers = [number for number in wanted if number in brought]
        for first, last in runs(numbers, step):
            self.feed(message.Sample("p", first, last))
            self.feed(message.QueryGoesOn("p", query.n))
        self.feed(message.QueryEnded("p", query.n, query.reach_of(numbers[-1], 64) if numbers else 0))

    def advance(self):
        """To the next timer of the recovery; the source is not forgotten meanwhile."""
        if self.node.record.status in (SourceStatus.RECOVERING, SourceStatus.RESTING):
            self.now = max(self.now, self.node.deadline())
            self.perform(self.node.fire(self.now))

    def finish(self):
        """The network heals: the publisher says how far it got, and every query is answered in full."""
        self.feed(message.Heartbeat("p", LAST))
        while self.node.record.status is not SourceStatus.LIVE:
            if not self.open:
                self.advance()
            else:
                self.answer(set(range(LAST + 1)), 5)

    def numbers(self, kind):
        return [n for one in self.told if isinstance(one, kind) for n in range(one.first, one.last + 1)]


def runs(numbers, longest):
    """Sorted numbers as contiguous ranges of at most `longest`."""
    parts = []
    for number in numbers:
        if parts and parts[-1][1] + 1 == number and number - parts[-1][0] < longest:
            parts[-1] = (parts[-1][0], number)
        else:
            parts.append((number, number))
    return parts


RANGES = st.tuples(st.integers(0, LAST), st.integers(0, 12)).map(lambda one: (one[0], min(LAST, one[0] + one[1])))
NUMBERS = st.sets(st.integers(0, LAST))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("sample"), RANGES),
        st.tuples(st.just("beat"), st.integers(0, LAST)),
        st.tuples(st.just("answer"), NUMBERS),
        st.tuples(st.just("nothing"), st.none()),
        st.tuples(st.just("advance"), st.none()),
    ),
    max_size=40,
)


def play(world, moves, cut=None):
    for kind, value in moves:
        if kind == "sample":
            for part in runs(range(value[0], value[1] + 1), cut or LAST + 1):
                world.feed(message.Sample("p", *part))
        elif kind == "beat":
            world.feed(message.Heartbeat("p", value))
        elif kind == "advance":
            world.advance()
        else:
            world.answer(value or set(), cut or LAST)
    return world


@settings(deadline=None, max_examples=150)
@given(MOVES, NUMBERS, st.booleans(), st.integers(0, 2))
def test_MS_20_MS_22_REPORT_ORDER_ONCE_everything_is_delivered_or_reported_once_in_order(
    moves, gone, reliable, retries
):
    recovery = Recovery(past=True, reliable=reliable, retries=retries)
    world = play(World(recovery, set(range(LAST + 1)) - gone), moves)
    world.finish()
    assert [n for one in world.told for n in range(one.first, one.last + 1)] == list(range(LAST + 1))


@settings(deadline=None, max_examples=100)
@given(MOVES, MOVES, NUMBERS, st.integers(0, 60))
def test_MS_15_REPORT_after_the_first_query_too(before, after, gone, limit):
    recovery = Recovery(history_limit=limit)
    world = play(World(recovery, set(range(LAST + 1)) - gone, history=True), before)
    came = {n for kind, value in before if kind == "sample" for n in range(value[0], value[1] + 1)}
    closed = world.node.record.status is not SourceStatus.HISTORY
    world.feed(HistoryEnded())
    play(world, after).finish()
    told = [n for one in world.told for n in range(one.first, one.last + 1)]
    assert told == list(range(told[0], LAST + 1)) if told else True
    first_contact = [value + 1 for kind, value in before if kind == "beat"][:1]
    assert closed or not came or min(came, default=LAST) >= told[0] >= min([*came, *first_contact])


@settings(deadline=None, max_examples=100)
@given(MOVES)
def test_NOGAP_what_every_cache_has_is_delivered_while_attempts_last(moves):
    moves = [(kind, set(range(LAST + 1)) if kind == "answer" else value) for kind, value in moves]
    world = play(World(Recovery(past=True, retries=len(moves) + 1), set(range(LAST + 1))), moves)
    world.finish()
    assert world.numbers(message.Deliver) == list(range(LAST + 1))
    assert world.numbers(message.Missed) == []


@settings(deadline=None, max_examples=100)
@given(MOVES, NUMBERS, st.integers(0, 2))
def test_LIVE_every_hole_is_settled_within_its_time(moves, gone, retries):
    recovery = Recovery(past=True, retries=retries)
    world = play(World(recovery, set(range(LAST + 1)) - gone), moves)
    world.feed(message.Heartbeat("p", LAST))
    while world.node.record.status is not SourceStatus.LIVE:
        world.advance()  # no query is ever answered any more
    for number, settled in world.settled.items():
        still_ns = settled - max(world.known[number], world.came)
        assert judge_hole(still_ns, recovery) == (), "since it was known, or anything came"


@settings(deadline=None, max_examples=100)
@given(MOVES, NUMBERS, st.booleans())
def test_a_range_at_once_or_number_by_number_comes_to_the_same(moves, gone, reliable):
    # Answers come between the parts of one sample only where the moves put them, so both worlds see the same questions
    # answered alike; what is still open at the end is answered in full.
    cached = set(range(LAST + 1)) - gone
    moves = [move for move in moves if move[0] in ("sample", "beat")]
    whole, single = (play(World(Recovery(past=True, reliable=reliable), cached), moves, cut) for cut in (None, 1))
    whole.finish()
    single.finish()
    for kind in (message.Deliver, message.Missed):
        assert whole.numbers(kind) == single.numbers(kind)
    assert whole.node.record.expected == single.node.record.expected == LAST + 1


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, LAST), max_size=20), st.booleans())
def test_QUIET_without_loss_nothing_is_asked(cuts, past):
    world = World(Recovery(past=past), set())
    edges = sorted({0, LAST + 1, *cuts})
    for first, end in pairwise(edges):
        world.feed(message.Sample("p", first, end - 1))
        world.feed(message.Heartbeat("p", end - 1))
        world.feed(message.Sample("p", 0, end - 1))
    assert world.queries == 0
    assert list(world.node.armed_timers()) == [("retention", "p")]
    assert world.numbers(message.Deliver) == list(range(LAST + 1))


@settings(deadline=None, max_examples=100)
@given(MOVES, st.integers(0, 8))
def test_MS_21_BOUND_no_more_is_held_than_allowed_and_what_is_given_up_is_reported(moves, pending):
    world = play(World(Recovery(past=True, pending=pending), set()), moves)  # the invariant MS-21 is checked each step
    world.finish()
    assert [n for one in world.told for n in range(one.first, one.last + 1)] == list(range(LAST + 1))


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


RECOVERY = Recovery(pending=4)
GOOD = SourceRecord("p", RECOVERY, SourceStatus.RECOVERING, expected=3, top=9, held=((5, 6),), held_count=2)


def holds(clause):
    """Looked up by clause when it is needed: where it is gone, nothing tells the two apart."""
    (found,) = [one.holds for one in SOURCE.invariants if one.clause == clause]
    return found


@pytest.mark.parametrize("held", [((3, 4),), ((5, 4),), ((6, 6), (5, 5)), ((5, 6), (7, 8)), ((5, 9),)])
def test_MS_20_what_is_held_is_in_order_apart_and_between_expected_and_top(held):
    assert holds("MS-20")(GOOD)
    assert not holds("MS-20")(replace(GOOD, held=held))
