"""The scenarios that must be played (spec/cursor_recovery/scenarios.md): who dies where, and what comes out.

Writers interleaved at every access, with crashes, pauses and restarts that Hypothesis chooses.

A writer killed between any two memory accesses; others recover what it left behind.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queue_world import World

from statemachines.cursor_recovery.block import commit_word, length_of
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


WRITER_CRASH_LATER = THRESHOLD + 2**17


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
    world.now += WRITER_CRASH_LATER
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
    world.now += WRITER_CRASH_LATER
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
        world.now += WRITER_CRASH_LATER
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
