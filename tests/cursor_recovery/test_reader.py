"""Reader: one read from the queue, clause by clause (spec/cursor_recovery/clauses.md)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from queue_world import World

from statemachines.cursor_recovery import memory
from statemachines.cursor_recovery.block import SEVERAL, checksum, commit_word
from statemachines.cursor_recovery.reader import READER, Read, ReaderStatus, ReadOutcome, new_reader
from statemachines.kernel import ConfigurationError, LocalProtocolError, Node

THRESHOLD = 2_000_000_000
NOW = 100_000 * memory.TICK_NS  # a whole number of ticks, so that an age is exact
S = ReaderStatus


def world_at(now=NOW, *, written=(), **queue):
    world = World(**queue)
    world.now = now
    for payload in written:
        world.write(0, payload)
    return world


def occupy(world, pool, cursor, *, slot=9, age=0, position=memory.NONE, alive=True, incarnation=1):
    """A cursor of another process, allocated `age` nanoseconds ago."""
    world.put(memory.lock_of(slot), int(alive))
    world.put(memory.incarnation_of(slot), incarnation)
    world.put(memory.state_of(pool, cursor), memory.token(slot, 1, world.now - age))
    world.put(memory.position_of(pool, cursor), position)


def stale(world, pool, cursor, **given):
    """A cursor of a dead process, older than the threshold."""
    occupy(world, pool, cursor, age=2 * THRESHOLD, alive=False, **given)


def outcome(world):
    return world.read(1).outcome


def until(world, status, slot=1):
    """The read of `slot` stands before the access of `status`."""
    reader = world.begin_read(slot)
    while reader.status is not status:
        world.access(slot)
    return reader


def dead_writer(world, status, payload=b"AAAA", slot=5, cells=0):
    """A writer dies before the access of `status`."""
    writer = world.begin(slot, payload)
    while writer.status.value != status:
        world.access(slot)
    world.crash(slot, cells)
    return writer


def test_CR_09_CR_15_CR_42_CR_44_CR_47_CR_49_a_whole_undisturbed_read_access_by_access():
    world = world_at(written=[b"AAAAB"])
    reader, made = world.begin_read(1), []
    while 1 in world.living:
        made.append(reader.asked)
        world.access(1)
    word = memory.token(1, 1, NOW)
    state, position = memory.state_of("read", 0), memory.position_of("read", 0)
    assert made == [
        memory.Load(state), memory.CompareAndSwap(state, memory.FREE, word), memory.Store(position, memory.NONE),  # 1
        memory.Load(memory.READ_HEAD), memory.Load(memory.WRITE_HEAD),  # 2
        memory.Load(memory.state_of("write", 0)), memory.Load(memory.state_of("write", 1)),  # 3
        memory.Load("data/8"), memory.Load("data/12"), memory.Load("data/0"), memory.Load("data/4"),
        memory.Load(state), memory.Store(memory.messages_of(0), 1), memory.Store(position, 0),  # 5
        memory.Load(state), memory.CompareAndSwap(memory.READ_HEAD, 0, memory.HEADER + 8),  # 6
        memory.CopyOut(memory.HEADER, 5),  # 7
        memory.CompareAndSwap(state, word, memory.FREE),  # 8
    ]  # fmt: skip
    assert (reader.outcome, reader.position, reader.payload) == (ReadOutcome.DELIVERED, 0, b"AAAAB")
    assert all(world.free_read_cursors())


def test_CR_02_CR_08_the_read_cursors_are_looked_at_one_after_another():
    world = world_at(written=[b"AAAA"])
    occupy(world, "read", 0)
    reader = world.read(1)
    assert (reader.outcome, reader.node.record.own) == (ReadOutcome.DELIVERED, 1)
    occupy(world, "read", 1, slot=8)
    assert outcome(world) is ReadOutcome.NO_CURSOR


@pytest.mark.parametrize(
    ("age", "alive", "incarnation", "expected"),
    [
        (THRESHOLD // memory.TICK_NS * memory.TICK_NS, False, 1, "no_cursor"),
        (2 * THRESHOLD, True, 1, "no_cursor"),
        (2 * THRESHOLD, False, 1, "delivered"),
        (2 * THRESHOLD, True, 2, "delivered"),
    ],
)
def test_CR_04_CR_05_CR_07_a_stale_read_cursor_is_taken(age, alive, incarnation, expected):
    world = world_at(written=[b"AAAA"], read_cursors=1)
    occupy(world, "read", 0, age=age, alive=alive, incarnation=incarnation)
    assert outcome(world).value == expected


def test_CR_03_the_position_of_the_last_owner_is_cleared():
    world = world_at(written=[b"AAAA", b"BBBB"], read_cursors=1)
    world.read(1)
    assert world.word(memory.position_of("read", 0)) == 0
    until(world, S.LOAD_READ_HEAD)
    assert world.word(memory.position_of("read", 0)) == memory.NONE


def test_CR_41_where_the_heads_are_equal_there_is_nothing():
    world = world_at()
    reader = world.read(1)
    assert (reader.outcome, reader.position, reader.messages) == (ReadOutcome.EMPTY, -1, 0)
    assert all(world.free_read_cursors())


@pytest.mark.parametrize("call", ["write", "read"])
def test_CR_56_heads_that_were_never_so_far_apart_are_loaded_again(call):
    world = world_at(capacity=40)
    one = world.begin(3, b"AAAA") if call == "write" else world.begin_read(3)
    while one.status.value != "2_load_write_head":
        world.access(3)
    for _ in range(6):
        world.write(0, b"BBBB")
        world.read(1)
    world.write(0, b"CCCC")
    world.access(3)
    assert one.asked == memory.Load(memory.READ_HEAD)
    world.finish(3)
    assert one.outcome.value == ("written" if call == "write" else "delivered")


@pytest.mark.parametrize(("position", "expected"), [(memory.NONE, "delivered"), (20, "delivered"), (0, "empty")])
def test_CR_12_CR_42_a_living_writer_at_or_behind_the_read_head_is_waited_for(position, expected):
    world = world_at(written=[b"AAAA", b"BBBB"])
    occupy(world, "write", 1, position=position, age=2 * THRESHOLD)
    assert outcome(world).value == expected
    assert all(world.free_read_cursors())


def test_CR_13_CR_14_a_stale_writer_in_the_way_is_freed_and_looked_at_again():
    world = world_at(written=[b"AAAA"])
    stale(world, "write", 0, position=0)
    reader, made = world.begin_read(1), []
    while 1 in world.living:
        made.append(reader.asked)
        world.access(1)
    assert reader.outcome is ReadOutcome.DELIVERED
    state = memory.state_of("write", 0)
    at = made.index(memory.Load(memory.lock_of(9)))
    assert made[at + 1 : at + 3] == [
        memory.CompareAndSwap(state, memory.token(9, 1, NOW - 2 * THRESHOLD), memory.FREE),
        memory.Load(state),
    ]
    assert world.word(state) == memory.FREE


@pytest.mark.parametrize("pool", ["read", "write"])
def test_CR_06_by_age_alone_the_owner_does_not_matter(pool):
    world = world_at(written=[b"AAAA"], read_cursors=1, threshold_only=True)
    occupy(world, pool, 0, age=2 * THRESHOLD, position=0)
    assert outcome(world) is ReadOutcome.DELIVERED


@pytest.mark.parametrize(
    ("word", "value"),
    [("data/8", 1), ("data/12", 1), ("data/0", 24), ("data/0", SEVERAL | 2)],
    ids=["low", "high", "size beyond the write head", "no room for a number"],
)
def test_CR_44_what_has_not_this_mark_or_ends_beyond_the_write_head_is_no_block(word, value):
    world = world_at(written=[b"AAAA"])
    world.forget_published()
    world.put(word, value)
    reader = world.read(1)
    assert (reader.outcome, reader.skipped) == (ReadOutcome.EMPTY, [(0, 19)])
    assert world.word(memory.READ_HEAD) == 20


@pytest.mark.parametrize("position", [0, 20, 36])
def test_CR_45_no_living_writer_behind_the_write_head_or_there_is_no_scan(position):
    world = world_at()
    dead_writer(world, "6_store_size")
    world.now += 2 * THRESHOLD
    slow = world.begin(6, b"BBBB")
    while slow.status.value != "6_store_size":
        world.access(6)
    world.put(memory.position_of("write", slow.node.record.own), position)
    assert outcome(world) is ReadOutcome.EMPTY
    assert world.word(memory.READ_HEAD) == 0
    world.finish(6)
    assert world.read(1).payload == b"BBBB"


def test_CR_46_the_scan_goes_to_the_next_block_whose_checksum_holds():
    world = world_at()
    dead_writer(world, "6_store_checksum")
    world.write(0, b"BBBB")
    # what looks like a block of that place within the stale one: mark, size and a wrong checksum
    low, high = commit_word(4)
    for at, value in ((4, 0), (8, 0), (12, low), (16, high)):
        world.put(f"data/{at}", value)
    world.now += 2 * THRESHOLD
    reader = world.read(1)
    assert (reader.payload, reader.skipped) == (b"BBBB", [(0, 19)])


@pytest.mark.parametrize("payload", [b"", b"AAAA", b"AAAAAAAAA"])
def test_CR_46_a_scan_that_finds_nothing_goes_to_the_write_head(payload):
    world = world_at()
    dead = dead_writer(world, "6_store_size", payload)
    world.now += 2 * THRESHOLD
    reader = world.read(1)
    assert (reader.outcome, reader.skipped) == (ReadOutcome.EMPTY, [(0, dead.length - 1)])
    assert world.word(memory.READ_HEAD) == world.word(memory.WRITE_HEAD) == dead.length
    world.write(0, b"BBBB")
    assert world.read(1).payload == b"BBBB"


def test_CR_59_a_read_looks_through_one_slice_and_the_next_reader_looks_from_there():
    world = world_at(slice_bytes=8)
    dead_writer(world, "6_store_size", b"AAAA")  # five cells: two slices, and one cell
    world.write(0, b"BBBB")
    world.now += 2 * THRESHOLD
    came = [world.read(slot) for slot in (1, 2, 3)]
    assert [(one.outcome.value, one.skipped) for one in came] == [
        ("empty", [(0, 7)]),
        ("empty", [(8, 15)]),
        ("delivered", [(16, 19)]),
    ]
    assert all(world.free_read_cursors())


def test_CR_59_a_block_that_begins_where_the_slice_ends_is_delivered_at_once():
    world = world_at(slice_bytes=8)
    dead_writer(world, "6_store_size", b"AAAAAAAA")  # six cells
    world.write(0, b"BBBB")
    world.now += 2 * THRESHOLD
    assert [world.read(1).outcome.value for _ in range(2)] == ["empty", "empty"]
    reader = world.read(1)
    assert (reader.payload, reader.skipped) == (b"BBBB", [(16, 23)])


def test_CR_59_the_last_slice_ends_at_the_write_head():
    world = world_at(slice_bytes=16)
    dead_writer(world, "6_store_size", b"AAAA")
    world.now += 2 * THRESHOLD
    assert [world.read(1).skipped for _ in range(2)] == [[(0, 19)], []]
    assert world.word(memory.READ_HEAD) == world.word(memory.WRITE_HEAD) == 20


def test_CR_59_a_slice_that_ends_at_a_block_with_a_wrong_checksum():
    world = world_at(slice_bytes=8)
    dead_writer(world, "6_store_checksum", b"AAAAAAAAAAAA")
    world.write(0, b"BBBB")
    low, high = commit_word(4)  # the last cell of the first slice: mark, size and a wrong checksum
    for at, value in ((4, 0), (8, 0), (12, low), (16, high)):
        world.put(f"data/{at}", value)
    world.now += 2 * THRESHOLD
    assert world.read(1).skipped == [(0, 7)]
    came = [world.read(1) for _ in range(3)]
    assert [one.skipped for one in came] == [[(8, 15)], [(16, 23)], [(24, 27)]]
    assert came[-1].payload == b"BBBB"


def test_CR_59_CR_19_a_slice_that_another_reader_skipped_first():
    world = world_at(slice_bytes=8)
    dead_writer(world, "6_store_size", b"AAAAAAAA")
    world.write(0, b"BBBB")
    world.now += 2 * THRESHOLD
    until(world, S.SKIP, slot=1)
    assert world.read(2).skipped == [(0, 7)]
    reader = world.finish(1)
    assert (reader.outcome, reader.skipped, world.word(memory.READ_HEAD)) == (ReadOutcome.EMPTY, [], 8)


def test_CR_46_CR_19_another_reader_that_skips_first_is_no_loss():
    world = world_at()
    dead_writer(world, "6_store_size")
    world.write(0, b"BBBB")
    world.now += 2 * THRESHOLD
    until(world, S.SKIP, slot=1)
    assert world.read(2).payload == b"BBBB"
    reader = world.finish(1)
    assert (reader.outcome, reader.skipped) == (ReadOutcome.EMPTY, [])


def test_CR_47_CR_48_messages_then_position_then_head():
    world = world_at()
    world.write(0, b"AAAABBBB", messages=2)
    until(world, S.SET_POSITION)
    assert (world.word(memory.messages_of(0)), world.word(memory.position_of("read", 0))) == (2, memory.NONE)
    world.access(1)
    assert (world.word(memory.position_of("read", 0)), world.word(memory.READ_HEAD)) == (0, 0)
    world.access(1)
    world.access(1)
    assert world.word(memory.READ_HEAD) == memory.HEADER + memory.CELL + 8
    reader = world.finish(1)
    assert (reader.payload, reader.messages) == (b"AAAABBBB", 2)


def test_CR_19_the_slower_reader_begins_again_with_the_heads():
    world = world_at(written=[b"AAAA", b"BBBB"])
    reader = until(world, S.MOVE_HEAD)
    assert world.read(2).payload == b"AAAA"
    world.access(1)
    assert reader.asked == memory.Load(memory.READ_HEAD)
    assert world.finish(1).payload == b"BBBB"


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_CR_50_a_block_whose_checksum_is_wrong_is_skipped_and_the_next_one_delivered(cut):
    world = world_at()
    dead_writer(world, "7_copy_data", b"AAAABBBBCCCC", cells=cut)
    world.write(0, b"DDDD")
    world.now += 2 * THRESHOLD
    reader = world.read(1)
    assert (reader.payload, reader.skipped) == (b"DDDD", [(0, 27)])


@pytest.mark.parametrize("status", [S.OWN_BEFORE_POSITION, S.OWN_BEFORE_HEAD, S.GIVE_BACK])
def test_CR_15_CR_16_a_reader_that_lost_its_cursor_is_fenced(status):
    world = world_at(written=[] if status is S.GIVE_BACK else [b"AAAA"], threshold_only=True)
    reader = until(world, status)
    occupy(world, "read", 0, slot=8)
    before = world.state
    world.access(1)
    assert (reader.outcome, world.state) == (ReadOutcome.FENCED, before)


def test_CR_52_a_reader_that_lost_its_cursor_at_the_end_discards_what_it_copied():
    world = world_at(written=[b"AAAA"], threshold_only=True)
    reader = until(world, S.RELEASE)
    occupy(world, "read", 0, slot=8)
    world.access(1)
    assert (reader.outcome, reader.position, reader.payload) == (ReadOutcome.DISCARDED, 0, b"")
    assert reader.node.record.data == b""


@pytest.mark.parametrize("status", [S.SET_POSITION, S.OWN_BEFORE_HEAD, S.MOVE_HEAD, S.COPY_DATA, S.RELEASE])
@pytest.mark.parametrize("who", ["reader", "writer"])
def test_CR_40_what_a_dead_reader_had_taken_is_counted_in_messages(status, who):
    world = world_at(capacity=32, read_cursors=1)
    world.write(0, b"AAAABBBB", messages=3)
    until(world, status, slot=2)
    world.crash(2)
    world.now += 2 * THRESHOLD
    taken = status in (S.COPY_DATA, S.RELEASE)
    if who == "reader":
        assert outcome(world) is (ReadOutcome.EMPTY if taken else ReadOutcome.DELIVERED)
    elif taken:
        assert world.write(0, b"CCCC").outcome.value == "written"
    if taken or who == "reader":
        assert world.word(memory.LOST) == (3 if taken else 0)
        world.check_lost()


def test_CR_40_two_that_count_at_once_count_too_much_and_never_too_little():
    world = world_at(written=[b"AAAA"], read_cursors=1)
    until(world, S.COPY_DATA, slot=2)
    world.crash(2)
    world.now += 2 * THRESHOLD
    for slot in (1, 3):
        until(world, S.LOST_ADD, slot=slot)
    world.access(1)
    world.access(3)  # its swap fails, since the count is another by now
    assert (world.word(memory.LOST), world.living[3].status) == (1, S.LOST_COUNT)
    world.finish(1)
    world.finish(3)
    assert world.word(memory.LOST) == 2


def test_CR_51_released_with_the_word_that_was_put_there():
    world = world_at(written=[b"AAAA"])
    reader = until(world, S.RELEASE)
    assert reader.asked == memory.CompareAndSwap(memory.state_of("read", 0), memory.token(1, 1, NOW), memory.FREE)
    world.access(1)
    assert (reader.outcome, reader.payload) == (ReadOutcome.DELIVERED, b"AAAA")


def test_CR_23_a_read_meanwhile_is_an_error_of_the_host():
    reader = world_at().begin_read(1)
    with pytest.raises(LocalProtocolError, match="CR-23"):
        reader.node.feed(Read(), 0)


@pytest.mark.parametrize("answer", [memory.Stored(), memory.Swapped(True), memory.Loaded(0, 0), memory.Copied(b"")])
def test_CR_24_an_answer_that_was_not_asked_for_is_an_error(answer):
    node = Node(READER, new_reader(memory.Queue(), 0, 1), name="r", now_ns=0)
    with pytest.raises(LocalProtocolError, match="CR-24"):
        node.feed(answer, 0)


def test_CR_31_CR_53_a_record_that_breaks_them_is_told_from_one_that_does_not():
    held = {invariant.clause: invariant.holds for invariant in READER.invariants}
    record = until(world_at(written=[b"AAAA", b"BBBB"]), S.MOVE_HEAD).node.record
    assert held["CR-31"](record)
    assert held["CR-53"](record)
    assert not held["CR-31"](replace(record, token=memory.FREE))
    assert not held["CR-53"](replace(record, size=25))
    assert not held["CR-53"](replace(record, at=20))


def test_a_size_that_lies_takes_nothing_beyond_the_write_head():
    world = world_at(written=[b"AAAA"], capacity=40)
    world.forget_published()
    world.put("data/0", 0xFFFF_FFFF)
    world.put("data/4", checksum(0, 0xFFFF_FFFF, b""))
    assert world.read(1).skipped == [(0, 19)]


@pytest.mark.parametrize(("slot", "incarnation", "key"), [(256, 1, "slot"), (-1, 1, "slot"), (0, 0, "incarnation")])
def test_an_owner_that_cannot_be_is_refused_by_name(slot, incarnation, key):
    with pytest.raises(ConfigurationError, match=key):
        new_reader(memory.Queue(), slot, incarnation)
