"""The scenarios that must be played (spec/cursor_recovery/scenarios.md): who dies where, and what comes out."""

from __future__ import annotations

import pytest
from queue_world import World

from statemachines.cursor_recovery.block import commit_word
from statemachines.cursor_recovery.memory import (
    HEADER,
    LOST,
    READ_HEAD,
    TICK_NS,
    WRITE_HEAD,
    position_of,
    state_of,
    token,
)
from statemachines.cursor_recovery.reader import ReadOutcome
from statemachines.cursor_recovery.writer import Outcome

THRESHOLD = 2_000_000_000
LATER = THRESHOLD + 2 * TICK_NS
NOW = 100_000 * TICK_NS


def world_at(**queue):
    world = World(**queue)
    world.now = NOW
    return world


def stop(world, slot, before):
    """Make accesses until the operation of `slot` stands before that of a state whose name begins so."""
    one = world.living[slot]
    while not one.status.value.startswith(before):
        world.access(slot)
    return one


def after_step(k):
    """The first state behind step k of the source's table."""
    return {"1": "2_", "2": "3_", "3": "4_", "4": "5_", "5": "6_", "6": "7_", "7": "8_"}[str(k)]


def writer_dies(world, payload=b"AAAA", *, before=None, slot=7, cells=0):
    world.begin(slot, payload)
    stop(world, slot, before)
    world.crash(slot, cells)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_scenario_1_a_writer_dead_before_it_has_a_position_is_in_nobodys_way(k):
    world = world_at()
    writer_dies(world, before=after_step(k))
    world.write(0, b"BBBB")
    assert world.drain() == [b"BBBB"]


def test_scenario_1_a_writer_dead_after_step_4_blocks_until_the_threshold_and_nothing_is_skipped():
    world = world_at()
    writer_dies(world, before="5_move_head")
    world.write(0, b"BBBB")
    assert world.read(1).outcome is ReadOutcome.EMPTY
    world.now += LATER
    reader = world.read(1)
    assert (reader.payload, reader.skipped) == (b"BBBB", [])


@pytest.mark.parametrize(
    "before", ["6_store_size", "6_store_checksum", "6_store_commit_low", "6_store_commit_high", "7_copy_data"]
)
def test_scenario_1_a_writer_dead_in_step_5_or_6_is_skipped(before):
    world = world_at()
    writer_dies(world, before=before)
    world.write(0, b"BBBB")
    assert world.read(1).outcome is ReadOutcome.EMPTY
    world.now += LATER
    reader = world.read(1)
    assert (reader.payload, reader.skipped) == (b"BBBB", [(0, 19)])


@pytest.mark.parametrize("cells", [0, 1, 2, 3])
def test_scenario_2_of_a_half_written_payload_nobody_sees_anything(cells):
    world = world_at()
    writer_dies(world, b"abcdefghijkl", before="7_copy_data", cells=cells)
    world.write(0, b"BBBB")
    world.now += LATER
    assert world.drain() == ([b"abcdefghijkl", b"BBBB"] if cells == 3 else [b"BBBB"])


def test_scenario_1_a_writer_dead_after_step_7_has_written_it():
    world = world_at()
    writer_dies(world, before="8_release")
    world.write(0, b"BBBB")
    assert world.read(1).outcome is ReadOutcome.EMPTY
    world.now += LATER
    assert world.drain() == [b"AAAA", b"BBBB"]


def test_scenario_1_a_writer_dead_after_step_8_leaves_nothing_behind():
    world = world_at()
    world.write(7, b"AAAA")
    world.crash(7)
    world.write(0, b"BBBB")
    assert world.drain() == [b"AAAA", b"BBBB"]


READER_STEPS = ["2_", "3_check_cursor", "3_load_commit_low", "5_own", "5_set_position", "6_own", "6_move_head"]


@pytest.mark.parametrize("before", READER_STEPS)
def test_scenario_3_a_reader_dead_before_it_moved_the_head_has_taken_nothing(before):
    world = world_at()
    world.write(0, b"AAAA")
    world.write(0, b"BBBB")
    world.begin_read(7)
    stop(world, 7, before)
    world.crash(7)
    assert world.drain() == [b"AAAA", b"BBBB"]
    world.now += LATER
    for slot in (1, 2):
        world.begin_read(slot)
        stop(world, slot, "2_")
    # others have taken the block that it had set its position to: the count is an upper bound
    assert world.word(LOST) == (1 if before.startswith("6_") else 0)


@pytest.mark.parametrize("before", ["7_copy_data", "8_release"])
def test_scenario_3_a_reader_dead_after_it_moved_the_head_takes_one_message_along(before):
    world = world_at(read_cursors=1)
    world.write(0, b"AAAA")
    world.write(0, b"BBBB")
    world.begin_read(7)
    stop(world, 7, before)
    world.crash(7)
    assert world.read(1).outcome is ReadOutcome.NO_CURSOR
    world.now += LATER
    assert world.drain() == [b"BBBB"]
    assert world.word(LOST) == 1
    world.check_lost()


def test_scenario_3_a_reader_dead_after_step_8_has_delivered_it():
    world = world_at()
    world.write(0, b"AAAA")
    world.write(0, b"BBBB")
    assert world.read(7).payload == b"AAAA"
    world.crash(7)
    assert world.drain() == [b"BBBB"]


def test_scenario_4_a_read_cursor_stale_where_the_area_comes_round_is_full_until_the_threshold():
    world = world_at(capacity=40)
    for payload in (b"AAAA", b"BBBB"):
        world.write(0, payload)
    world.begin_read(7)
    stop(world, 7, "7_copy_data")
    world.crash(7)
    assert world.drain() == [b"BBBB"]
    assert world.write(0, b"CCCC").outcome is Outcome.FULL
    world.now += LATER
    assert world.write(0, b"CCCC").outcome is Outcome.WRITTEN
    assert world.drain() == [b"CCCC"]


@pytest.mark.parametrize(("age", "expected"), [(10 * TICK_NS, ReadOutcome.EMPTY), (10 * TICK_NS + 1, "stale")])
def test_scenario_5_exactly_the_threshold_is_not_stale_and_one_nanosecond_more_is(age, expected):
    world = world_at(threshold_ns=10 * TICK_NS)
    writer_dies(world, before="8_release")
    world.now += age
    reader = world.read(1)
    assert reader.outcome is expected or (expected == "stale" and reader.payload == b"AAAA")


def test_scenario_6_a_stale_last_block_is_empty_and_the_next_published_message_is_delivered():
    world = world_at()
    writer_dies(world, before="6_store_size")
    world.now += LATER
    assert world.read(1).outcome is ReadOutcome.EMPTY
    assert world.word(READ_HEAD) == 20
    world.write(0, b"BBBB")
    assert world.drain() == [b"BBBB"]


def test_scenario_6_two_stale_blocks_are_40_bytes_skipped():
    world = world_at()
    for slot in (7, 8):
        writer_dies(world, before="6_store_size", slot=slot)
    world.now += LATER
    world.write(0, b"CCCC")
    reader = world.read(1)
    assert (reader.payload, reader.skipped) == (b"CCCC", [(0, 39)])


def test_scenario_7_all_cursors_taken_and_then_one_free():
    world = world_at()
    world.write(0, b"AAAA")
    for slot in (7, 8):
        world.begin_read(slot)
        stop(world, slot, "3_check_cursor")
    assert world.read(1).outcome is ReadOutcome.NO_CURSOR
    assert world.finish(7).payload == b"AAAA"
    assert world.read(1).outcome is ReadOutcome.EMPTY


def test_scenario_8_exactly_full_is_full_and_then_there_is_room():
    world = world_at(capacity=80)
    for payload in (b"AAAA", b"BBBB", b"CCCC", b"DDDD"):
        assert world.write(0, payload).outcome is Outcome.WRITTEN
    assert world.write(0, b"EEEE").outcome is Outcome.FULL
    assert world.read(1).payload == b"AAAA"
    assert world.write(0, b"EEEE").outcome is Outcome.WRITTEN
    assert world.drain() == [b"BBBB", b"CCCC", b"DDDD", b"EEEE"]


@pytest.mark.parametrize("payload", [b"", b"a", b"abcdefghijklmnopqrstuvwx"])
def test_scenario_9_a_block_across_the_end_comes_back_byte_for_byte(payload):
    world = world_at(capacity=40)
    for _ in range(12):
        assert world.write(0, payload).outcome is Outcome.WRITTEN
        assert world.drain() == [payload]
    assert world.word(WRITE_HEAD) > 2 * 40


@pytest.mark.parametrize("before", ["6_store_size", "7_copy_data"])
def test_scenario_9_a_stale_block_across_the_end_is_skipped(before):
    world = world_at(capacity=64)
    for _ in range(2):
        world.write(0, b"xxxxyyyy")
        world.drain()
    writer_dies(world, b"AAAA", before=before)
    world.write(0, b"BBBB")
    world.now += LATER
    assert world.drain() == [b"BBBB"]


@pytest.mark.parametrize("dies", [None, "7_copy_data", "6_store_size"])
def test_scenario_10_a_mark_inside_a_payload_is_no_block(dies):
    world = world_at()
    inside = HEADER + 4  # where the fake begins: a size, a sum, and the very mark of that place
    low, high = (half.to_bytes(4, "little") for half in commit_word(inside))
    fake = b"....", (4).to_bytes(4, "little"), b"\1\2\3\4", low, high, b"FAKE"
    payload = b"".join(fake)
    if dies is None:
        world.write(7, payload)
    else:
        writer_dies(world, payload, before=dies, cells=6)
        if dies == "6_store_size":  # the bytes of a payload that nothing says the size of
            for at in range(0, len(payload), 4):
                world.put(f"data/{HEADER + at}", int.from_bytes(payload[at : at + 4], "little"))
    world.write(0, b"BBBB")
    world.now += LATER
    assert world.drain() == ([b"BBBB"] if dies == "6_store_size" else [payload, b"BBBB"])


def test_scenario_11_an_empty_message_is_delivered_and_one_too_large_is_refused():
    world = world_at()
    assert world.write(0, b"").outcome is Outcome.WRITTEN
    assert world.write(0, bytes(113)).outcome is Outcome.OVERSIZE
    assert world.drain() == [b""]


@pytest.mark.parametrize(("more", "expected"), [(0, [b"AAAA", b"BBBB"]), (1, [b"BBBB"])])
def test_scenario_12_a_slow_writer_that_ends_at_exactly_the_threshold_is_in_time(more, expected):
    world = world_at(threshold_only=True, threshold_ns=10 * TICK_NS)
    world.begin(7, b"AAAA")
    stop(world, 7, "7_copy_data")
    world.write(0, b"BBBB")
    world.now += 10 * TICK_NS + more
    if more:
        assert world.drain() == expected
        assert world.finish(7).outcome is Outcome.FENCED
    else:
        assert world.read(1).outcome is ReadOutcome.EMPTY
        assert world.finish(7).outcome is Outcome.WRITTEN
        assert world.drain() == expected


@pytest.mark.parametrize("payload", [b"CCCC", b"cccccccc"])
def test_scenario_13_a_slow_reader_whose_block_is_overwritten_discards_it(payload):
    world = world_at(capacity=40, threshold_only=True)
    world.write(0, b"AAAA")
    world.begin_read(7)
    stop(world, 7, "7_copy_data")
    world.now += LATER
    for _ in range(3):
        assert world.write(0, payload).outcome is Outcome.WRITTEN
        world.drain()
    reader = world.finish(7)
    assert (reader.outcome, reader.position, reader.payload) == (ReadOutcome.DISCARDED, 0, b"")
    assert reader.skipped == []


def test_scenario_13_a_slow_reader_that_copied_in_time_discards_it_all_the_same():
    world = world_at(capacity=40, threshold_only=True, read_cursors=1)
    world.write(0, b"AAAA")
    world.begin_read(7)
    stop(world, 7, "8_release")
    world.now += LATER
    assert world.read(1).outcome is ReadOutcome.EMPTY
    assert world.finish(7).outcome is ReadOutcome.DISCARDED
    assert world.word(LOST) == 1


def test_a_dead_pool_on_an_empty_queue_comes_back():
    world = world_at()
    for pool in ("read", "write"):
        for cursor in (0, 1):
            world.put(state_of(pool, cursor), token(9, 1, NOW))
            world.put(position_of(pool, cursor), 0)
    assert world.read(1).outcome is ReadOutcome.NO_CURSOR
    assert world.write(0, b"AAAA").outcome is Outcome.NO_CURSOR
    world.now += LATER
    assert world.write(0, b"AAAA").outcome is Outcome.WRITTEN
    assert world.drain() == [b"AAAA"]
