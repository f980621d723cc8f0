"""A writer killed between any two memory accesses; others recover what it left behind."""

from __future__ import annotations

import pytest
from queue_world import World

from statemachines.cursor_recovery.block import length_of
from statemachines.cursor_recovery.memory import READ_HEAD, WRITE_HEAD, position_of, state_of, token
from statemachines.cursor_recovery.writer import Outcome

THRESHOLD = 2_000_000_000
LATER = THRESHOLD + 2**17


def plain(**queue):
    return World(**queue)


def near_the_end(**queue):
    """The next block crosses the end of the data area."""
    world = World(**queue)
    for _ in range(5):
        assert world.write(9, b"PPPP").outcome is Outcome.WRITTEN
    world.consume()
    return world


def with_dead_owners(**queue):
    """A write cursor and a read cursor of dead processes, aged, both in the way of the next write."""
    world = World(**queue)
    for _ in range(6):
        world.write(9, b"PPPP")
    world.put(READ_HEAD, 120)
    world.put(state_of("read", 0), token(7, 1, world.now))
    world.put(position_of("read", 0), 0)
    world.put(state_of("write", 0), token(8, 1, world.now))
    world.forget_published()
    world.now += LATER
    return world


STARTS = [plain, near_the_end, with_dead_owners]
CASES = [(start, cursors, payload) for start in STARTS for cursors in (1, 2) for payload in (b"", b"AAAAAAAAA")]


def accesses(start, cursors, payload):
    writer = start(write_cursors=cursors).write(0, payload)
    assert writer.outcome is Outcome.WRITTEN
    return writer.accesses


KILLS = [(*case, k) for case in CASES for k in range(accesses(*case) + 1)]


@pytest.mark.parametrize(("start", "cursors", "payload", "k"), KILLS)
def test_CR_36_CR_37_CR_38_after_any_access_of_a_killed_writer_the_queue_goes_on(start, cursors, payload, k):
    world = start(write_cursors=cursors)
    head = world.word(WRITE_HEAD)
    dead = world.begin(0, payload)
    for _ in range(k):
        world.access(0)
    world.crash(0)
    reserved = dead.start is not None
    gap = length_of(len(payload)) if reserved else 0
    assert world.word(WRITE_HEAD) == head + gap

    # At once: another writer ends, whatever it finds; with a second cursor it publishes.
    first = world.write(1, b"BBBB")
    assert first.outcome in (Outcome.WRITTEN, Outcome.NO_CURSOR)
    assert first.outcome is Outcome.WRITTEN or cursors == 1
    # After the threshold the dead writer's cursor comes back, and everybody publishes.
    world.now += LATER
    for slot, data in ((1, b"CCCC"), (2, b"DDDD")):
        assert world.write(slot, data).outcome is Outcome.WRITTEN
    world.check_published()

    # Positions go on without a gap but for the block of the dead writer, which is whole or skipped.
    blocks = [position for position, _ in world.reserved if position >= head]
    told = [position for position, _ in world.published]
    lost = [position for position in blocks if position not in told]
    assert lost == ([head] if reserved and dead.outcome is None else [])
    if lost:
        assert world.block(head) in (None, payload), "never half a message"


@pytest.mark.parametrize(("start", "cursors", "payload"), CASES)
def test_CR_38_STALE_every_cursor_of_a_dead_writer_becomes_free(start, cursors, payload):
    for k in range(accesses(start, cursors, payload) + 1):
        world = start(write_cursors=cursors)
        world.begin(0, payload)
        for _ in range(k):
            world.access(0)
        world.crash(0)
        world.now += LATER
        for _ in range(cursors):  # each write takes the first cursor that is free or stale, and frees it
            world.write(1, b"")
        occupied = [world.begin(slot, b"") for slot in range(1, cursors + 1)]
        while any(writer.node.record.token == 0 for writer in occupied):
            for slot, writer in enumerate(occupied, 1):
                if writer.node.record.token == 0:
                    world.access(slot)
        for slot in range(1, cursors + 1):
            world.finish(slot)
        assert all(world.free_cursors())
