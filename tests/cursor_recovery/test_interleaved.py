"""Writers and readers interleaved at every access, with crashes, pauses and restarts that Hypothesis chooses.

The machines of cursors and blocks watch every access: what must never be done is refused, whoever does it.

The observers of the properties: for each one run that breaks it, and one near it that does not.
"""

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_world import World

from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.memory import LOST, READ_HEAD, WRITE_HEAD
from statemachines.cursor_recovery.observers import Observers
from statemachines.cursor_recovery.properties.delivered_blocks import Acknowledged, Delivered, DeliveredBlocks, Gone
from statemachines.cursor_recovery.properties.reserved_blocks import (
    BlockClaim,
    BlockSkip,
    ProcessDied,
    Reservation,
    ReservedBlocks,
)
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome, Skipped, Taken
from statemachines.cursor_recovery.writer import Outcome, Reserved, WriteDone
from statemachines.kernel import ProtocolError

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


@pytest.mark.long
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


@pytest.mark.long
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


W, R, S = "writer", "reader", "another reader"
A, B, OTHER, LONGER = (b"AAAA", 1), (b"BBBB", 1), (b"????", 1), (b"????????", 1)
WRITTEN = (A, B)


def acknowledge(position=0, block=A):
    return W, Acknowledged(position, block)


def deliver(position=0, block=A, reader=R, outcome=ReadOutcome.DELIVERED):
    return reader, Delivered(outcome, position, *block, position + 20)


def skip(first, last):
    return R, Skipped(first, last)


def play_of_queue_properties(*events, seen=None, written=WRITTEN):
    """The names of what breaks by the last event; nothing breaks before it."""
    *before, (party, event) = events
    seen = DeliveredBlocks() if seen is None else seen
    for who, what in before:
        seen, broken = seen.observe(who, what, written)
        assert broken == ()
    return [one.name for one in seen.observe(party, event, written)[1]]


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        ((deliver(block=OTHER),), ["INTEG"]),
        ((deliver(block=B),), []),
        ((acknowledge(), deliver(block=LONGER)), ["INTEG"]),
        ((deliver(), deliver(20)), ["ONCE"]),
        ((deliver(), deliver(20, B)), []),
        ((deliver(), deliver(0, B, S)), ["ONCE"]),
        ((deliver(20, B), deliver()), ["ORDER"]),
        ((deliver(20, B), deliver(reader=S)), []),
        ((acknowledge(), skip(0, 19)), ["ACK"]),
        ((acknowledge(20), skip(0, 19)), []),
        ((skip(0, 39), acknowledge(20)), ["ACK"]),
        ((skip(0, 19), acknowledge(20)), []),
        ((acknowledge(), deliver(block=B)), ["KEPT"]),
        ((acknowledge(), deliver()), []),
        ((acknowledge(), deliver(20)), ["KEPT"]),
        ((deliver(20), acknowledge()), ["KEPT"]),
        ((deliver(), acknowledge()), []),
        ((acknowledge(), (R, Gone(0, 2, 20))), ["KEPT"]),
        ((acknowledge(), (R, Gone(0, 1, 20))), []),
        ((acknowledge(), deliver(outcome=ReadOutcome.DISCARDED)), []),
    ],
)
def test_what_is_told_breaks_what_it_breaks(events, broken):
    assert play_of_queue_properties(*events) == broken


@pytest.mark.parametrize(
    ("events", "is_open"),
    [
        ((acknowledge(),), True),
        ((acknowledge(), deliver()), False),
        ((deliver(), acknowledge()), False),
        ((acknowledge(), (R, Gone(0, 1, 20))), False),
        (((R, Gone(0, 1, 20)), acknowledge()), False),
        ((acknowledge(), skip(0, 19)), True),
    ],
)
def test_READ_what_is_acknowledged_is_open_until_it_comes_or_is_taken_along(events, is_open):
    seen = reduce(lambda seen, one: seen.observe(*one, WRITTEN)[0], events, DeliveredBlocks())
    assert bool(seen.open) is is_open


WRITE = ((W, Reservation(0, 20, A)), (W, Reserved(0, 19)), (W, WriteDone(Outcome.WRITTEN, 0)))
READ = ((R, BlockClaim(0, 20)), (R, Taken(0, 19)), (R, ReadDone(ReadOutcome.DELIVERED, 0, 1, b"AAAA")))


@pytest.mark.parametrize(
    ("events", "broken"),
    [
        ((*WRITE, *READ), []),
        (((W, Reservation(0, 24, A)),), ["SPACE"]),
        ((*WRITE[:1], (W, Reserved(0, 20))), ["SPACE"]),
        ((*WRITE, *READ[:1], (R, Taken(0, 23))), ["SPACE"]),
        ((*WRITE[:1], (W, WriteDone(Outcome.WRITTEN, 20))), ["INTEG"]),
        ((*WRITE[:1], (W, WriteDone(Outcome.FENCED))), []),
        ((*WRITE, (R, BlockClaim(0, 16))), ["INTEG"]),
        ((*WRITE, READ[2]), ["INTEG"]),
        ((*WRITE[:1], (R, BlockSkip(0, 20))), ["ACK"]),
        ((*WRITE[:1], (W, ProcessDied()), (R, BlockSkip(0, 20))), []),
        ((*WRITE, *READ[:1], (R, Skipped(0, 19))), ["ACK"]),
        ((*WRITE, (R, Skipped(0, 19))), []),
    ],
)
def test_who_sees_the_accesses_judges_by_them(events, broken):
    assert play_accesses(*events)[1] == broken


def play_accesses(*events):
    seen, broken = ReservedBlocks(), ()
    for party, event in events:
        assert broken == ()
        seen, broken = seen.observe(party, event)
    return seen, [one.name for one in broken]


def test_SPACE_stores_hit_the_header_and_copies_the_data_of_the_writer_s_own_block():
    seen, _ = play_accesses((W, Reservation(96, 116, A)))
    assert [bool(seen.check_copy(W, *at)) for at in ((112, 4), (112, 5), (111, 4), (116, 1))] == [
        False,
        True,
        True,
        True,
    ]
    assert [bool(seen.check_header(W, cell, 100)) for cell in (96, 0, 8, 12, 92)] == [False, False, False, True, True]
    assert seen.check_copy(R, 112, 4)
    assert seen.check_header(R, 96, 100)


def names(broken):
    return [one.name for one in broken]
