"""Attacked: whoever can speak to a subscriber says what it likes; what is told stays in order, once, without a gap."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples_world import World

from statemachines.missed_samples.message import Deliver, Heartbeat, Missed, QueryEnded, QueryGoesOn, Sample
from statemachines.missed_samples.recovery import MS, Recovery
from statemachines.missed_samples.source_record import Appeared, Disappeared, SourceStatus
from statemachines.missed_samples.subscriber_record import History

FAR = (1 << 62) + 1
RETENTION_NS = Recovery().retention_ms * MS


def told(world, name="p"):
    """Every number of a source that was delivered or reported, as ranges, in the order in which it was."""
    return [(one.first, one.last) for one in world.told if isinstance(one, Deliver | Missed) and one.source == name]


@pytest.mark.parametrize("forged", [Sample("p", FAR, FAR), Heartbeat("p", FAR)])
def test_MS_70_one_number_from_the_far_future_silences_nobody(forged):
    world = World()
    world.tell(Sample("p", 0, 0))
    world.tell(forged)
    assert (world.asked, world.source().held) == ([], ())
    for number in range(1, 50):
        assert world.tell(Sample("p", number, number)) == [Deliver("p", number, number)]
    world.tell(Sample("p", 51, 51))
    world.tell(forged)
    world.tell(Sample("p", 50, 50))
    assert told(world)[-1] == (50, 51)
    history = World(history=History())
    history.tell(Sample("p", 0, 0))
    history.tell(forged)
    history.tell(QueryEnded("*", 1, 1))
    assert told(history) == [(0, 0)]


@pytest.mark.parametrize("first", [Sample("p", FAR, FAR), Heartbeat("p", FAR)])
@pytest.mark.parametrize("second", [Sample("p", FAR + 1, FAR + 1), Heartbeat("p", FAR + 1), Sample("p", FAR, FAR + 1)])
def test_MS_70_two_in_sequence_are_believed_and_are_one_hole_that_fills_no_memory(first, second):
    world = World(retries=2)
    world.tell(Sample("p", 0, 0))
    world.tell(first)
    world.tell(second)
    source = world.source()
    assert source.top == FAR + 2
    assert len(source.held) <= 1
    rounds = 0
    while world.source().status is not SourceStatus.LIVE:
        while world.open:
            world.end_empty()
        world.tick()
        rounds += 1
    assert rounds <= 4, "what is asked for in vain is asked for whole"
    assert world.broken == []
    assert told(world)[-1][1] == FAR + 1


def test_a_flood_of_numbers_far_apart_is_bounded_by_what_may_be_held():
    world = World(pending=50, jump=1 << 33)
    world.tell(Sample("p", 0, 0))
    for number in range(1, 2_000):
        world.tell(Sample("p", number << 32, number << 32))
        assert world.source().held_count <= 50
    assert world.broken == []


def test_of_two_who_claim_one_id_the_first_with_a_number_is_heard():
    world = World()
    for number in range(5):
        world.tell(Sample("p", number, number))
        world.tell(Sample("p", max(number - 2, 0), max(number - 2, 0)))
    assert told(world) == [(number, number) for number in range(5)]
    assert world.source().dropped == 5
    world.tell(Sample("p", 9, 9))  # one of them is further
    world.tell(Sample("p", 5, 5))
    world.tell(QueryEnded("p", 1, 5))
    assert told(world)[5:] == [(5, 5), (6, 8), (9, 9)]


def test_who_begins_anew_under_its_old_id_is_older_until_it_has_caught_up():
    world = World()
    world.tell(Sample("p", 0, 9))
    for number in range(12):
        world.tell(Sample("p", number, number))
    assert told(world) == [(0, 9), (10, 10), (11, 11)]
    assert world.source().dropped == 10
    assert not world.asked


def test_ends_that_nobody_waits_for_convict_nothing():
    world = World()
    world.tell(Sample("p", 0, 0))
    world.tell(Sample("p", 2, 2))
    for n in (-1, 0, 2, 3, FAR):
        world.tell(QueryEnded("p", n, 2))
    world.tell(QueryEnded("*", 1, 1))
    world.tell(QueryEnded("q", 1, 2))
    assert told(world) == [(0, 0)]
    world.tell(QueryEnded("p", 1, 2))
    assert told(world) == [(0, 0), (1, 1), (2, 2)]


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
