"""The scenarios that must be played (spec/missed_samples/scenarios.md), with all parties: publishers, caches, a
subscriber, and whatever happens on the way.

Strangers: sources and queues for which there is no place (spec/missed_samples/clauses.md).

All parties under Hypothesis: two publishers, caches that hold everything, a subscriber, and any moves.

Attacked: whoever can speak to a subscriber says what it likes; what is told stays in order, once, without a gap.
"""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from samples_world import KEY, World, newest, window

from statemachines.kernel import ConfigurationError, Node, Tell
from statemachines.missed_samples.cache import CACHE, CacheRecord, CrowdedOver, Published
from statemachines.missed_samples.message import (
    Deliver,
    Heartbeat,
    Missed,
    Query,
    QueryEnded,
    QueryGoesOn,
    Sample,
    Unnumbered,
)
from statemachines.missed_samples.publisher import Beats
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.serial_number import wrap_number
from statemachines.missed_samples.source_record import Appeared, Disappeared, SourceStatus
from statemachines.missed_samples.subscriber_record import History


def world(*, history=None, depth=100, name="p", local=True, **given):
    """One publisher with a cache of its own (or one that stands elsewhere)."""
    made = World(history=history, **given)
    made.publisher(name)
    made.cache(owner=name if local else "", history=depth)
    return made


def test_scenario_1_in_order():
    made = world()
    for _ in range(20):
        made.publish()
    assert made.numbers(Deliver) == list(range(20))
    assert made.asked == []


def test_scenario_2_one_gap():
    made = world()
    for number in range(6):
        made.publish(lost=number == 3)
    assert made.asked == [window("p", 1, 3, 4)]
    made.answer()
    assert made.numbers(Deliver) == list(range(6))
    assert made.source().status is SourceStatus.LIVE


@pytest.mark.parametrize("seed", range(5))
def test_scenario_3_thirty_percent_are_lost_and_the_cache_is_deep(seed):
    chance = random.Random(seed)
    made = world(past=True, depth=1_000)
    for number in range(300):
        made.publish(lost=number < 299 and chance.random() < 0.3)
        if made.open and chance.random() < 0.5:
            made.answer()
    while made.open:
        made.answer()
    assert made.numbers(Deliver) == list(range(300))
    assert made.numbers(Missed) == []


def test_scenario_4_a_cache_of_one():
    made = world(depth=1)
    for number in range(5):
        made.publish(lost=number in (1, 2))
    made.answer()
    assert made.told == [Deliver("p", 0, 0), Missed("p", 1, 2), Deliver("p", 3, 4)]


def test_scenario_5_loss_while_a_query_is_open():
    made = world()
    for number in range(8):
        made.publish(lost=number in (1, 4, 5))
    assert made.asked == [window("p", 1, 1, 2), window("p", 2, 4, 6)], "they are asked for as soon as they are known"
    made.answer()
    assert made.numbers(Deliver) == list(range(8)), "the first query reaches so far"


def test_scenario_6_replies_are_lost():
    made = world(reliable=False, retries=2)
    for number in range(6):
        made.publish(lost=number in (1, 2, 3))
    made.answer(lost={1, 3})
    assert made.numbers(Deliver) == [0]
    made.tick()
    made.answer(lost={3})
    assert made.numbers(Deliver) == [0, 1, 2]
    made.tick()
    made.answer()
    assert made.numbers(Deliver) == list(range(6))
    assert made.numbers(Missed) == []


def test_scenario_7_an_empty_reply_while_the_network_comes_back_then_a_full_one():
    made = world()
    for number in range(4):
        made.publish(lost=number == 1)
    made.end_empty()
    assert made.numbers(Missed) == []
    assert made.now == 0
    made.tick()
    assert made.now == 100 * MS, "at once would ask the same network again"
    made.answer()
    assert made.numbers(Deliver) == [0, 1, 2, 3]


def test_scenario_8_a_query_that_never_ends():
    made = world(retries=1)
    for number in range(4):
        made.publish(lost=number == 1)
    made.tick()
    assert made.now == 300 * MS
    made.answer(at=1)
    assert made.numbers(Deliver) == [0, 1, 2, 3]
    assert made.tell(QueryEnded("p", 1, 3)) == [], "its late end"


def test_scenario_9_of_two_sources_one_is_stuck():
    made = world()
    made.publisher("q")
    made.cache("of q", owner="q", history=100)
    for number in range(4):
        made.publish("p", lost=number == 1)
        made.publish("q", lost=number == 2)
    made.answer(at=1)
    assert made.numbers(Deliver, "q") == [0, 1, 2, 3]
    for _ in range(50):
        made.publish("q")
    assert made.numbers(Deliver, "q") == list(range(54))
    assert made.numbers(Deliver, "p") == [0], "stuck"


def test_scenario_10_the_first_sample_is_lost():
    for past in (True, False):
        made = world(past=past)
        made.publish(lost=True)
        made.publish()
        assert made.asked == ([window("p", 1, 0, 1)] if past else [])
    token = world()
    token.tell(Appeared("p", True))
    token.publish(lost=True)
    token.publish()
    token.answer_all()
    assert token.numbers(Deliver) == [0, 1]


def test_scenario_11_the_last_samples_are_lost_periodic_queries_find_them():
    made = world(period_ms=300)
    made.publish()
    made.publish(count=2, lost=True)
    made.tick()
    assert (made.now, made.asked) == (300 * MS, [newest("p", 1, 1)])
    made.answer_all()
    assert made.numbers(Deliver) == [0, 1, 2]


@pytest.mark.parametrize("beats", [Beats.PERIODIC, Beats.SPORADIC])
def test_scenario_11_heartbeats_find_them(beats):
    made = World()
    made.publisher(beats=beats)
    made.cache(owner="p", history=100)
    made.publish()
    made.publish(count=2, lost=True)
    made.beat()
    made.answer()
    assert made.numbers(Deliver) == [0, 1, 2]
    asked = len(made.asked)
    for _ in range(5):
        made.beat()
    assert len(made.asked) == asked, "no query for each heartbeat"


def test_scenario_12_the_last_samples_are_lost_and_no_cache_has_them():
    made = World(retries=2)
    made.publisher(beats=Beats.PERIODIC)
    made.publish()
    made.publish(count=2, lost=True)
    made.beat()
    while made.open:
        made.answer()
        if made.source().status is SourceStatus.RESTING:
            made.tick()
    assert made.told == [Deliver("p", 0, 0), Missed("p", 1, 2)]
    made.wait(60_000)
    made.beat()
    assert len(made.asked) == 3, "no query for ever"


def test_scenario_13_a_late_subscriber_with_history():
    made = World(history=History(), past=True)
    for name in ("p", "q"):
        made.publisher(name)
        made.cache(name, owner=name, history=100)
        for _ in range(5):
            made.publish(name, lost=True)
    made.answer()
    assert made.numbers(Deliver, "p") == made.numbers(Deliver, "q") == [0, 1, 2, 3, 4]
    assert made.asked == [Query("*", 1, 0)]


@pytest.mark.parametrize(("history", "numbers"), [(History(newest=2), [3, 4]), (History(age_ms=150), [4]),
                                                  (History(3, 10_000), [2, 3, 4])])  # fmt: skip
def test_scenario_13_history_with_limits(history, numbers):
    made = World(history=history)
    made.publisher()
    made.cache(owner="p", history=100)
    for _ in range(5):
        made.now += 100 * MS
        made.publish(lost=True)
    made.now += 100 * MS
    made.answer()
    assert made.numbers(Deliver) == numbers
    made.publish()
    assert made.numbers(Deliver) == [*numbers, 5]


def test_scenario_14_live_samples_while_the_first_query_is_open():
    made = world(history=History())
    for _ in range(3):
        made.publish(lost=True)
    made.publish()
    made.publish()
    assert made.told == []
    made.answer()
    assert made.numbers(Deliver) == [0, 1, 2, 3, 4], "what was before, before what is now"
    cut = world(history=History(), history_limit=3)
    for _ in range(4):
        cut.publish()
    assert cut.numbers(Deliver) == [0, 1, 2, 3], "no more is held than may be"
    cut.answer()
    assert cut.numbers(Deliver) == [0, 1, 2, 3]


def test_scenario_15_a_publisher_starts_again():
    made = world()
    for _ in range(3):
        made.publish()
    made.publisher("p~2")
    made.cache("second", owner="p~2", history=100)
    made.publish("p~2", lost=True)
    made.publish("p~2")
    assert made.numbers(Deliver, "p~2") == [1], "a new id begins anew"
    goes_on = made.publishers["p"].record.next
    made.publisher("p", next=goes_on)
    made.publish("p", lost=True)
    made.publish("p")
    made.answer()
    assert made.numbers(Deliver) == [0, 1, 2, 3, 4], "the same id goes on counting"
    assert made.numbers(Missed) == []


@pytest.mark.parametrize("lost", [(2**32 - 1,), (2**32,), (2**32 - 2, 2**32 - 1, 2**32, 2**32 + 1)])
def test_scenario_16_numbers_come_round_at_32_bits(lost):
    made = World(width=32)
    begin = 2**32 - 4
    made.publisher(next=begin)
    made.cache(owner="p", history=100)
    for number in range(begin, begin + 8):
        made.publish(lost=number in lost)
    made.answer()
    top = 2**32 - 1
    assert made.numbers(Deliver) == [top - 3, top - 2, top - 1, top, 0, 1, 2, 3]


def test_scenario_16_a_burst_over_the_turn_and_a_deep_hole():
    made = World(width=32)
    made.publisher(next=2**32 - 50_000)
    made.cache(owner="p", history=100_000)
    made.publish()
    made.publish(count=99_000, lost=True)
    made.publish()
    assert made.asked == [], "one number so far ahead is not believed"
    made.publish()
    made.answer_all()
    assert len(made.numbers(Deliver)) == 99_003
    assert made.numbers(Missed) == []


def test_scenario_19_two_publishers_of_one_session_and_samples_without_source_information():
    made = World()
    for source in ("a1/1", "a1/2"):
        made.publisher(source)
        made.cache(source, owner=source, history=10)
    for number in range(4):
        made.publish("a1/1", lost=number == 1)
        made.publish("a1/2", lost=number == 2)
        made.tell(Unnumbered())
    made.answer()
    made.answer()
    assert made.numbers(Deliver, "a1/1") == made.numbers(Deliver, "a1/2") == [0, 1, 2, 3]
    assert made.unnumbered == 4


def test_scenario_20_a_cache_of_any_origin_answers_for_a_publisher_that_is_dead():
    made = World()
    made.publisher()
    made.cache("own", owner="p", history=100)
    made.cache("elsewhere", history=100)
    made.publish()
    made.publish(missed_by=("elsewhere",))
    for _ in range(3):
        made.publish()
    lost = Sample("p", 5, 5)
    made.keep("p", lost, ["elsewhere"], local=False)
    made.tell(Sample("p", 6, 6))
    del made.caches["own"]
    made.answer()
    assert made.numbers(Deliver) == [0, 1, 2, 3, 4, 5, 6]


def test_scenario_21_a_burst_of_100_000():
    made = world(depth=100_000, pending=50_000)
    made.publish(count=50_000)
    made.publish(count=1, lost=True)
    made.publish(count=50_000)
    made.answer()
    assert made.told == [Deliver("p", 0, 49_999), Deliver("p", 50_000, 100_000)]
    full = world(depth=100_000)
    full.publish(count=50_000)
    full.publish(count=1, lost=True)
    full.publish(count=50_000)
    assert full.told[1:] == [Missed("p", 50_000, 50_000), Deliver("p", 50_001, 100_000)], "more than may be held"
    single = world(depth=1)
    for _ in range(2_000):
        single.publish()
    assert single.numbers(Deliver) == list(range(2_000))


def test_scenario_22_many_sources_come_and_go():
    made = World(retention_ms=5_000, reliable=False, retries=0, deadline_ms=5_000)
    for number in range(200):
        source = f"p{number}"
        made.tell(Appeared(source, True))
        made.tell(Sample(source, 1, 1))
        made.end_empty()
        if number % 2:
            made.tell(Disappeared(source))
    assert len(made.node.record.sources) == 200
    made.wait(20_000)
    assert len(made.node.record.sources) == 100, "those that are known to live"
    for number in range(0, 200, 2):
        made.tell(Disappeared(f"p{number}"))
    made.wait(20_000)
    assert dict(made.node.record.sources) == {}
    assert made.node.armed_timers() == {}


def test_MS_11_what_came_to_be_missing_while_a_query_was_open_is_asked_for_at_once():
    """As simulation found it: the number that was asked for comes by itself, and another is lost meanwhile."""
    made = World()
    for number in (0, 2, 1):
        made.tell(Sample("p", number, number))
    assert made.numbers(Deliver) == [0, 1, 2], "nothing is missing, and no query is waited for"
    for number in (4, 6, 3):
        made.tell(Sample("p", number, number))
    assert [(one.n, one.first) for one in made.asked] == [(1, 1), (2, 3), (3, 5)]
    made.wait(300)
    assert [(one.n, one.first) for one in made.asked][3:] == [(4, 5), (5, 5)], "nobody has answered"


# -- subscriber -----------------------------------------------------------------------------------------------------


def test_MS_64_a_heartbeat_or_token_of_a_stranger_is_counted_and_nothing_else():
    world = World(sources=1, past=True)
    world.tell(Sample("p", 0, 0))
    before = world.node.record
    assert world.tell(Heartbeat("q", 7)) == []
    assert world.tell(Appeared("q", True)) == []
    assert world.node.record == msgspec.structs.replace(before, turned_away=2)
    assert world.open == []
    assert world.clauses.count("MS-64") == 2
    assert world.tell(Heartbeat("p", 2)) == [], "of who is known it counts"
    assert len(world.open) == 1


def test_MS_63_a_limit_that_cannot_be_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="sources = 0: at least 1"):
        Recovery(sources=0)


# -- cache ----------------------------------------------------------------------------------------------------------


class Host:
    """A cache with two places, beside whoever publishes; `told` is what it told."""

    def __init__(self, **given):
        self.now = 0
        self.node = Node(CACHE, CacheRecord(places=2, retention_ms=1_000, **given), name="c", now_ns=0, check=True)

    def publish(self, source, first=0, last=None, key=KEY):
        last = first if last is None else last
        return [one.event for one in self.node.feed(Published(key, source, first, last), self.now)]

    def fire(self):
        self.now = self.node.deadline()
        return [one.event for one in self.node.fire(self.now) if isinstance(one, Tell)]

    @property
    def places(self):
        return sorted(self.node.record.queues)


def test_MS_48_a_limit_that_cannot_be_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="places = 0: at least 1"):
        CacheRecord(places=0)
    with pytest.raises(ConfigurationError, match="retention_ms = 0: at least 1"):
        CacheRecord(retention_ms=0)


def test_MS_49_a_late_timer_changes_nothing():
    host = Host()
    host.publish("p")
    before = host.node.record
    assert not host.node.feed(CrowdedOver(), 0)
    assert host.node.record == before


SOURCES = st.sampled_from(("p", "q"))


class Parties(RuleBasedStateMachine):
    """Queries that bring nothing, or never end, are so few that attempts last: whatever the caches have must come."""

    @initialize(width=st.sampled_from((64, 4)), history=st.sampled_from((None, History())))
    def begin(self, width, history):
        self.world = World(width=width, history=history, past=True, retries=40, pending=500, retention_ms=10**9)
        for name in ("p", "q"):
            self.world.publisher(name)
            self.world.cache(name, owner=name, history=500 if width == 64 else 7)

    @rule(name=SOURCES, count=st.integers(1, 2), lost=st.booleans())
    def publish(self, name, count, lost):
        if self.world.width == 4 and self.behind(name) + count > 6:
            return  # more than half of the wire's numbers would be in question
        self.world.publish(name, count, lost=lost)

    @precondition(lambda self: self.world.open)
    @rule(at=st.integers(0, 3))
    def answer(self, at):
        self.world.answer(at % len(self.world.open))

    @precondition(lambda self: self.world.open)
    @rule(at=st.integers(0, 3))
    def end_empty(self, at):
        self.world.end_empty(at % len(self.world.open))

    @rule()
    def tick(self):
        """To the next timer, but for those that wait for a source to be silent: then it is forgotten, and met anew."""
        deadline = self.world.node.deadline()
        if deadline is not None and deadline - self.world.now < 10_000 * MS:
            self.world.tick()

    def behind(self, name):
        """How many numbers of the source are not settled."""
        told = [one for one in self.world.told if one.source == name]
        settled = sum(one.last - one.first + 1 for one in told)
        return self.world.publishers[name].record.next - settled

    def told(self, name):
        return [number for one in self.world.told if one.source == name for number in range(one.first, one.last + 1)]

    @invariant()
    def ORDER_ONCE_REPORT_what_is_told_has_no_gap(self):
        assert not hasattr(self, "world") or self.world.broken == []

    def teardown(self):
        """The network heals: every number is said, every query answered; everything is told, and nothing missed."""
        if not hasattr(self, "world"):
            return
        world = self.world
        while world.open:
            world.answer()
        for name in ("p", "q"):
            node = world.publishers[name]
            if node.record.next:
                world.tell(Heartbeat(name, wrap_number(node.record.next - 1, world.width)))
            while name in world.node.record.sources and world.source(name).status in (
                SourceStatus.RECOVERING,
                SourceStatus.RESTING,
            ):
                world.answer() if world.open else world.tick()
        for name in ("p", "q"):
            told = self.told(name)
            last = world.publishers[name].record.next - 1
            assert not told or told[-1] % (1 << world.width) == wrap_number(last, world.width)
            if world.width == 64:
                assert world.numbers(Missed, name) == []
                assert world.numbers(Deliver, name) == told


TestParties = Parties.TestCase
TestParties.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


FAR = (1 << 62) + 1
RETENTION_NS = Recovery().retention_ms * MS


def told(world, name="p"):
    """Every number of a source that was delivered or reported, as ranges, in the order in which it was."""
    return [(one.first, one.last) for one in world.told if isinstance(one, Deliver | Missed) and one.source == name]


NUMBERS = st.one_of(st.integers(0, 12), st.sampled_from((FAR, FAR + 1, 2**64 - 9)))
WORDS = st.one_of(
    st.tuples(NUMBERS, st.integers(0, 3)).map(lambda one: Sample("p", one[0], one[0] + one[1])),
    NUMBERS.map(lambda number: Heartbeat("p", number)),
    st.builds(QueryEnded, st.sampled_from(("p", "*", "x")), st.integers(-1, 9), st.integers(0, 300)),
    st.builds(QueryGoesOn, st.sampled_from(("p", "*", "x")), st.integers(-1, 9)),
    st.builds(Appeared, st.just("p"), st.booleans()),
    st.just(Disappeared("p")),
    st.just("tick"),
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(WORDS, max_size=40),
    st.booleans(),
    st.booleans(),
    st.sampled_from((0, 2, 10_000)),
    st.sampled_from((1, 256)),
)
def test_ORDER_ONCE_REPORT_BOUND_whatever_a_stranger_says(words, past, reliable, pending, window):
    world = World(past=past, reliable=reliable, pending=pending, retries=1, window=window, jump=4)
    for word in words:
        if word != "tick":
            world.tell(word)
        elif (deadline := world.node.deadline()) is not None and deadline - world.now < RETENTION_NS:
            world.tick()  # a source that is forgotten begins anew
        for source in world.node.record.sources.values():
            assert source.held_count <= pending
    assert world.broken == []
