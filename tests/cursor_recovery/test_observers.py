"""The machines of cursors and blocks watch every access: what must never be done is refused, whoever does it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_world import World
from test_interleaved import LATER, MOVES, play

from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.observers import Observers
from statemachines.kernel import ProtocolError

DONE, STORED = memory.Swapped(True), memory.Stored()
MINE, OTHERS = memory.token(0, 1, 0), memory.token(7, 2, 0)
STATE, POSITION = "write/0/state", "write/0/position"


@settings(deadline=None, max_examples=300)
@given(MOVES, st.integers(1, 2), st.integers(1, 2), st.sampled_from([64, 128]))
def test_CR_31_CR_34_CR_36_CR_37_no_access_is_refused_however_they_are_interleaved_and_die(
    moves, write_cursors, read_cursors, capacity
):
    world = World(write_cursors=write_cursors, read_cursors=read_cursors, capacity=capacity)
    world.watch()
    play(world, moves)
    for slot in sorted(world.living):
        world.finish(slot)
    world.now += LATER
    world.drain()
    assert world.observers.blocks == {}
    for (pool, number), node in world.observers.cursors.items():
        assert node.record.word == world.word(f"{pool}/{number}/state")


class Scene:
    """Accesses by hand: slot 0 in its first life writes, slot 7 in its second reads, unless said otherwise."""

    def __init__(self):
        self.observers = Observers(memory.Queue(capacity=64))
        self.now_ns = 0

    def do(self, request, answer=DONE, slot=0, incarnation=1):
        self.observers.observe_access(slot, incarnation, request, answer, self.now_ns)

    def others(self, request, answer=DONE):
        self.do(request, answer, 7, 2)

    def take(self):
        self.do(memory.CompareAndSwap(STATE, memory.FREE, MINE))
        self.do(memory.Store(POSITION, memory.NONE), STORED)

    def reserve(self, end=20):
        self.take()
        self.do(memory.Store(POSITION, 0), STORED)
        self.do(memory.CompareAndSwap(memory.WRITE_HEAD, 0, end))

    def store(self, *cells):
        for cell in cells:
            self.do(memory.Store(f"data/{cell}", 1), STORED)

    def write(self):
        self.reserve()
        self.store(0, 4, 8, 12)
        self.do(memory.CopyIn(16, b"AAAA"), STORED)
        self.do(memory.CompareAndSwap(STATE, MINE, memory.FREE))

    @property
    def cursor(self):
        return self.observers.cursors["write", 0].record.status

    def block(self, position=0):
        return self.observers.blocks[position].record.status


@pytest.fixture
def scene():
    return Scene()


def refused(act, *given):
    with pytest.raises(ProtocolError):
        act(*given)


def test_CR_35_nobody_writes_where_nothing_is_reserved(scene):
    refused(scene.store, 0)
    refused(scene.do, memory.CopyIn(16, b"AAAA"), STORED)
    scene.reserve()
    refused(scene.store, 20)
    refused(scene.others, memory.Store("data/0", 1), STORED)


@pytest.mark.parametrize(("at", "to"), [(4, 20), (0, 16), (0, 24)])
def test_CR_37_the_read_head_goes_from_block_to_block(scene, at, to):
    scene.reserve()
    scene.store(0)
    scene.observers.observe_death(0, 1)
    refused(scene.others, memory.CompareAndSwap(memory.READ_HEAD, at, to))
