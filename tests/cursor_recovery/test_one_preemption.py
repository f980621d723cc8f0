"""One process stands still, or dies, before each of its accesses in turn, and another goes by: no draw has to hit the
moment."""

from __future__ import annotations

import pytest
from queue_world import World

from statemachines.cursor_recovery.memory import LOST, TICK_NS
from statemachines.cursor_recovery.reader import ReadOutcome
from statemachines.cursor_recovery.writer import Outcome

LATER = 2 * 10**9 + 2 * TICK_NS
SENT = [b"AAAA", b"BBBB"]


def stand_before(begin, access):
    """A world in which slot 1 has begun an operation and made so many accesses; whether it has more to make."""
    world = World(read_cursors=2, write_cursors=2)
    begin(world)
    for _ in range(access):
        if 1 in world.living:
            world.access(1)
    return world, 1 in world.living


def every_access(begin):
    """A world for every access that the operation of slot 1 makes."""
    access, goes_on = 0, True
    while goes_on:
        world, goes_on = stand_before(begin, access)
        yield world
        access += 1
    assert access > 10, "an operation has some accesses"


def read_of_two(world):
    for payload in SENT:
        world.write(0, payload)
    world.begin_read(1)


def delivered(world):
    return [payload for _, payload in sorted(world.delivered.items())]


@pytest.mark.parametrize("others", [1, 2])
def test_CR_54_a_reader_stands_before_any_access_while_another_takes_blocks(others):
    for world in every_access(read_of_two):
        for _ in range(others):
            world.read(2)
        if 1 in world.living:
            world.finish(1)
        world.drain()
        assert delivered(world) == SENT
        assert (world.skips, world.word(LOST)) == ([], 0)


def test_CR_54_CR_55_a_writer_stands_before_any_access_while_another_writes():
    for world in every_access(lambda world: world.begin(1, b"AAAA")):
        assert world.write(2, b"BBBB").outcome is Outcome.WRITTEN
        if 1 in world.living:
            assert world.finish(1).outcome is Outcome.WRITTEN
        world.drain()
        assert sorted(delivered(world)) == SENT
        assert (world.skips, world.word(LOST)) == ([], 0)


def test_CR_55_a_writer_dies_before_any_access_and_what_another_writes_is_delivered():
    for world in every_access(lambda world: world.begin(1, b"AAAA")):
        world.crash(1, cells=0)
        assert world.write(2, b"BBBB").outcome is Outcome.WRITTEN
        world.now += LATER
        while world.read(3).outcome is not ReadOutcome.EMPTY:
            pass
        assert delivered(world)[-1] == b"BBBB"
        assert {payload for _, payload in world.published} <= set(delivered(world))


def test_CR_55_a_reader_dies_before_any_access_and_costs_at_most_the_block_it_had_taken():
    for world in every_access(read_of_two):
        taken = delivered(world) == SENT[:1]
        world.crash(1)
        world.now += LATER
        world.drain()
        assert len(delivered(world)) + len(world.lost) == 2
        assert len(world.lost) <= 1 - taken
