"""The properties of one source under any loss, repetition, order, cut and timing (spec/missed_samples/clauses.md).

A world of pure parts: what was published, a cache that holds some of it, and queries that are answered in full, in
part, with nothing, or never.  Hypothesis chooses every move, so a failing run shrinks to the shortest one.  The
observer of a source judges every step.

One source of a missed-samples Subscriber through networks drawn at random; its clauses are in steps/source.txt.

The invariants of a source tell records that break them from records that do not.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.kernel import Ask, Node, Tell
from statemachines.missed_samples import message
from statemachines.missed_samples.properties import AskedNumbers, ObservedSource, judge_hole
from statemachines.missed_samples.ranges import add, overlap, size
from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import HistoryEnded, Overdue, QueryTimeout, SourceRecord, SourceStatus

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
        seen = replace(self.seen, late=0)
        self.again = isinstance(event, QueryTimeout)
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
            case Overdue():
                seen = seen.observe_overdue(seen.missing)
            case HistoryEnded():
                seen = replace(seen, waits=False)
        self.seen = seen

    def feed(self, event):
        self.perform(self.node.fire(self.now))  # what is due comes before it
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
                asked = AskedNumbers(query.n, query.first, query.last, query.newest, again=self.again)
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
