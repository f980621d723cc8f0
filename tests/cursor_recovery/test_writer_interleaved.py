"""Writers interleaved at every access, with crashes, pauses and restarts that Hypothesis chooses."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_world import World

from statemachines.cursor_recovery.block import length_of
from statemachines.cursor_recovery.memory import WRITE_HEAD
from statemachines.cursor_recovery.writer import Outcome

TICK = 2**16
SLOTS = st.integers(0, 1)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("run"), SLOTS, st.integers(1, 40)),
        st.tuples(st.just("begin"), SLOTS, st.integers(0, 30)),
        st.tuples(st.just("crash"), SLOTS, st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 10**9, 2 * 10**9 + 2 * TICK])),
        st.tuples(st.just("consume"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


def play(world, moves):
    """Make the moves; every access checks BOUND, EXCL and SPACE, every step the reference engine."""
    for kind, slot, number in moves:
        if kind == "begin" and slot not in world.living:
            world.begin(slot, bytes(range(world.count % 100 + 1, world.count % 100 + 1 + number)))
        elif kind == "run":
            for _ in range(number):
                if slot in world.living:
                    world.access(slot)
        elif kind == "crash":
            world.crash(slot)
        elif kind == "wait":
            world.now += number
        elif kind == "consume":
            world.consume()
    world.check_published()


def judge(world):
    """The positions are the blocks one after another; each is published, or its writer did not come to its end."""
    end = 0
    for start, last in world.reserved:
        assert start == end
        end = last
    assert end == world.word(WRITE_HEAD)


@settings(deadline=None, max_examples=400)
@given(MOVES, st.integers(1, 2))
def test_CR_33_CR_34_CR_35_CR_36_CR_37_CR_38_however_two_writers_are_interleaved(moves, cursors):
    world = World(write_cursors=cursors)
    play(world, moves)
    judge(world)
    # Those that live come to their end, one after the other, and none of them blocks for ever.
    for slot in sorted(world.living):
        world.finish(slot)
    world.check_published()
    # When the dead are aged, all is as new: whoever comes publishes in an empty queue.
    world.now += 2 * 10**9 + 2 * TICK
    world.consume()
    assert world.write(5, b"at last").outcome is Outcome.WRITTEN
    world.check_published()
    judge(world)


@settings(deadline=None, max_examples=200)
@given(MOVES)
def test_CR_38_by_age_alone_a_slow_writer_is_fenced_and_the_queue_still_goes_on(moves):
    world = World(write_cursors=2, threshold_only=True)
    # Without a second lap: a slow writer's late stores then hit its own block only.
    play(world, [move for move in moves if move[0] != "consume"])
    judge(world)
    for slot in sorted(world.living):
        world.finish(slot)
    world.now += 2 * 10**9 + 2 * TICK
    world.consume()
    assert world.write(5, b"at last").outcome is Outcome.WRITTEN


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=200), st.integers(0, 20), st.integers(0, 20))
def test_CR_38_WRITE_two_living_writers_in_an_empty_queue_both_publish(turns, one, two):
    world = World(write_cursors=2)
    payloads = {0: bytes(one), 1: bytes(two)}
    for slot, payload in payloads.items():
        world.begin(slot, payload)
    for slot in turns:
        if slot in world.living:
            world.access(slot)
    for slot in sorted(world.living):
        world.finish(slot)
    assert sorted(payload for _, payload in world.published) == sorted(payloads.values())
    world.check_published()
    assert world.word(WRITE_HEAD) == sum(length_of(len(payload)) for payload in payloads.values())


def side_by_side(world, first, ahead):
    """The writer of slot `first` makes `ahead` accesses, then both go on in turn to their ends."""
    for _ in range(ahead):
        if first in world.living:
            world.access(first)
    while world.living:
        for slot in sorted(world.living):
            world.access(slot)


@pytest.mark.parametrize("cursors", [1, 2])
@pytest.mark.parametrize("ahead", range(6))
def test_CR_34_two_writers_side_by_side_never_own_one_cursor(cursors, ahead):
    world = World(write_cursors=cursors)
    writers = [world.begin(slot, b"AAAA") for slot in (0, 1)]
    side_by_side(world, 0, ahead)
    ends = [writer.outcome for writer in writers]
    assert ends.count(Outcome.WRITTEN) >= min(cursors, 2)
    assert set(ends) <= {Outcome.WRITTEN, Outcome.NO_CURSOR}


@pytest.mark.parametrize("ahead", range(12))
def test_CR_33_two_writers_side_by_side_never_go_beyond_a_full_queue(ahead):
    world = World(write_cursors=2)
    for _ in range(5):
        assert world.write(0, b"AAAA").outcome is Outcome.WRITTEN
    writers = [world.begin(slot, b"AAAA") for slot in (0, 1)]  # room for one of them
    side_by_side(world, 0, ahead)
    assert sorted(writer.outcome.value for writer in writers) == ["full", "written"]
    assert world.word(WRITE_HEAD) == 120
