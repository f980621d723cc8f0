"""Writer: one write into the queue, clause by clause (spec/cursor_recovery/clauses.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from queue_world import World

from statemachines.cursor_recovery.block import SEVERAL, checksum, commit_word
from statemachines.cursor_recovery.memory import (
    FREE,
    HEADER,
    NONE,
    READ_HEAD,
    TICK_NS,
    WRITE_HEAD,
    CompareAndSwap,
    CopyIn,
    Load,
    Loaded,
    Queue,
    Store,
    Stored,
    Swapped,
    incarnation_of,
    lock_of,
    position_of,
    state_of,
    token,
)
from statemachines.cursor_recovery.writer import WRITER, Outcome, QueueWriterStatus, Write, new_writer
from statemachines.kernel import ConfigurationError, LocalProtocolError, Node

THRESHOLD = 2_000_000_000
NOW = 100_000 * TICK_NS  # a whole number of ticks, so that an age is exact


def world_at(now=NOW, **queue):
    world = World(**queue)
    world.now = now
    return world


def occupy(world, pool, cursor, *, slot=9, age=0, position=NONE, alive=True, incarnation=1):
    """A cursor of another process, allocated `age` nanoseconds ago."""
    world.put(lock_of(slot), int(alive))
    world.put(incarnation_of(slot), incarnation)
    world.put(state_of(pool, cursor), token(slot, 1, world.now - age))
    world.put(position_of(pool, cursor), position)


def requests(world, payload=b"AAAA"):
    """A whole write, and the accesses it made."""
    made = []
    writer = world.begin(0, payload)
    while 0 in world.living:
        made.append(writer.asked)
        world.access(0)
    return writer, made


def outcome(world, payload=b"AAAA"):
    return world.write(0, payload).outcome


def test_CR_01_a_block_larger_than_the_capacity_is_refused():
    world = world_at(capacity=32)
    writer = world.begin(0, bytes(17))
    assert (writer.outcome, writer.accesses, writer.asked) == (Outcome.OVERSIZE, 0, None)
    world.living.clear()
    assert outcome(world, bytes(16)) is Outcome.WRITTEN


def test_CR_09_CR_15_CR_20_CR_21_a_whole_undisturbed_write_access_by_access():
    world = world_at(write_cursors=1, read_cursors=2)
    writer, made = requests(world, b"AAAAB")
    word = token(0, 1, NOW)
    state, position = state_of("write", 0), position_of("write", 0)
    shapes = [(type(one), getattr(one, "address", "")) for one in made]
    assert shapes == [
        (Load, state), (CompareAndSwap, state), (Store, position),  # 1
        (Load, READ_HEAD), (Load, WRITE_HEAD),  # 2
        (Load, state_of("read", 0)), (Load, state_of("read", 1)),  # 3
        (Load, state), (Store, position),  # 4
        (Load, state), (CompareAndSwap, WRITE_HEAD),  # 5
        (Store, "data/0"), (Store, "data/4"), (Store, "data/8"), (Store, "data/12"),  # 6
        (CopyIn, ""),  # 7
        (CompareAndSwap, state),  # 8
    ]  # fmt: skip
    assert made[1] == CompareAndSwap(state, FREE, word)
    assert made[2] == Store(position, NONE)
    assert made[8] == Store(position, 0)
    assert made[10] == CompareAndSwap(WRITE_HEAD, 0, HEADER + 8)
    assert made[-2] == CopyIn(HEADER, b"AAAAB")
    assert made[-1] == CompareAndSwap(state, word, FREE)
    assert (writer.outcome, writer.position) == (Outcome.WRITTEN, 0)
    assert world.block(0) == b"AAAAB"


def test_CR_02_the_next_cursor_where_one_is_anothers():
    world = world_at()
    occupy(world, "write", 0)
    writer = world.write(0, b"AAAA")
    assert (writer.outcome, writer.node.record.own) == (Outcome.WRITTEN, 1)


def test_CR_02_CR_08_the_next_cursor_where_another_was_faster():
    world = world_at()
    world.begin(0, b"AAAA")
    world.begin(1, b"BBBB")
    for slot in (0, 1, 1):
        world.access(slot)
    assert [world.finish(slot).node.record.own for slot in (0, 1)] == [1, 0]
    few = world_at(write_cursors=1)
    few.begin(0, b"AAAA")
    few.begin(1, b"BBBB")
    for slot in (0, 1, 1):
        few.access(slot)
    late = few.finish(0)
    assert (late.outcome, late.accesses) == (Outcome.NO_CURSOR, 2)


def test_CR_03_the_position_of_the_last_owner_is_cleared():
    world = world_at(write_cursors=1)
    world.write(1, b"AAAA")
    assert world.word(position_of("write", 0)) == 0
    world.begin(0, b"BBBB")
    for _ in range(3):
        world.access(0)
    assert world.word(position_of("write", 0)) == NONE


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (10 * TICK_NS, Outcome.NO_CURSOR),
        (10 * TICK_NS + 1, Outcome.WRITTEN),
        (-TICK_NS, Outcome.NO_CURSOR),
        (-20 * TICK_NS, Outcome.NO_CURSOR),
    ],
)
def test_CR_04_aged_is_older_than_the_threshold_strictly_and_the_future_is_not(age, expected):
    world = world_at(write_cursors=1, threshold_ns=10 * TICK_NS)
    occupy(world, "write", 0, alive=False)
    world.now += age
    assert outcome(world) is expected


def test_CR_04_a_stamp_is_rounded_so_that_no_cursor_looks_older_than_it_is():
    world = world_at(NOW + 1, write_cursors=1, threshold_ns=10 * TICK_NS)
    occupy(world, "write", 0, alive=False)
    world.now += 10 * TICK_NS
    assert outcome(world) is Outcome.NO_CURSOR


@pytest.mark.parametrize(
    ("alive", "incarnation", "expected"),
    [(True, 1, Outcome.NO_CURSOR), (False, 1, Outcome.WRITTEN), (True, 2, Outcome.WRITTEN)],
)
def test_CR_02_CR_05_CR_08_stale_is_aged_and_the_owner_dead(alive, incarnation, expected):
    world = world_at(write_cursors=1)
    occupy(world, "write", 0, age=2 * THRESHOLD, alive=alive, incarnation=incarnation)
    assert outcome(world) is expected


def test_CR_05_the_next_cursor_where_an_aged_owner_lives():
    world = world_at(write_cursors=2)
    occupy(world, "write", 0, age=2 * THRESHOLD)
    assert outcome(world) is Outcome.WRITTEN


@pytest.mark.parametrize("pool", ["write", "read"])
def test_CR_06_by_age_alone_the_owner_does_not_matter(pool):
    world = world_at(write_cursors=1, capacity=32, threshold_only=True)
    occupy(world, pool, 0, age=2 * THRESHOLD, position=0)
    if pool == "read":
        fill(world, 20)
    assert outcome(world) is Outcome.WRITTEN


def test_CR_07_a_stale_cursor_is_swapped_from_the_word_that_was_judged():
    world = world_at(write_cursors=1)
    occupy(world, "write", 0, age=2 * THRESHOLD, alive=False)
    stale = world.word(state_of("write", 0))
    _, made = requests(world)
    assert [one for one in made if isinstance(one, CompareAndSwap)][:2] == [
        CompareAndSwap(state_of("write", 0), stale, FREE),
        CompareAndSwap(state_of("write", 0), FREE, token(0, 1, NOW)),
    ]


@pytest.mark.parametrize(("cursors", "expected"), [(1, Outcome.NO_CURSOR), (2, Outcome.WRITTEN)])
def test_CR_07_of_two_that_reclaim_one_wins_and_the_other_looks_further(cursors, expected):
    world = world_at(write_cursors=cursors)
    occupy(world, "write", 0, age=2 * THRESHOLD, alive=False)
    late = world.begin(0, b"AAAA")
    world.begin(1, b"BBBB")
    for slot in (0, 0, 1, 1, 1, 0):  # load, lock, swap of each; the lock of a dead owner is free
        world.access(slot)
    assert late.outcome is Outcome.NO_CURSOR if cursors == 1 else late.asked == Load(state_of("write", 1))
    if cursors == 2:
        assert world.finish(0).outcome is expected
    assert world.finish(1).outcome is Outcome.WRITTEN


def test_CR_08_with_all_cursors_of_living_writers_there_is_none():
    world = world_at(write_cursors=2)
    occupy(world, "write", 0)
    occupy(world, "write", 1, slot=8)
    assert outcome(world) is Outcome.NO_CURSOR


def fill(world, position):
    """Both heads stand at `position`, as after some laps."""
    world.put(READ_HEAD, position)
    world.put(WRITE_HEAD, position)
    world.reserved = [(0, position)]


def test_CR_10_exactly_full_is_full_and_then_ok():
    world = world_at(capacity=80)
    for _ in range(4):
        assert outcome(world) is Outcome.WRITTEN
    assert outcome(world, b"") is Outcome.FULL
    assert all(world.free_cursors())
    world.consume()
    assert outcome(world) is Outcome.WRITTEN


@pytest.mark.parametrize(("position", "expected"), [(NONE, "written"), (20, "written"), (4, "written"), (0, "full")])
def test_CR_11_CR_12_CR_15_a_read_cursor_is_in_the_way_less_than_a_capacity_behind_the_end(position, expected):
    world = world_at(capacity=36)
    fill(world, 20)
    occupy(world, "read", 0, slot=8, position=NONE)
    occupy(world, "read", 1, position=position)
    assert outcome(world).value == expected
    assert all(world.free_cursors())


@pytest.mark.parametrize(
    ("age", "alive", "incarnation", "expected"),
    [
        (0, False, 1, Outcome.FULL),
        (2 * THRESHOLD, True, 1, Outcome.FULL),
        (2 * THRESHOLD, False, 1, Outcome.WRITTEN),
        (2 * THRESHOLD, True, 2, Outcome.WRITTEN),
    ],
)
def test_CR_11_CR_12_CR_13_a_read_cursor_in_the_way_is_freed_only_when_stale(age, alive, incarnation, expected):
    world = world_at(capacity=32)
    fill(world, 20)
    occupy(world, "read", 0, age=age, alive=alive, incarnation=incarnation, position=0)
    assert outcome(world) is expected
    assert (world.word(state_of("read", 0)) == FREE) is (expected is Outcome.WRITTEN)
    assert world.word(position_of("read", 0)) == 0, "nothing else is done for it"


def test_CR_14_a_reader_that_takes_the_cursor_meanwhile_is_looked_at_again():
    world = world_at(capacity=32)
    fill(world, 20)
    occupy(world, "read", 0, age=2 * THRESHOLD, alive=False, position=0)
    writer = world.begin(0, b"AAAA")
    while writer.status is not QueueWriterStatus.RECLAIM:
        world.access(0)
    occupy(world, "read", 0, slot=8, position=0)
    assert world.finish(0).outcome is Outcome.FULL
    assert world.word(state_of("read", 0)) == token(8, 1, world.now)


@pytest.mark.parametrize(
    "status",
    [
        QueueWriterStatus.OWN_BEFORE_POSITION,
        QueueWriterStatus.OWN_BEFORE_HEAD,
        QueueWriterStatus.RELEASE,
        QueueWriterStatus.GIVE_BACK,
    ],
)
def test_CR_15_CR_16_a_writer_that_lost_its_cursor_is_fenced(status):
    world = world_at(capacity=32, threshold_only=True)
    if status is QueueWriterStatus.GIVE_BACK:
        world.write(1, b"AAAA")
    writer = world.begin(0, b"BBBB")
    while writer.status is not status:
        world.access(0)
    occupy(world, "write", writer.node.record.own, slot=8)
    before = world.state
    world.access(0)
    assert writer.outcome is Outcome.FENCED
    assert world.state == before, "nothing more is touched"


def test_CR_19_the_slower_writer_begins_again_with_the_heads():
    world = world_at()
    slow = world.begin(0, b"AAAA")
    while slow.status is not QueueWriterStatus.MOVE_HEAD:
        world.access(0)
    assert world.write(1, b"BBBB").position == 0
    world.access(0)
    asked = []
    while slow.status is not QueueWriterStatus.OWN_BEFORE_POSITION:
        asked.append(slow.asked)
        world.access(0)
    assert asked == [Load(word) for word in (READ_HEAD, WRITE_HEAD, state_of("read", 0), state_of("read", 1))]
    assert world.finish(0).position == 20
    world.check_published()


def test_CR_20_an_empty_message_is_a_block():
    world = world_at()
    writer, made = requests(world, b"")
    assert (writer.outcome, world.block(0), world.word(WRITE_HEAD)) == (Outcome.WRITTEN, b"", HEADER)
    assert [one.address for one in made if isinstance(one, Store)][-4:] == ["data/0", "data/4", "data/8", "data/12"]


def test_CR_20_the_marker_of_an_earlier_lap_is_not_this_block():
    world = world_at(capacity=40)
    for _ in range(2):
        outcome(world)
    world.consume()
    assert world.block(0) == b"AAAA"
    assert world.block(40) is None


def test_CR_20_commit_word_and_checksum_are_of_this_position_and_these_bytes():
    positions = range(0, 4096, 4)
    assert len({commit_word(position) for position in positions}) == len(positions)
    blocks = [(0, b"AAAA"), (4, b"AAAA"), (0, b"AAAB"), (0, b"AAA"), (0, b"AAAA\0")]
    sums = {checksum(position, len(data), data) for position, data in blocks}
    assert len(sums | {checksum(0, SEVERAL | 4, b"AAAA")}) == len(blocks) + 1


def test_CR_21_a_block_across_the_end_goes_on_at_the_beginning():
    world = world_at(capacity=40)
    fill(world, 28)
    _, made = requests(world, b"ABCDE")
    header = [one.address for one in made if isinstance(one, Store) and one.address.startswith("data/")]
    assert header == [f"data/{at}" for at in (28, 32, 36, 0)]
    assert made[-2] == CopyIn(44, b"ABCDE")
    assert [world.word(f"data/{at}") for at in (4, 8)] == [int.from_bytes(b"ABCD", "little"), ord("E")]
    assert world.block(28) == b"ABCDE"


def test_CR_23_a_write_meanwhile_is_an_error_of_the_host():
    writer = world_at().begin(0, b"AAAA")
    with pytest.raises(LocalProtocolError, match="CR-23"):
        writer.node.feed(Write(b"BBBB"), 0)


@pytest.mark.parametrize("answer", [Stored(), Swapped(True), Loaded(0, 0)])
def test_CR_24_an_answer_that_was_not_asked_for_is_an_error(answer):
    node = Node(WRITER, new_writer(Queue(), 0, 1), name="w", now_ns=0)
    with pytest.raises(LocalProtocolError, match="CR-24"):
        node.feed(answer, 0)


def test_CR_17_CR_18_position_then_head():
    world = world_at()
    fill(world, 40)
    writer = world.begin(0, b"AAAA")
    while writer.status is not QueueWriterStatus.SET_POSITION:
        world.access(0)
    assert writer.asked == Store(position_of("write", 0), 40)
    world.access(0)
    world.access(0)
    assert writer.asked == CompareAndSwap(WRITE_HEAD, 40, 60)
    assert world.word(position_of("write", 0)) == 40


@pytest.mark.parametrize("payload", [b"AAAA", b""])
def test_CR_22_released_with_the_word_that_was_put_there(payload):
    world = world_at()
    writer = world.begin(0, payload)
    while writer.status is not QueueWriterStatus.RELEASE:
        world.access(0)
    assert writer.asked == CompareAndSwap(state_of("write", 0), token(0, 1, NOW), FREE)
    world.access(0)
    assert (writer.outcome, writer.position, world.free_cursors()) == (Outcome.WRITTEN, 0, [True, True])


def test_CR_31_CR_32_a_record_that_breaks_them_is_told_from_one_that_does_not():
    held = {invariant.clause: invariant.holds for invariant in WRITER.invariants}
    world = world_at()
    writer = world.begin(0, b"AAAA")
    while writer.status is not QueueWriterStatus.MOVE_HEAD:
        world.access(0)
    record = writer.node.record
    assert held["CR-31"](record)
    assert held["CR-32"](record)
    assert not held["CR-31"](replace(record, token=FREE))
    assert not held["CR-32"](replace(record, write_head=109))


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Queue(capacity=30), "capacity"),
        (lambda: Queue(capacity=12), "capacity"),
        (lambda: Queue(read_cursors=0), "read_cursors"),
        (lambda: Queue(write_cursors=0), "write_cursors"),
        (lambda: Queue(threshold_ns=TICK_NS - 1), "threshold_ns"),
        (lambda: new_writer(Queue(), 256, 1), "slot"),
        (lambda: new_writer(Queue(), 0, 0), "incarnation"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_by_name(make, key):
    with pytest.raises(ConfigurationError, match=key):
        make()
