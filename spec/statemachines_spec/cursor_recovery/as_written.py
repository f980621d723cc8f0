"""As written: writer and reader by the words of the source, which lose, repeat and block.

What differs from the shipped operations: a location has one bit for its lap; a cursor says when it was taken, not by
whom, and goes by age alone; it is released, by its owner or anybody, with a plain store; a mark is the same everywhere;
there is no checksum; the size is read before anybody looks whether it is there; a stale cursor is freed only where it
is hit, never to be taken; a scan that reaches the write head does nothing.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.cursor_recovery.block import data_of, length_of
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    HEADER,
    READ_HEAD,
    WRITE_HEAD,
    Copied,
    Loaded,
    Queue,
    Stored,
    Swapped,
    is_aged,
    position_of,
    state_of,
    token,
)
from statemachines.cursor_recovery.operation import (
    READ,
    WRITE,
    Operation,
    copy_in,
    copy_out,
    has_another,
    is_done,
    is_free,
    is_free_and_more,
    load,
    load_read_head,
    load_write_head,
    look_at_next,
    own_state,
    store,
    swap,
)
from statemachines.cursor_recovery.reader import Read, ReadDone, ReadOutcome, Skipped
from statemachines.cursor_recovery.writer import Outcome, Write, WriteDone
from statemachines.kernel import Event, Fsm, Refuse, Row, Status, Tell
from statemachines.kernel.row import AnyRow

MARK = 0x5EED_B10C
"""The mark of every block."""


# -- locations ------------------------------------------------------------------------------------------------------


def move_location(queue: Queue, location: int, by: int) -> int:
    """A location so many bytes further; it comes round after two laps."""
    return (location + by) % (2 * queue.capacity)


def is_behind(queue: Queue, one: int, other: int) -> bool:
    """In the same lap the lesser place is behind, else the greater one."""
    lap, place = divmod(one, queue.capacity)
    other_lap, other_place = divmod(other, queue.capacity)
    return place < other_place if lap == other_lap else place > other_place


def is_not_ahead(queue: Queue, one: int, other: int) -> bool:
    return one == other or is_behind(queue, one, other)


class OldStatus(Status):
    """Steps 1 to 8 of either operation; then the outcomes."""

    IDLE = "idle"
    LOAD_CURSOR = "1_load_cursor"
    TAKE_CURSOR = "1_take_cursor"
    LOAD_READ_HEAD = "2_load_read_head"
    LOAD_WRITE_HEAD = "2_load_write_head"
    LOAD_SIZE = "3_load_size"
    CHECK_CURSOR = "3_check_cursor"
    CHECK_POSITION = "3_check_position"
    RECLAIM = "3_reclaim"
    LOAD_MARK = "3_load_mark"
    SCAN = "3_scan"
    SKIP = "3_skip"
    GIVE_BACK = "3_give_back"
    SET_POSITION = "4_set_position"
    MOVE_HEAD = "5_move_head"
    STORE_SIZE = "6_store_size"
    STORE_MARK = "6_store_mark"
    COPY_DATA = "7_copy_data"
    RELEASE = "8_release"
    DONE = "done"
    NOTHING = "nothing"
    NO_CURSOR = "no_cursor"


S = OldStatus
FINAL = (S.DONE, S.NOTHING, S.NO_CURSOR)


class OldOperation(Operation, frozen=True, gc=False):
    """One operation.  `at`: the location that it looks at; `size` of the block as it was read, or is to be written."""

    at: int = 0
    size: int = 0
    data: bytes = b""
    messages: int = 1
    status: OldStatus = S.IDLE

    @property
    def end(self) -> int:
        """Where the block ends."""
        begin = self.write_head if self.pool == WRITE else self.read_head
        return move_location(self.queue, begin, length_of(self.size))


class OldWriter(OldOperation, frozen=True, gc=False):
    """One write."""

    pool = WRITE
    other_pool = READ


class OldReader(OldOperation, frozen=True, gc=False):
    """One read."""

    pool = READ
    other_pool = WRITE


# -- guards ---------------------------------------------------------------------------------------------------------


def is_too_large(record: OldWriter, event: Write) -> bool:
    return length_of(len(event.payload)) > record.queue.capacity


def is_out_of_the_way(record: Any, event: Loaded) -> bool:
    """The end of the block is behind the cursor, in the sense of who has to stay behind."""
    if record.pool == READ:
        return is_not_ahead(record.queue, record.end, event.value)
    return is_not_ahead(record.queue, record.end, move_location(record.queue, event.value, record.queue.capacity))


def is_out_of_the_way_and_more(record: Any, event: Loaded) -> bool:
    return is_out_of_the_way(record, event) and record.has_more_others


def is_young(record: Any, event: Loaded) -> bool:
    return not is_aged(record.seen, record.queue.threshold_ns, record.seen_ns)


def has_no_room(record: OldWriter, event: Loaded) -> bool:
    end = move_location(record.queue, event.value, length_of(record.size))
    return not is_not_ahead(record.queue, end, move_location(record.queue, record.read_head, record.queue.capacity))


def has_nothing(record: OldReader, event: Loaded) -> bool:
    return not is_behind(record.queue, record.read_head, event.value)


def is_not_written(record: OldReader, event: Loaded) -> bool:
    """The block would end beyond the write head."""
    end = move_location(record.queue, record.read_head, length_of(event.value))
    return length_of(event.value) > record.queue.capacity or not is_not_ahead(record.queue, end, record.write_head)


def is_marked(record: Any, event: Loaded) -> bool:
    return event.value == MARK


def has_more(record: OldReader, event: Loaded) -> bool:
    return move_location(record.queue, record.at, CELL) != record.write_head


# -- actions --------------------------------------------------------------------------------------------------------


def begin_write(record: OldWriter, event: Write, now_ns: int) -> Any:
    data = data_of(event.payload, event.messages)
    return load(replace(record, data=data, size=len(data)), own_state(record))


def begin_read(record: OldReader, event: Read, now_ns: int) -> Any:
    return load(record, own_state(record))


def take(record: Any, event: Loaded, now_ns: int) -> Any:
    """The time, and nobody's name."""
    return swap(record, own_state(record), FREE, token(0, 0, event.time_ns))


def look_further(record: Any, event: Event, now_ns: int) -> Any:
    record = replace(record, own=record.own + 1)
    return load(record, own_state(record))


def look_at_readers(record: OldWriter, event: Loaded, now_ns: int) -> Any:
    return load(replace(record, write_head=event.value, other=0), state_of(READ, 0))


def load_size(record: OldReader, event: Loaded, now_ns: int) -> Any:
    return load(replace(record, write_head=event.value), record.queue.address(record.read_head))


def look_at_writers(record: OldReader, event: Loaded, now_ns: int) -> Any:
    return load(replace(record, size=event.value, other=0), state_of(WRITE, 0))


def ask_position(record: Any, event: Loaded, now_ns: int) -> Any:
    record = replace(record, seen=event.value, seen_ns=event.time_ns)
    return load(record, position_of(record.other_pool, record.other))


def reclaim(record: Any, event: Loaded, now_ns: int) -> Any:
    return store(record, state_of(record.other_pool, record.other), FREE)


def give_back(record: Any, event: Event, now_ns: int) -> Any:
    return store(record, own_state(record), FREE)


def set_position(record: Any, event: Event, now_ns: int) -> Any:
    return store(record, position_of(record.pool, record.own), _head(record))


def move_head(record: Any, event: Stored, now_ns: int) -> Any:
    return swap(record, WRITE_HEAD if record.pool == WRITE else READ_HEAD, _head(record), record.end)


def store_size(record: OldWriter, event: Swapped, now_ns: int) -> Any:
    return store(record, record.queue.address(record.write_head), record.size)


def store_mark(record: OldWriter, event: Stored, now_ns: int) -> Any:
    return store(record, record.queue.address(record.write_head + 2 * CELL), MARK)


def copy_data_in(record: OldWriter, event: Stored, now_ns: int) -> Any:
    return copy_in(record, record.write_head + HEADER, record.data)


def copy_data_out(record: OldReader, event: Swapped, now_ns: int) -> Any:
    return copy_out(replace(record, at=record.read_head), record.read_head + HEADER, record.size)


def load_mark(record: OldReader, event: Stored, now_ns: int) -> Any:
    return load(replace(record, at=record.read_head), record.queue.address(record.read_head + 2 * CELL))


def load_next_mark(record: OldReader, event: Loaded, now_ns: int) -> Any:
    at = move_location(record.queue, record.at, CELL)
    return load(replace(record, at=at), record.queue.address(at + 2 * CELL))


def skip(record: OldReader, event: Loaded, now_ns: int) -> Any:
    return swap(record, READ_HEAD, record.read_head, record.at)


def tell_skipped(record: OldReader, event: Swapped, now_ns: int) -> Any:
    record, effects = give_back(record, event, now_ns)
    return record, (Tell(Skipped(record.read_head, move_location(record.queue, record.at, -1))), *effects)


def keep(record: OldReader, event: Copied, now_ns: int) -> Any:
    return give_back(replace(record, data=event.data), event, now_ns)


def tell_written(record: OldWriter, event: Stored, now_ns: int) -> Any:
    return record, (Tell(WriteDone(Outcome.WRITTEN, record.write_head)),)


def tell_full(record: OldWriter, event: Stored, now_ns: int) -> Any:
    return record, (Tell(WriteDone(Outcome.FULL)),)


def tell_oversize(record: OldWriter, event: Write, now_ns: int) -> Any:
    return record, (Tell(WriteDone(Outcome.OVERSIZE)),)


def tell_delivered(record: OldReader, event: Stored, now_ns: int) -> Any:
    return record, (Tell(ReadDone(ReadOutcome.DELIVERED, record.read_head, 1, record.data)),)


def tell_empty(record: OldReader, event: Stored, now_ns: int) -> Any:
    return record, (Tell(ReadDone(ReadOutcome.EMPTY)),)


def tell_no_write_cursor(record: OldWriter, event: Event, now_ns: int) -> Any:
    return record, (Tell(WriteDone(Outcome.NO_CURSOR)),)


def tell_no_read_cursor(record: OldReader, event: Event, now_ns: int) -> Any:
    return record, (Tell(ReadDone(ReadOutcome.NO_CURSOR)),)


def _head(record: Any) -> int:
    return int(record.write_head if record.pool == WRITE else record.read_head)


def cursor_rows(no_cursor: Any) -> tuple[AnyRow, ...]:
    """Steps 1 and 2: a free cursor is taken, and the heads are loaded; `no_cursor` tells the outcome."""
    return (
        Row(Loaded, S.LOAD_CURSOR, S.TAKE_CURSOR, take, is_free, "step 1"),
        Row(Loaded, S.LOAD_CURSOR, S.LOAD_CURSOR, look_further, has_another, "step 1"),
        Row(Loaded, S.LOAD_CURSOR, S.NO_CURSOR, no_cursor, None, "step 1"),
        Row(Swapped, S.TAKE_CURSOR, S.LOAD_READ_HEAD, load_read_head, is_done, "step 2"),
        Row(Swapped, S.TAKE_CURSOR, S.LOAD_CURSOR, look_further, has_another, "step 1"),
        Row(Swapped, S.TAKE_CURSOR, S.NO_CURSOR, no_cursor, None, "step 1"),
        Row(Loaded, S.LOAD_READ_HEAD, S.LOAD_WRITE_HEAD, load_write_head, None, "step 2"),
    )


def with_refusals(rows: tuple[AnyRow, ...]) -> tuple[AnyRow, ...]:
    """The rows, and that whatever else comes is an error: the source speaks of no other case."""
    refusals = []
    for event in dict.fromkeys(row.on for row in rows if isinstance(row, Row)):
        taken = {row.source for row in rows if isinstance(row, Row) and row.on is event}
        left = tuple(state for state in S if state not in FINAL and state not in taken)
        refusals.append(Refuse((event,), left, "no step"))
    return (*rows, *refusals)


# fmt: off
OLD_WRITER = Fsm(
    "writer_as_written", protocol="cursor_recovery", record=OldWriter, states=OldStatus, initial=S.IDLE, final=FINAL,
    rows=with_refusals((
        #   on       from               to                 do                    when                        clause
        Row(Write,   S.IDLE,            S.NOTHING,         tell_oversize,        is_too_large,               "step 3"),
        Row(Write,   S.IDLE,            S.LOAD_CURSOR,     begin_write,          None,                       "step 1"),
        *cursor_rows(tell_no_write_cursor),
        Row(Loaded,  S.LOAD_WRITE_HEAD, S.GIVE_BACK,       give_back,            has_no_room,                "step 3"),
        Row(Loaded,  S.LOAD_WRITE_HEAD, S.CHECK_CURSOR,    look_at_readers,      None,                       "step 3"),
        Row(Loaded,  S.CHECK_CURSOR,    S.CHECK_CURSOR,    look_at_next,         is_free_and_more,           "step 3"),
        Row(Loaded,  S.CHECK_CURSOR,    S.SET_POSITION,    set_position,         is_free,                    "step 4"),
        Row(Loaded,  S.CHECK_CURSOR,    S.CHECK_POSITION,  ask_position,         None,                       "step 3"),
        Row(Loaded,  S.CHECK_POSITION,  S.CHECK_CURSOR,    look_at_next,         is_out_of_the_way_and_more, "step 3"),
        Row(Loaded,  S.CHECK_POSITION,  S.SET_POSITION,    set_position,         is_out_of_the_way,          "step 4"),
        Row(Loaded,  S.CHECK_POSITION,  S.GIVE_BACK,       give_back,            is_young,                   "step 3"),
        Row(Loaded,  S.CHECK_POSITION,  S.RECLAIM,         reclaim,              None,                       "WRITER"),
        Row(Stored,  S.RECLAIM,         S.GIVE_BACK,       give_back,            None,                       "WRITER"),
        Row(Stored,  S.GIVE_BACK,       S.NOTHING,         tell_full,            None,                       "step 3"),
        Row(Stored,  S.SET_POSITION,    S.MOVE_HEAD,       move_head,            None,                       "step 5"),
        Row(Swapped, S.MOVE_HEAD,       S.STORE_SIZE,      store_size,           is_done,                    "step 6"),
        Row(Swapped, S.MOVE_HEAD,       S.LOAD_READ_HEAD,  load_read_head,       None,                       "step 5"),
        Row(Stored,  S.STORE_SIZE,      S.STORE_MARK,      store_mark,           None,                       "step 6"),
        Row(Stored,  S.STORE_MARK,      S.COPY_DATA,       copy_data_in,         None,                       "step 7"),
        Row(Stored,  S.COPY_DATA,       S.RELEASE,         give_back,            None,                       "step 8"),
        Row(Stored,  S.RELEASE,         S.DONE,            tell_written,         None,                       "step 8"),
    )),
)

OLD_READER = Fsm(
    "reader_as_written", protocol="cursor_recovery", record=OldReader, states=OldStatus, initial=S.IDLE, final=FINAL,
    rows=with_refusals((
        #   on       from               to                 do                   when                        clause
        Row(Read,    S.IDLE,            S.LOAD_CURSOR,     begin_read,          None,                       "step 1"),
        *cursor_rows(tell_no_read_cursor),
        Row(Loaded,  S.LOAD_WRITE_HEAD, S.GIVE_BACK,       give_back,           has_nothing,                "step 4"),
        Row(Loaded,  S.LOAD_WRITE_HEAD, S.LOAD_SIZE,       load_size,           None,                       "step 3"),
        Row(Loaded,  S.LOAD_SIZE,       S.GIVE_BACK,       give_back,           is_not_written,             "step 4"),
        Row(Loaded,  S.LOAD_SIZE,       S.CHECK_CURSOR,    look_at_writers,     None,                       "step 4"),
        Row(Loaded,  S.CHECK_CURSOR,    S.CHECK_CURSOR,    look_at_next,        is_free_and_more,           "step 4"),
        Row(Loaded,  S.CHECK_CURSOR,    S.SET_POSITION,    set_position,        is_free,                    "step 5"),
        Row(Loaded,  S.CHECK_CURSOR,    S.CHECK_POSITION,  ask_position,        None,                       "step 4"),
        Row(Loaded,  S.CHECK_POSITION,  S.CHECK_CURSOR,    look_at_next,        is_out_of_the_way_and_more, "step 4"),
        Row(Loaded,  S.CHECK_POSITION,  S.SET_POSITION,    set_position,        is_out_of_the_way,          "step 5"),
        Row(Loaded,  S.CHECK_POSITION,  S.GIVE_BACK,       give_back,           is_young,                   "step 4"),
        Row(Loaded,  S.CHECK_POSITION,  S.RECLAIM,         reclaim,             None,                       "READER"),
        Row(Stored,  S.RECLAIM,         S.LOAD_MARK,       load_mark,           None,                       "READER 1"),
        Row(Loaded,  S.LOAD_MARK,       S.SET_POSITION,    set_position,        is_marked,                  "READER 2"),
        Row(Loaded,  S.LOAD_MARK,       S.SCAN,            load_next_mark,      has_more,                   "READER 3"),
        Row(Loaded,  S.LOAD_MARK,       S.GIVE_BACK,       give_back,           None,                       "READER 3"),
        Row(Loaded,  S.SCAN,            S.SKIP,            skip,                is_marked,                  "READER 3"),
        Row(Loaded,  S.SCAN,            S.SCAN,            load_next_mark,      has_more,                   "READER 3"),
        Row(Loaded,  S.SCAN,            S.GIVE_BACK,       give_back,           None,                       "READER 3"),
        Row(Swapped, S.SKIP,            S.GIVE_BACK,       tell_skipped,        is_done,                    "READER 3"),
        Row(Swapped, S.SKIP,            S.GIVE_BACK,       give_back,           None,                       "READER 3"),
        Row(Stored,  S.GIVE_BACK,       S.NOTHING,         tell_empty,          None,                       "step 4"),
        Row(Stored,  S.SET_POSITION,    S.MOVE_HEAD,       move_head,           None,                       "step 6"),
        Row(Swapped, S.MOVE_HEAD,       S.COPY_DATA,       copy_data_out,       is_done,                    "step 7"),
        Row(Swapped, S.MOVE_HEAD,       S.LOAD_READ_HEAD,  load_read_head,      None,                       "step 6"),
        Row(Copied,  S.COPY_DATA,       S.RELEASE,         keep,                None,                       "step 8"),
        Row(Stored,  S.RELEASE,         S.DONE,            tell_delivered,      None,                       "step 8"),
    )),
)
# fmt: on


def old_writer(queue: Queue, slot: int, incarnation: int) -> OldWriter:
    """The record of one write."""
    return OldWriter(queue, slot, incarnation)


def old_reader(queue: Queue, slot: int, incarnation: int) -> OldReader:
    """The record of one read."""
    return OldReader(queue, slot, incarnation)
