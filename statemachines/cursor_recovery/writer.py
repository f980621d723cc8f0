"""Writer: one write into the queue, one state per memory access (source: "Queue Recovery", column WRITE).

Steps 1 to 8 of the source, repaired.  Every state but the first waits for the answer to exactly one access, so a
crash between any two accesses is a state of this machine.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from msgspec.structs import replace

from statemachines.cursor_recovery.block import checksum, commit_word, data_of, length_of, size_word
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    HEADER,
    NONE,
    WRITE_HEAD,
    Copied,
    Loaded,
    Queue,
    Stored,
    Swapped,
    content,
    position_of,
    state_of,
)
from statemachines.cursor_recovery.operation import (
    READ,
    WRITE,
    Operation,
    ask_own,
    ask_position,
    check_owner,
    copy_in,
    give_back,
    goes_by_age_alone,
    is_done,
    is_free,
    is_free_and_more,
    is_ours,
    is_outrun,
    is_young,
    load,
    load_lock,
    load_lost_position,
    load_read_head,
    load_write_head,
    look_at_next,
    own_state,
    recovery_rows,
    store,
    swap,
)
from statemachines.kernel import Call, Effects, Event, Fsm, Invariant, Refuse, Row, Status, Tell, TraceColumns


class Write(Call, frozen=True, gc=False):
    """From the host: publish `payload`, which holds so many messages."""

    columns: ClassVar = TraceColumns(key="content", grant="messages")

    payload: bytes
    messages: int = 1

    @property
    def content(self) -> str:
        """The data of its block, as a trace shows it."""
        return content(data_of(self.payload, self.messages))


class Outcome(Enum):
    """How a write ends.  FENCED: others took the cursor for a dead one's; if the block was begun, it may be skipped."""

    WRITTEN = "written"
    FULL = "full"
    NO_CURSOR = "no_cursor"
    FENCED = "fenced"
    OVERSIZE = "oversize"


class Reserved(Event, frozen=True, gc=False):
    """To the host: the write head is moved; the bytes `first`..`last` are this writer's to fill."""

    first: int
    last: int


class WriteDone(Event, frozen=True, gc=False):
    """To the host: how it ended, and (when WRITTEN) the position of the block, else -1."""

    columns: ClassVar = TraceColumns(key="outcome_text", first="position")

    outcome: Outcome
    position: int = -1

    @property
    def outcome_text(self) -> str:
        """The outcome, as a trace shows it."""
        return self.outcome.value


class QueueWriterStatus(Status):
    """Steps 1 to 8, an access each, and between them what is done about an aged cursor (r); then the outcomes."""

    IDLE = "idle"
    LOAD_CURSOR = "1_load_cursor"
    TAKE_CURSOR = "1_take_cursor"
    CLEAR_POSITION = "1_clear_position"
    LOAD_READ_HEAD = "2_load_read_head"
    LOAD_WRITE_HEAD = "2_load_write_head"
    CHECK_CURSOR = "3_check_cursor"
    CHECK_POSITION = "3_check_position"
    LOAD_LOCK = "r_load_lock"
    LOAD_LIFE = "r_load_life"
    LOST_POSITION = "r_lost_position"
    LOST_MESSAGES = "r_lost_messages"
    LOST_HEAD = "r_lost_head"
    LOST_COUNT = "r_lost_count"
    LOST_ADD = "r_lost_add"
    RECLAIM = "r_reclaim"
    GIVE_BACK = "3_give_back"
    OWN_BEFORE_POSITION = "4_own_before_position"
    SET_POSITION = "4_set_position"
    OWN_BEFORE_HEAD = "5_own_before_head"
    MOVE_HEAD = "5_move_head"
    STORE_SIZE = "6_store_size"
    STORE_CHECKSUM = "6_store_checksum"
    STORE_COMMIT_LOW = "6_store_commit_low"
    STORE_COMMIT_HIGH = "6_store_commit_high"
    COPY_DATA = "7_copy_data"
    RELEASE = "8_release"
    WRITTEN = "written"
    FULL = "full"
    NO_CURSOR = "no_cursor"
    FENCED = "fenced"
    OVERSIZE = "oversize"


S = QueueWriterStatus
FINAL = (S.WRITTEN, S.FULL, S.NO_CURSOR, S.FENCED, S.OVERSIZE)
LOADS = (
    S.LOAD_CURSOR, S.LOAD_READ_HEAD, S.LOAD_WRITE_HEAD, S.CHECK_CURSOR, S.CHECK_POSITION, S.LOAD_LOCK, S.LOAD_LIFE,
    S.LOST_POSITION, S.LOST_MESSAGES, S.LOST_HEAD, S.LOST_COUNT, S.OWN_BEFORE_POSITION, S.OWN_BEFORE_HEAD,
)  # fmt: skip
STORES = (
    S.CLEAR_POSITION, S.SET_POSITION, S.STORE_SIZE, S.STORE_CHECKSUM, S.STORE_COMMIT_LOW, S.STORE_COMMIT_HIGH,
    S.COPY_DATA,
)  # fmt: skip
SWAPS = (S.TAKE_CURSOR, S.LOST_ADD, S.RECLAIM, S.GIVE_BACK, S.MOVE_HEAD, S.RELEASE)


class QueueWriterRecord(Operation, frozen=True, gc=False):
    """One write; `data`: what its block holds."""

    pool = WRITE
    other_pool = READ

    data: bytes = b""
    messages: int = 1
    status: QueueWriterStatus = S.IDLE

    @property
    def end(self) -> int:
        """Where the block ends."""
        return self.write_head + length_of(len(self.data))

    @property
    def size(self) -> int:
        """The size word of the block."""
        return size_word(self.data, self.messages)

    def address(self, offset: int) -> str:
        """The cell `offset` bytes into the block."""
        return self.queue.address(self.write_head + offset)


Done = tuple[QueueWriterRecord, Effects]


# -- guards ---------------------------------------------------------------------------------------------------------


def is_oversize(record: QueueWriterRecord, event: Write) -> bool:
    return length_of(len(data_of(event.payload, event.messages))) > record.queue.capacity


def has_no_room(record: QueueWriterRecord, event: Loaded) -> bool:
    return event.value + length_of(len(record.data)) > record.read_head + record.queue.capacity


def leaves_room(record: QueueWriterRecord, event: Loaded) -> bool:
    return event.value == NONE or record.end <= event.value + record.queue.capacity


def leaves_room_and_more(record: QueueWriterRecord, event: Loaded) -> bool:
    return leaves_room(record, event) and record.has_more_others


def has_data(record: QueueWriterRecord, event: Stored) -> bool:
    return bool(record.data)


# -- actions --------------------------------------------------------------------------------------------------------


def look_for_cursor(record: QueueWriterRecord, event: Write, now_ns: int) -> Done:
    data = data_of(event.payload, event.messages)
    return load(replace(record, data=data, messages=event.messages), own_state(record))


def look_at_readers(record: QueueWriterRecord, event: Loaded, now_ns: int) -> Done:
    return load(replace(record, write_head=event.value, other=0), state_of(READ, 0))


def set_position(record: QueueWriterRecord, event: Loaded, now_ns: int) -> Done:
    return store(record, position_of(WRITE, record.own), record.write_head)


def move_head(record: QueueWriterRecord, event: Loaded, now_ns: int) -> Done:
    return swap(record, WRITE_HEAD, record.write_head, record.end)


def store_size(record: QueueWriterRecord, event: Swapped, now_ns: int) -> Done:
    record, effects = store(record, record.address(0), record.size)
    return record, (Tell(Reserved(record.write_head, record.end - 1)), *effects)


def store_checksum(record: QueueWriterRecord, event: Stored, now_ns: int) -> Done:
    return store(record, record.address(CELL), checksum(record.write_head, record.size, record.data))


def store_commit_low(record: QueueWriterRecord, event: Stored, now_ns: int) -> Done:
    return store(record, record.address(2 * CELL), commit_word(record.write_head)[0])


def store_commit_high(record: QueueWriterRecord, event: Stored, now_ns: int) -> Done:
    return store(record, record.address(3 * CELL), commit_word(record.write_head)[1])


def copy_data(record: QueueWriterRecord, event: Stored, now_ns: int) -> Done:
    return copy_in(record, record.write_head + HEADER, record.data)


def release(record: QueueWriterRecord, event: Stored, now_ns: int) -> Done:
    return swap(record, own_state(record), record.token, FREE)


def tell_written(record: QueueWriterRecord, event: Swapped, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.WRITTEN, record.write_head)),)


def tell_full(record: QueueWriterRecord, event: Swapped, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.FULL)),)


def tell_no_cursor(record: QueueWriterRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.NO_CURSOR)),)


def tell_fenced(record: QueueWriterRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.FENCED)),)


def tell_oversize(record: QueueWriterRecord, event: Write, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.OVERSIZE)),)


# fmt: off
ROWS = (
    #   on       from                    to                      do                   when                  clause
    Row(Write,   S.IDLE,                 S.OVERSIZE,             tell_oversize,       is_oversize,          "CR-01"),
    Row(Write,   S.IDLE,                 S.LOAD_CURSOR,          look_for_cursor,     None,                 "CR-02"),
    *recovery_rows(S, tell_no_cursor),
    Row(Stored,  S.CLEAR_POSITION,       S.LOAD_READ_HEAD,       load_read_head,      None,                 "CR-09"),
    Row(Loaded,  S.LOAD_READ_HEAD,       S.LOAD_WRITE_HEAD,      load_write_head,     None,                 "CR-09"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.LOAD_READ_HEAD,       load_read_head,      is_outrun,            "CR-56"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.GIVE_BACK,            give_back,           has_no_room,          "CR-10"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.CHECK_CURSOR,         look_at_readers,     None,                 "CR-11"),
    Row(Loaded,  S.CHECK_CURSOR,         S.CHECK_CURSOR,         look_at_next,        is_free_and_more,     "CR-11"),
    Row(Loaded,  S.CHECK_CURSOR,         S.OWN_BEFORE_POSITION,  ask_own,             is_free,              "CR-15"),
    Row(Loaded,  S.CHECK_CURSOR,         S.CHECK_POSITION,       ask_position,        None,                 "CR-11"),
    Row(Loaded,  S.CHECK_POSITION,       S.CHECK_CURSOR,         look_at_next,        leaves_room_and_more, "CR-11"),
    Row(Loaded,  S.CHECK_POSITION,       S.OWN_BEFORE_POSITION,  ask_own,             leaves_room,          "CR-15"),
    Row(Loaded,  S.CHECK_POSITION,       S.GIVE_BACK,            give_back,           is_young,             "CR-12"),
    Row(Loaded,  S.CHECK_POSITION,       S.LOST_POSITION,        load_lost_position,  goes_by_age_alone,    "CR-06"),
    Row(Loaded,  S.CHECK_POSITION,       S.LOAD_LOCK,            load_lock,           None,                 "CR-13"),
    Row(Swapped, S.GIVE_BACK,            S.FULL,                 tell_full,           is_done,              "CR-10"),
    Row(Swapped, S.GIVE_BACK,            S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Row(Loaded,  S.OWN_BEFORE_POSITION,  S.SET_POSITION,         set_position,        is_ours,              "CR-17"),
    Row(Loaded,  S.OWN_BEFORE_POSITION,  S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Row(Stored,  S.SET_POSITION,         S.OWN_BEFORE_HEAD,      ask_own,             None,                 "CR-15"),
    Row(Loaded,  S.OWN_BEFORE_HEAD,      S.MOVE_HEAD,            move_head,           is_ours,              "CR-18"),
    Row(Loaded,  S.OWN_BEFORE_HEAD,      S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Row(Swapped, S.MOVE_HEAD,            S.STORE_SIZE,           store_size,          is_done,              "CR-20"),
    Row(Swapped, S.MOVE_HEAD,            S.LOAD_READ_HEAD,       load_read_head,      None,                 "CR-19"),
    Row(Stored,  S.STORE_SIZE,           S.STORE_CHECKSUM,       store_checksum,      None,                 "CR-20"),
    Row(Stored,  S.STORE_CHECKSUM,       S.STORE_COMMIT_LOW,     store_commit_low,    None,                 "CR-20"),
    Row(Stored,  S.STORE_COMMIT_LOW,     S.STORE_COMMIT_HIGH,    store_commit_high,   None,                 "CR-20"),
    Row(Stored,  S.STORE_COMMIT_HIGH,    S.COPY_DATA,            copy_data,           has_data,             "CR-21"),
    Row(Stored,  S.STORE_COMMIT_HIGH,    S.RELEASE,              release,             None,                 "CR-22"),
    Row(Stored,  S.COPY_DATA,            S.RELEASE,              release,             None,                 "CR-22"),
    Row(Swapped, S.RELEASE,              S.WRITTEN,              tell_written,        is_done,              "CR-22"),
    Row(Swapped, S.RELEASE,              S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Refuse((Write,),           (*LOADS, *STORES, *SWAPS),             "CR-23"),
    Refuse((Loaded,),          (S.IDLE, *STORES, *SWAPS),             "CR-24"),
    Refuse((Stored,),          (S.IDLE, *LOADS, *SWAPS),              "CR-24"),
    Refuse((Swapped,),         (S.IDLE, *LOADS, *STORES),             "CR-24"),
    Refuse((Copied,),          (S.IDLE, *LOADS, *STORES, *SWAPS),     "CR-24"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------

OWNING = tuple(state for state in S if state is S.CLEAR_POSITION or state.value[0] in "2345678")
RESERVING = tuple(state for state in S if state.value[0] in "45678")


def owns_what_it_writes_through(record: QueueWriterRecord) -> bool:
    """From the clearing of the position to the release there is a token."""
    return record.token != FREE or record.status not in OWNING


def stays_within_a_lap(record: QueueWriterRecord) -> bool:
    """From step 4 on the block ends at most one lap behind the read head that was loaded."""
    return record.status not in RESERVING or record.end <= record.read_head + record.queue.capacity


WRITER = Fsm(
    "writer",
    protocol="cursor_recovery",
    record=QueueWriterRecord,
    states=QueueWriterStatus,
    initial=S.IDLE,
    final=FINAL,
    rows=ROWS,
    invariants=(
        Invariant("owns-what-it-writes-through", "CR-31", owns_what_it_writes_through),
        Invariant("stays-within-a-lap", "CR-32", stays_within_a_lap),
    ),
)


def new_writer(queue: Queue, slot: int, incarnation: int) -> QueueWriterRecord:
    """The record of one write; `ConfigurationError` where the owner has no room in a cursor's word."""
    check_owner(slot, incarnation)
    return QueueWriterRecord(queue, slot, incarnation)
