"""The watch of the queue, on accesses made by hand: each property it judges is broken, and seen to be."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.reader import ReadDone, ReadOutcome, Skipped, Taken
from statemachines.cursor_recovery.writer import Outcome, Reserved, Write, WriteDone
from statemachines_sim.cursor_recovery import SIM
from statemachines_sim.cursor_recovery.section import QueueSection
from statemachines_sim.judge import Violation
from statemachines_sim.scenario import Phases, Scenario
from statemachines_sim.world import World

W1, W2, R1, R2 = "writer-1~1", "writer-2~1", "reader-1~1", "reader-2~1"
NOW = 10**10


class Hand:
    """A world without processes: accesses are made, and things told, by hand."""

    def __init__(self, **keys):
        own = QueueSection(**({"writers": 0, "readers": 0, "capacity": 100, "size": (0, 4)} | keys))
        self.world = World(Scenario("by_hand", SIM.name, own, phases=Phases(safety_s=1.0)))
        self.world.env.run(until=NOW)
        self.watch, self.memory = self.world.watch, self.world.devices["memory"]

    def access(self, life, request):
        return self.memory.apply(request, f"{life}/1")

    def take_cursor(self, life, pool, cursor=0, expected=memory.FREE, slot=1):
        self.access(life, memory.CompareAndSwap(memory.state_of(pool, cursor), expected, memory.token(slot, 1, NOW)))

    def free_cursor(self, life, pool, cursor=0):
        word = self.memory.state[memory.state_of(pool, cursor)]
        self.access(life, memory.CompareAndSwap(memory.state_of(pool, cursor), word, memory.FREE))

    def tell(self, life, event):
        process = SimpleNamespace(life=life, node=life.partition("~")[0])
        self.watch.tell(process, f"{life}/1", event, NOW)

    def die(self, life):
        self.watch.observe_death(SimpleNamespace(life=life), NOW)

    def reserve(self, life, start, payload=b"AAAA", messages=1, length=None):
        self.watch.step(SimpleNamespace(name=f"{life}/1"), Write(payload, messages), None, None, NOW)
        end = start + (length or 16 + len(payload))
        self.access(life, memory.CompareAndSwap(memory.WRITE_HEAD, start, end))
        return end

    def write(self, life, start, payload=b"AAAA"):
        """A whole write, but for the cursor."""
        end = self.reserve(life, start, payload)
        self.access(life, memory.CopyIn(start + 16, payload))
        self.tell(life, Reserved(start, end - 1))
        self.tell(life, WriteDone(Outcome.WRITTEN, start))
        return end

    def take_block(self, life, start, end, cursor=0):
        self.access(life, memory.Store(memory.position_of("read", cursor), start))
        self.access(life, memory.CompareAndSwap(memory.READ_HEAD, start, end))

    def deliver(self, life, position, payload=b"AAAA", messages=1):
        self.tell(life, ReadDone(ReadOutcome.DELIVERED, position, messages, payload))

    def breaks(self, name):
        return pytest.raises(Violation, match=f"^{name}: ")


@pytest.fixture
def hand():
    hand = Hand()
    hand.take_cursor(R1, "read", slot=3)
    return hand


def test_a_whole_run_by_hand_breaks_nothing(hand):
    assert hand.write(W1, 0) == 20
    assert hand.watch.missing(hand.world)[0] == "READ"
    hand.take_block(R1, 0, 20)
    hand.tell(R1, Taken(0, 19))
    hand.deliver(R1, 0)
    hand.free_cursor(R1, "read")
    assert hand.watch.missing(hand.world) is None
    assert hand.watch.tally()["written"] == hand.watch.tally()["delivered"] == 1


def test_INTEG_what_is_taken_is_a_block(hand):
    hand.write(W1, 0)
    with hand.breaks("INTEG"):
        hand.take_block(R1, 0, 16)


def test_INTEG_and_KEPT_what_comes_is_what_was_written(hand):
    hand.reserve(W1, 0)
    hand.take_block(R1, 0, 20)
    with hand.breaks("INTEG"):
        hand.deliver(R1, 0, b"AAAB")
    hand.write(W2, 20)
    hand.take_block(R1, 20, 40)
    with hand.breaks("KEPT"):
        hand.deliver(R1, 20, b"AAAA", messages=2)


def test_INTEG_what_comes_was_taken(hand):
    hand.write(W1, 0)
    with hand.breaks("INTEG"):
        hand.deliver(R1, 0)


def test_INTEG_written_is_told_of_the_block_that_was_reserved(hand):
    hand.reserve(W1, 0)
    with hand.breaks("INTEG"):
        hand.tell(W1, WriteDone(Outcome.WRITTEN, 20))


def test_ONCE_nothing_comes_twice(hand):
    hand.write(W1, 0)
    hand.take_block(R1, 0, 20)
    blocks = hand.watch.blocks
    hand.deliver(R1, 0)
    hand.watch.blocks = replace(hand.watch.blocks, taken=blocks.taken)
    with hand.breaks("ONCE"):
        hand.deliver(R1, 0)


def test_ORDER_positions_of_a_reader_rise(hand):
    hand.write(W1, 0, b"AAAA")
    hand.write(W1, 20, b"BBBB")
    hand.take_cursor(R2, "read", 1, slot=4)
    hand.take_block(R1, 0, 20)
    hand.take_block(R2, 20, 40, cursor=1)
    hand.deliver(R2, 20, b"BBBB")
    taken = hand.watch.blocks.taken
    hand.watch.blocks = replace(hand.watch.blocks, taken=taken.delete(R1).set(R2, taken[R1]))
    with hand.breaks("ORDER"):
        hand.deliver(R2, 0)


def test_ACK_what_is_acknowledged_is_not_skipped(hand):
    hand.write(W1, 0)
    with hand.breaks("ACK"):
        hand.access(R1, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))


def test_ACK_what_was_skipped_is_not_acknowledged(hand):
    hand.reserve(W1, 0)
    filling = hand.watch.blocks.filling
    hand.watch.blocks = replace(hand.watch.blocks, filling=filling.delete(W1))
    hand.access(R1, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))
    hand.watch.blocks = replace(hand.watch.blocks, filling=filling)
    with hand.breaks("ACK"):
        hand.tell(W1, WriteDone(Outcome.WRITTEN, 0))


def test_ACK_what_a_living_writer_fills_is_not_skipped(hand):
    hand.reserve(W1, 0)
    with hand.breaks("ACK"):
        hand.access(R1, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))


def test_a_dead_writer_s_block_may_be_skipped(hand):
    hand.reserve(W1, 0)
    hand.die(W1)
    hand.access(R1, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))
    hand.tell(R1, Skipped(0, 19))
    assert hand.watch.tally()["skipped_bytes"] == 20


def test_ACK_a_copy_that_is_not_whole_was_not_acknowledged(hand):
    hand.write(W1, 0)
    hand.take_block(R1, 0, 20)
    with hand.breaks("ACK"):
        hand.tell(R1, Skipped(0, 19))


def test_LOST_what_the_dead_took_is_counted_once_their_cursors_are_free(hand):
    hand.write(W1, 0)
    hand.take_block(R1, 0, 20)
    hand.die(R1)
    assert hand.watch.tally()["lost"] == 1
    assert hand.watch.missing(hand.world) is None, "its cursor is not free yet"
    hand.free_cursor(R2, "read")
    assert hand.watch.missing(hand.world)[0] == "LOST"
    hand.access(R2, memory.CompareAndSwap("lost", 0, 1))
    assert hand.watch.missing(hand.world) is None


def test_SPACE_a_writer_writes_into_its_own_block(hand):
    hand.reserve(W1, 0)
    for position, size in ((15, 4), (12, 4), (17, 4), (20, 4)):
        with hand.breaks("SPACE"):
            hand.access(W1, memory.CopyIn(position, bytes(size)))
    with hand.breaks("SPACE"):
        hand.access(W2, memory.CopyIn(16, b"AAAA"))


def test_SPACE_a_header_lies_at_its_beginning(hand):
    hand.reserve(W1, 0)
    for cell in (0, 4, 8, 12):
        hand.access(W1, memory.Store(f"data/{cell}", 1))
    for cell in (16, 96):
        with hand.breaks("SPACE"):
            hand.access(W1, memory.Store(f"data/{cell}", 1))


def test_SPACE_nobody_writes_over_what_somebody_is_reading(hand):
    hand.write(W1, 0)
    hand.take_block(R1, 0, 20)
    hand.reserve(W1, 20, b"B" * 60)
    hand.access(W1, memory.CopyIn(36, b"B" * 60))
    hand.tell(W1, WriteDone(Outcome.WRITTEN, 20))
    hand.reserve(W1, 96, b"CCCC")
    with hand.breaks("SPACE"):
        hand.access(W1, memory.CopyIn(112, b"CCCC"))


def test_SPACE_what_is_reserved_is_as_long_as_the_block(hand):
    with hand.breaks("SPACE"):
        hand.reserve(W1, 0, length=24)


def test_SPACE_what_is_said_to_be_reserved_is(hand):
    hand.reserve(W1, 0)
    with hand.breaks("SPACE"):
        hand.tell(W1, Reserved(0, 20))


def test_EXCL_a_cursor_is_taken_when_it_is_free(hand):
    with hand.breaks("EXCL"):
        hand.take_cursor(R2, "read", expected=memory.token(3, 1, NOW), slot=4)


def test_EXCL_nobody_frees_what_the_living_hold(hand):
    with hand.breaks("EXCL"):
        hand.free_cursor(R2, "read")


def test_EXCL_what_the_dead_held_may_be_freed_once(hand):
    hand.die(R1)
    hand.free_cursor(R2, "read")
    hand.take_cursor(R2, "read", slot=4)
    with hand.breaks("EXCL"):
        hand.free_cursor(W1, "read")


def test_BOUND_the_heads_keep_their_distance(hand):
    with hand.breaks("BOUND"):
        hand.reserve(W1, 0, b"A" * 88)
    with hand.breaks("BOUND"):
        hand.take_block(R1, 0, 200)


def test_STALE_nobody_goes_without_a_cursor_that_a_dead_one_holds_too_long():
    hand = Hand(threshold_ms=1)
    hand.take_cursor(W1, "write", slot=1)
    hand.take_cursor(R1, "read", slot=3)
    hand.die(W1)
    hand.access(W2, memory.CompareAndSwap("write/1/state", 1, 1))  # its first access: the cursor is not aged yet
    hand.tell(W2, WriteDone(Outcome.NO_CURSOR))
    hand.world.env.run(until=2 * NOW)
    hand.access(R2, memory.CompareAndSwap("read/1/state", 1, 1))
    hand.tell(R2, ReadDone(ReadOutcome.NO_CURSOR))  # the reader's is a living one's
    hand.access(W2, memory.CompareAndSwap("write/1/state", 1, 1))
    with hand.breaks("STALE"):
        hand.tell(W2, WriteDone(Outcome.NO_CURSOR))


def test_STALE_who_died_while_an_operation_was_under_way_was_alive_when_that_looked():
    hand = Hand(threshold_ms=1)
    hand.take_cursor(W1, "write", slot=1)
    hand.world.env.run(until=2 * NOW)
    hand.access(W2, memory.CompareAndSwap("write/1/state", 1, 1))
    hand.die(W1)
    hand.tell(W2, WriteDone(Outcome.NO_CURSOR))
    hand.access(W2, memory.CompareAndSwap("write/1/state", 1, 1))
    with hand.breaks("STALE"):
        hand.tell(W2, WriteDone(Outcome.NO_CURSOR))


def test_WRITE_who_has_messages_left_is_missed():
    world = World(Scenario("by_hand", SIM.name, QueueSection(writers=1, messages=1)), 1)
    assert world.watch.missing(world)[0] == "WRITE"


def test_a_position_that_is_none_is_nobody_s_block(hand):
    hand.reserve(W1, 0)
    hand.die(W1)
    hand.access(R1, memory.Store(memory.position_of("read", 0), memory.NONE))
    hand.access(R1, memory.CompareAndSwap(memory.READ_HEAD, 0, 20))
    assert not hand.watch.blocks.taken
