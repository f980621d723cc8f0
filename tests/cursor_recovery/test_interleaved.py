"""Writers and readers interleaved at every access, with crashes, pauses and restarts that Hypothesis chooses."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from queue_world import World

from statemachines.cursor_recovery.memory import LOST, READ_HEAD, WRITE_HEAD
from statemachines.cursor_recovery.reader import ReadOutcome
from statemachines.cursor_recovery.writer import Outcome

TICK = 2**16
LATER = 2 * 10**9 + 2 * TICK
SLOTS = st.integers(0, 3)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("run"), SLOTS, st.integers(1, 60)),
        st.tuples(st.just("write"), SLOTS, st.integers(0, 30)),
        st.tuples(st.just("several"), SLOTS, st.integers(0, 20)),
        st.tuples(st.just("read"), SLOTS, st.just(0)),
        st.tuples(st.just("crash"), SLOTS, st.integers(0, 6)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 10**9, LATER])),
    ),
    max_size=60,
)


def play(world, moves):
    """Make the moves; every access is checked, and every step against the reference engine."""
    for kind, slot, number in moves:
        busy = slot in world.living
        if kind in ("write", "several") and not busy:
            payload = bytes((world.count + at) % 251 for at in range(number))
            world.begin(slot, payload, messages=2 if kind == "several" else 1)
        elif kind == "read" and not busy:
            world.begin_read(slot)
        elif kind == "run":
            for _ in range(number):
                if slot in world.living:
                    world.access(slot)
        elif kind == "crash":
            world.crash(slot, cells=number)
        elif kind == "wait":
            world.now += number
        world.check_published()


def judge_end(world):
    """Those that live come to their ends; then what is left is delivered, and all is as new."""
    for slot in sorted(world.living):
        world.finish(slot)
        world.check_published()
    world.now += LATER
    world.drain()
    assert not world.blocks.deliveries.open, "READ"
    assert world.word(READ_HEAD) == world.word(WRITE_HEAD)
    world.check_published()
    for _ in range(world.queue.write_cursors):
        assert world.write(5, b"at last").outcome is Outcome.WRITTEN, "WRITE"
        assert world.read(5).payload == b"at last"


def all_free(world):
    """STALE: whoever needs every cursor at once gets them."""
    world.now += LATER
    readers = range(60, 60 + world.queue.read_cursors)
    for slot in readers:
        one = world.begin_read(slot)
        while not one.owns:
            world.access(slot)
    for slot in readers:
        assert world.finish(slot).outcome is ReadOutcome.EMPTY
    world.check_lost()


@settings(deadline=None, max_examples=200)
@given(MOVES, st.integers(1, 2), st.integers(1, 2), st.sampled_from([64, 128]))
def test_CR_33_CR_34_CR_35_CR_36_CR_38_CR_54_CR_55_however_they_are_interleaved_and_die(
    moves, write_cursors, read_cursors, capacity
):
    world = World(write_cursors=write_cursors, read_cursors=read_cursors, capacity=capacity)
    play(world, moves)
    judge_end(world)
    all_free(world)


@settings(deadline=None, max_examples=80)
@given(MOVES)
def test_CR_54_CR_55_without_a_crash_nothing_is_lost_and_nothing_skipped(moves):
    world = World(capacity=96)
    play(world, [move for move in moves if move[0] != "crash"])
    judge_end(world)
    assert (world.skips, world.lost, world.word(LOST)) == ([], [], 0)
    assert [at for at, _ in world.published if at not in world.delivered] == []


@settings(deadline=None, max_examples=80)
@given(MOVES)
def test_CR_06_by_age_alone_with_nobody_slow_it_is_the_same(moves):
    """Who is older than the threshold is dead: all that live are stopped before time goes by."""
    world = World(threshold_only=True, capacity=96)
    for move in moves:
        if move[0] == "wait" and move[2] == LATER:
            for slot in sorted(world.living):
                world.crash(slot)
        if move[0] != "wait" or move[2] == LATER:
            play(world, [move])
    judge_end(world)
