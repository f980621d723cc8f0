"""The machines of cursors and blocks watch every access: what must never be done is refused, whoever does it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_world import World
from test_interleaved import LATER, MOVES, play

from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.cursor import CursorStatus, Taken
from statemachines.cursor_recovery.observers import BlockStatus, Observers
from statemachines.kernel import InvariantViolated, ProtocolError

DONE, STORED = memory.Swapped(True), memory.Stored()
MINE, OTHERS = memory.token(0, 1, 0), memory.token(7, 2, 0)
STATE, POSITION = "write/0/state", "write/0/position"
AGED_NS = 2 * 10**9 + memory.TICK_NS


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

    def read_position(self, position):
        self.others(memory.CompareAndSwap("read/0/state", memory.FREE, OTHERS))
        self.others(memory.Store("read/0/position", memory.NONE), STORED)
        self.others(memory.Store("read/0/position", position), STORED)

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


def test_a_write_and_a_read_go_through_every_state(scene):
    seen = [scene.cursor]
    scene.take()
    seen.append(scene.cursor)
    scene.do(memory.Store(POSITION, 0), STORED)
    seen.append(scene.cursor)
    assert seen == [CursorStatus.FREE, CursorStatus.ALLOCATED, CursorStatus.POSITIONED]
    scene.do(memory.CompareAndSwap(memory.WRITE_HEAD, 0, 20))
    blocks = [scene.block()]
    for cell in (0, 4, 8, 12):
        scene.store(cell)
        blocks.append(scene.block())
    scene.do(memory.CopyIn(16, b"AAAA"), STORED)
    blocks.append(scene.block())
    scene.do(memory.CompareAndSwap(STATE, MINE, memory.FREE))
    blocks.append(scene.block())
    assert [one.value for one in blocks] == [
        "reserved", "sized", "checksummed", "half_marked", "committed", "filled", "written"]  # fmt: skip
    assert scene.cursor is CursorStatus.FREE
    scene.read_position(0)
    block = scene.observers.blocks[0]
    scene.others(memory.CompareAndSwap(memory.READ_HEAD, 0, 20))
    assert (block.record.status, scene.observers.blocks) == (BlockStatus.CONSUMED, {})


def test_an_empty_block_is_filled_when_it_is_marked(scene):
    scene.reserve(16)
    scene.store(0, 4, 8, 12)
    assert scene.block() is BlockStatus.FILLED


def test_what_changes_nothing_is_nothing(scene):
    scene.take()
    scene.others(memory.CompareAndSwap(STATE, memory.FREE, OTHERS), memory.Swapped(False))
    scene.others(memory.Load(STATE), memory.Loaded(MINE, 0))
    scene.do(memory.CompareAndSwap("lost", 0, 1))
    assert scene.cursor is CursorStatus.ALLOCATED


def test_CR_34_a_cursor_that_has_an_owner_is_not_taken(scene):
    scene.take()
    refused(scene.others, memory.CompareAndSwap(STATE, memory.FREE, OTHERS))


def test_CR_34_a_cursor_is_not_taken_by_leaving_it_free(scene):
    with pytest.raises(InvariantViolated):
        scene.observers.cursors["write", 0].feed(Taken(memory.FREE), 0)


def test_CR_34_nobody_frees_what_the_living_use_however_old_it_is(scene):
    scene.take()
    scene.now_ns = AGED_NS
    refused(scene.others, memory.CompareAndSwap(STATE, MINE, memory.FREE))


def test_CR_04_what_the_dead_left_is_freed_when_it_is_aged_and_not_before(scene):
    scene.take()
    scene.observers.observe_death(0, 1)
    scene.now_ns = 2 * 10**9
    refused(scene.others, memory.CompareAndSwap(STATE, MINE, memory.FREE))
    scene.now_ns = AGED_NS
    scene.others(memory.CompareAndSwap(STATE, MINE, memory.FREE))
    assert scene.cursor is CursorStatus.FREE


def test_CR_34_nobody_sets_the_position_of_anothers_cursor(scene):
    scene.take()
    refused(scene.others, memory.Store(POSITION, 0), STORED)
    refused(scene.others, memory.Store(POSITION, memory.NONE), STORED)


@pytest.mark.parametrize("request_", [memory.Store(POSITION, 0), memory.Store(POSITION, memory.NONE)])
def test_CR_31_nobody_sets_the_position_of_a_free_cursor(scene, request_):
    refused(scene.do, request_, STORED)


def test_CR_31_nobody_who_is_dead_does_anything(scene):
    scene.take()
    scene.observers.observe_death(0, 1)
    refused(scene.do, memory.Store(POSITION, 0), STORED)
    refused(scene.do, memory.CompareAndSwap(STATE, MINE, memory.FREE))


@pytest.mark.parametrize("cells", [(4,), (8,), (12,), (0, 8), (0, 4, 12), (0, 0), (0, 4, 8, 12, 12)])
def test_CR_20_a_header_is_written_in_its_order(scene, cells):
    scene.reserve()
    scene.store(*cells[:-1])
    refused(scene.store, cells[-1])


@pytest.mark.parametrize("cells", [(), (0,), (0, 4), (0, 4, 8)])
def test_CR_20_data_is_not_written_before_the_mark(scene, cells):
    scene.reserve()
    scene.store(*cells)
    refused(scene.do, memory.CopyIn(16, b"AAAA"), STORED)


def test_CR_35_nobody_writes_where_nothing_is_reserved(scene):
    refused(scene.store, 0)
    refused(scene.do, memory.CopyIn(16, b"AAAA"), STORED)
    scene.reserve()
    refused(scene.store, 20)
    refused(scene.others, memory.Store("data/0", 1), STORED)


@pytest.mark.parametrize("cells", [(), (0,), (0, 4), (0, 4, 8), (0, 4, 8, 12)])
def test_CR_36_a_writer_does_not_let_go_of_half_a_block(scene, cells):
    scene.reserve()
    scene.store(*cells)
    refused(scene.do, memory.CompareAndSwap(STATE, MINE, memory.FREE))


@pytest.mark.parametrize("cells", [(), (0, 4, 8), (0, 4, 8, 12)])
def test_CR_44_nobody_takes_or_skips_what_a_living_writer_writes(scene, cells):
    scene.reserve()
    scene.store(*cells)
    refused(scene.others, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))
    scene = Scene()
    scene.reserve()
    scene.store(*cells)
    scene.read_position(0)
    refused(scene.others, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))


def test_CR_36_nobody_skips_what_was_acknowledged(scene):
    scene.write()
    refused(scene.others, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))


def test_CR_44_what_a_dead_writer_left_without_a_mark_is_skipped_and_not_taken(scene):
    scene.reserve()
    scene.store(0, 4, 8)
    scene.observers.observe_death(0, 1)
    scene.observers.observe_death(0, 1 + 4096)  # a namesake that has nothing any more
    assert scene.block() is BlockStatus.LEFT
    scene.others(memory.CompareAndSwap(memory.READ_HEAD, 0, 20))
    assert scene.observers.blocks == {}


def test_CR_37_what_a_dead_writer_left_with_its_mark_may_be_taken(scene):
    scene.reserve()
    scene.store(0, 4, 8, 12)
    scene.observers.observe_death(0, 1)
    assert scene.block() is BlockStatus.LEFT_MARKED
    scene.read_position(0)
    scene.others(memory.CompareAndSwap(memory.READ_HEAD, 0, 20))


@pytest.mark.parametrize(("at", "to"), [(4, 20), (0, 16), (0, 24)])
def test_CR_37_the_read_head_goes_from_block_to_block(scene, at, to):
    scene.reserve()
    scene.store(0)
    scene.observers.observe_death(0, 1)
    refused(scene.others, memory.CompareAndSwap(memory.READ_HEAD, at, to))
