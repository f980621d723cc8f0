"""Reader: one read from the queue, one state per memory access (source: "Queue Recovery", column READ).

Steps 1 to 8 of the source, repaired.  Where no block begins at the read head although somebody has reserved it, and
no living writer is behind the write head, the reader looks for the next block that counts, moves the head to it (or to
the write head) and begins a new attempt; so it does after a block whose checksum is wrong.  One read looks through a
slice at most: it moves the head to the end of that, and whoever reads next looks from there.
"""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from msgspec.structs import replace

from statemachines.cursor_recovery.block import SEVERAL, checksum, commit_word, data_of, length_of, size_in
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    HEADER,
    NONE,
    READ_HEAD,
    Copied,
    Loaded,
    Queue,
    Stored,
    Swapped,
    messages_of,
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
    copy_out,
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
    load_read_head,
    load_write_head,
    look_at_next,
    own_state,
    reclaim,
    recovery_rows,
    store,
    swap,
)
from statemachines.kernel import Call, Effects, Event, Fsm, Invariant, Refuse, Row, Status, Tell, TraceColumns


class Read(Call, frozen=True, gc=False):
    """From the host: take the next block."""


class ReadOutcome(Enum):
    """How a read ends.  EMPTY: nothing to deliver, or not yet; FENCED: others took the cursor for a dead one's, and
    nothing was taken; DISCARDED: they did after the block was taken, which is lost."""

    DELIVERED = "delivered"
    EMPTY = "empty"
    NO_CURSOR = "no_cursor"
    FENCED = "fenced"
    DISCARDED = "discarded"


class Taken(Event, frozen=True, gc=False):
    """To the host: the read head is moved over the block `first`..`last`, which nobody else gets."""

    first: int
    last: int


class ReadDone(Event, frozen=True, gc=False):
    """To the host: how it ended; when DELIVERED or DISCARDED, the position of the block (else -1) and how many messages
    it holds; when DELIVERED, their bytes."""

    columns: ClassVar = TraceColumns(key="outcome_text", grant="messages", first="position", last="end")

    outcome: ReadOutcome
    position: int = -1
    messages: int = 0
    payload: bytes = b""

    @property
    def outcome_text(self) -> str:
        """The outcome, as a trace shows it."""
        return self.outcome.value

    @property
    def end(self) -> int:
        """The last byte of the block that was delivered, else -1."""
        if self.outcome is not ReadOutcome.DELIVERED:
            return -1
        return self.position + length_of(len(data_of(self.payload, self.messages))) - 1


class Skipped(Event, frozen=True, gc=False):
    """To the host: the bytes `first`..`last` were never a whole message; it goes on behind them."""

    first: int
    last: int


class ReaderStatus(Status):
    """Steps 1 to 8, an access each, and between them what is done about an aged cursor (r); then the outcomes."""

    IDLE = "idle"
    LOAD_CURSOR = "1_load_cursor"
    TAKE_CURSOR = "1_take_cursor"
    CLEAR_POSITION = "1_clear_position"
    LOAD_READ_HEAD = "2_load_read_head"
    LOAD_WRITE_HEAD = "2_load_write_head"
    CHECK_CURSOR = "3_check_cursor"
    CHECK_POSITION = "3_check_position"
    LOAD_COMMIT_LOW = "3_load_commit_low"
    LOAD_COMMIT_HIGH = "3_load_commit_high"
    LOAD_SIZE = "3_load_size"
    LOAD_CHECKSUM = "3_load_checksum"
    LOAD_MESSAGES = "3_load_messages"
    SCAN_DATA = "3_scan_data"
    SKIP = "3_skip"
    GIVE_BACK = "4_give_back"
    LOAD_LOCK = "r_load_lock"
    LOAD_LIFE = "r_load_life"
    LOST_POSITION = "r_lost_position"
    LOST_MESSAGES = "r_lost_messages"
    LOST_HEAD = "r_lost_head"
    LOST_COUNT = "r_lost_count"
    LOST_ADD = "r_lost_add"
    RECLAIM = "r_reclaim"
    OWN_BEFORE_POSITION = "5_own_before_position"
    SET_MESSAGES = "5_set_messages"
    SET_POSITION = "5_set_position"
    OWN_BEFORE_HEAD = "6_own_before_head"
    MOVE_HEAD = "6_move_head"
    COPY_DATA = "7_copy_data"
    OWN_AFTER_COPY = "7_own_after_copy"
    RELEASE = "8_release"
    DELIVERED = "delivered"
    EMPTY = "empty"
    NO_CURSOR = "no_cursor"
    FENCED = "fenced"
    DISCARDED = "discarded"


S = ReaderStatus
FINAL = (S.DELIVERED, S.EMPTY, S.NO_CURSOR, S.FENCED, S.DISCARDED)
MARKS = (S.LOAD_COMMIT_LOW, S.LOAD_COMMIT_HIGH, S.LOAD_SIZE)
LOADS = (
    S.LOAD_CURSOR, S.LOAD_READ_HEAD, S.LOAD_WRITE_HEAD, S.CHECK_CURSOR, S.CHECK_POSITION, *MARKS, S.LOAD_CHECKSUM,
    S.LOAD_MESSAGES, S.LOAD_LOCK, S.LOAD_LIFE, S.LOST_POSITION, S.LOST_MESSAGES, S.LOST_HEAD, S.LOST_COUNT,
    S.OWN_BEFORE_POSITION, S.OWN_BEFORE_HEAD, S.OWN_AFTER_COPY,
)  # fmt: skip
STORES = (S.CLEAR_POSITION, S.SET_MESSAGES, S.SET_POSITION)
SWAPS = (S.TAKE_CURSOR, S.SKIP, S.LOST_ADD, S.RECLAIM, S.GIVE_BACK, S.MOVE_HEAD, S.RELEASE)
COPIES = (S.SCAN_DATA, S.COPY_DATA)


SLICE_BYTES = 1 << 18
"""So many bytes behind the read head one read looks through: some 5 ms."""


class ReaderRecord(Operation, frozen=True, gc=False):
    """One read.  `at`: where a block might begin; `limit`: living writers at or behind it are in the way; `size`,
    `checksum`: as its header says; `messages` in the block; `data`: the copy; `slice_bytes`: so many it looks through
    where no block begins; `has_looked`: it has done so, and looks no further."""

    pool = READ
    other_pool = WRITE

    at: int = 0
    limit: int = 0
    size: int = 0
    checksum: int = 0
    messages: int = 1
    data: bytes = b""
    slice_bytes: int = SLICE_BYTES
    has_looked: bool = False
    status: ReaderStatus = S.IDLE

    @property
    def end(self) -> int:
        """Where the block at `at` ends."""
        return self.at + length_of(size_in(self.size))

    def address(self, offset: int) -> str:
        """The cell `offset` bytes behind `at`."""
        return self.queue.address(self.at + offset)

    @property
    def payload(self) -> bytes:
        """The copy without the number of its messages."""
        return self.data[CELL:] if self.size & SEVERAL else self.data


Done = tuple[ReaderRecord, Effects]


# -- guards ---------------------------------------------------------------------------------------------------------


def has_nothing(record: ReaderRecord, event: Loaded) -> bool:
    return event.value == record.read_head


def is_ahead(record: ReaderRecord, event: Loaded) -> bool:
    """That writer's block, if it has one, lies beyond what is looked at."""
    return event.value == NONE or event.value > record.limit


def is_ahead_and_more(record: ReaderRecord, event: Loaded) -> bool:
    return is_ahead(record, event) and record.has_more_others


def has_low_half(record: ReaderRecord, event: Loaded) -> bool:
    return event.value == commit_word(record.at)[0]


def has_high_half(record: ReaderRecord, event: Loaded) -> bool:
    return event.value == commit_word(record.at)[1]


def ends_within(record: ReaderRecord, event: Loaded) -> bool:
    """A block counts only up to the write head; one of several messages has room for their number."""
    return record.at + length_of(size_in(event.value)) <= record.write_head and (
        not event.value & SEVERAL or size_in(event.value) >= CELL
    )


def is_first_look(record: ReaderRecord, event: Loaded) -> bool:
    """Only the writers at the read head were looked at so far."""
    return record.limit == record.read_head


def has_more_cells(record: ReaderRecord, event: Event) -> bool:
    return record.at + CELL + HEADER <= record.write_head


def has_looked_enough(record: ReaderRecord, event: Loaded) -> bool:
    return record.has_looked


def ends_slice(record: ReaderRecord, event: Event) -> bool:
    """The cell at `at` is the last of the slice, and there are more behind it."""
    return record.at + CELL - record.read_head >= record.slice_bytes and has_more_cells(record, event)


def is_at_head(record: ReaderRecord, event: Loaded) -> bool:
    return record.at == record.read_head


def holds_several(record: ReaderRecord, event: Loaded) -> bool:
    return is_at_head(record, event) and bool(record.size & SEVERAL)


def is_whole(record: ReaderRecord, event: Copied) -> bool:
    return record.checksum == checksum(record.at, record.size, event.data)


# -- actions --------------------------------------------------------------------------------------------------------


def look_for_cursor(record: ReaderRecord, event: Read, now_ns: int) -> Done:
    return load(record, own_state(record))


def look_at_writers(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    head = record.read_head
    return load(replace(record, write_head=event.value, at=head, limit=head, other=0), state_of(WRITE, 0))


def look_at_all_writers(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    """Those behind the write head: any of them may be about to finish a block that the scan would pass."""
    return load(replace(record, at=record.read_head, limit=record.write_head - 1, other=0), state_of(WRITE, 0))


def load_commit_low(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return load(record, record.address(2 * CELL))


def look_at_next_cell(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    record = replace(record, at=record.at + CELL)
    return load(record, record.address(2 * CELL))


def load_commit_high(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return load(record, record.address(3 * CELL))


def load_size(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return load(record, record.address(0))


def load_checksum(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return load(replace(record, size=event.value), record.address(CELL))


def load_messages(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return load(replace(record, checksum=event.value), record.address(HEADER))


def ask_own_for_one(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return ask_own(replace(record, checksum=event.value, messages=1), event, now_ns)


def ask_own_for_several(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return ask_own(replace(record, messages=event.value), event, now_ns)


def scan_data(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return copy_data(replace(record, checksum=event.value), event, now_ns)


def skip_to_block(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return swap(record, READ_HEAD, record.read_head, record.at)


def skip_to_head(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return skip_to_block(replace(record, at=record.write_head), event, now_ns)


def skip_slice(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return skip_to_block(replace(record, at=record.at + CELL, has_looked=True), event, now_ns)


def set_messages(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return store(record, messages_of(record.own), record.messages)


def set_position(record: ReaderRecord, event: Stored, now_ns: int) -> Done:
    return store(record, position_of(READ, record.own), record.at)


def move_head(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    return swap(record, READ_HEAD, record.read_head, record.end)


def copy_data(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return copy_out(record, record.at + HEADER, size_in(record.size))


def take_block(record: ReaderRecord, event: Swapped, now_ns: int) -> Done:
    record, effects = copy_data(record, event, now_ns)
    return record, (Tell(Taken(record.at, record.end - 1)), *effects)


def release(record: ReaderRecord, event: Copied, now_ns: int) -> Done:
    return swap(replace(record, data=event.data), own_state(record), record.token, FREE)


def tell_broken(record: ReaderRecord, event: Loaded, now_ns: int) -> Done:
    record, effects = load_read_head(record, event, now_ns)
    return record, (Tell(Skipped(record.at, record.end - 1)), *effects)


def tell_skipped(record: ReaderRecord, event: Swapped, now_ns: int) -> Done:
    record, effects = load_read_head(record, event, now_ns)
    return record, (Tell(Skipped(record.read_head, record.at - 1)), *effects)


def tell_delivered(record: ReaderRecord, event: Swapped, now_ns: int) -> Done:
    return record, (Tell(ReadDone(ReadOutcome.DELIVERED, record.at, record.messages, record.payload)),)


def tell_discarded(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return replace(record, data=b""), (Tell(ReadDone(ReadOutcome.DISCARDED, record.at, record.messages)),)


def tell_empty(record: ReaderRecord, event: Swapped, now_ns: int) -> Done:
    return record, (Tell(ReadDone(ReadOutcome.EMPTY)),)


def tell_no_cursor(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(ReadDone(ReadOutcome.NO_CURSOR)),)


def tell_fenced(record: ReaderRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(ReadDone(ReadOutcome.FENCED)),)


# fmt: off
ROWS = (
    #   on       from                    to                      do                   when                  clause
    Row(Read,    S.IDLE,                 S.LOAD_CURSOR,          look_for_cursor,     None,                 "CR-02"),
    *recovery_rows(S, tell_no_cursor),
    Row(Stored,  S.CLEAR_POSITION,       S.LOAD_READ_HEAD,       load_read_head,      None,                 "CR-09"),
    Row(Loaded,  S.LOAD_READ_HEAD,       S.LOAD_WRITE_HEAD,      load_write_head,     None,                 "CR-09"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.LOAD_READ_HEAD,       load_read_head,      is_outrun,            "CR-56"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.GIVE_BACK,            give_back,           has_nothing,          "CR-41"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.CHECK_CURSOR,         look_at_writers,     None,                 "CR-42"),
    Row(Loaded,  S.CHECK_CURSOR,         S.CHECK_CURSOR,         look_at_next,        is_free_and_more,     "CR-42"),
    Row(Loaded,  S.CHECK_CURSOR,         S.LOAD_COMMIT_LOW,      load_commit_low,     is_free,              "CR-44"),
    Row(Loaded,  S.CHECK_CURSOR,         S.CHECK_POSITION,       ask_position,        None,                 "CR-42"),
    Row(Loaded,  S.CHECK_POSITION,       S.CHECK_CURSOR,         look_at_next,        is_ahead_and_more,    "CR-42"),
    Row(Loaded,  S.CHECK_POSITION,       S.LOAD_COMMIT_LOW,      load_commit_low,     is_ahead,             "CR-44"),
    Row(Loaded,  S.CHECK_POSITION,       S.GIVE_BACK,            give_back,           is_young,             "CR-12"),
    Row(Loaded,  S.CHECK_POSITION,       S.RECLAIM,              reclaim,             goes_by_age_alone,    "CR-06"),
    Row(Loaded,  S.CHECK_POSITION,       S.LOAD_LOCK,            load_lock,           None,                 "CR-13"),
    Row(Loaded,  S.LOAD_COMMIT_LOW,      S.LOAD_COMMIT_HIGH,     load_commit_high,    has_low_half,         "CR-44"),
    Row(Loaded,  S.LOAD_COMMIT_HIGH,     S.LOAD_SIZE,            load_size,           has_high_half,        "CR-44"),
    Row(Loaded,  S.LOAD_SIZE,            S.LOAD_CHECKSUM,        load_checksum,       ends_within,          "CR-44"),
    Row(Loaded,  MARKS,                  S.GIVE_BACK,            give_back,           has_looked_enough,    "CR-59"),
    Row(Loaded,  MARKS,                  S.CHECK_CURSOR,         look_at_all_writers, is_first_look,        "CR-45"),
    Row(Loaded,  MARKS,                  S.SKIP,                 skip_slice,          ends_slice,           "CR-59"),
    Row(Loaded,  MARKS,                  S.LOAD_COMMIT_LOW,      look_at_next_cell,   has_more_cells,       "CR-46"),
    Row(Loaded,  MARKS,                  S.SKIP,                 skip_to_head,        None,                 "CR-46"),
    Row(Loaded,  S.LOAD_CHECKSUM,        S.LOAD_MESSAGES,        load_messages,       holds_several,        "CR-47"),
    Row(Loaded,  S.LOAD_CHECKSUM,        S.OWN_BEFORE_POSITION,  ask_own_for_one,     is_at_head,           "CR-15"),
    Row(Loaded,  S.LOAD_CHECKSUM,        S.SCAN_DATA,            scan_data,           None,                 "CR-46"),
    Row(Loaded,  S.LOAD_MESSAGES,        S.OWN_BEFORE_POSITION,  ask_own_for_several, None,                 "CR-15"),
    Row(Copied,  S.SCAN_DATA,            S.SKIP,                 skip_to_block,       is_whole,             "CR-46"),
    Row(Copied,  S.SCAN_DATA,            S.SKIP,                 skip_slice,          ends_slice,           "CR-59"),
    Row(Copied,  S.SCAN_DATA,            S.LOAD_COMMIT_LOW,      look_at_next_cell,   has_more_cells,       "CR-46"),
    Row(Copied,  S.SCAN_DATA,            S.SKIP,                 skip_to_head,        None,                 "CR-46"),
    Row(Swapped, S.SKIP,                 S.LOAD_READ_HEAD,       tell_skipped,        is_done,              "CR-46"),
    Row(Swapped, S.SKIP,                 S.LOAD_READ_HEAD,       load_read_head,      None,                 "CR-19"),
    Row(Swapped, S.GIVE_BACK,            S.EMPTY,                tell_empty,          is_done,              "CR-41"),
    Row(Swapped, S.GIVE_BACK,            S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Row(Loaded,  S.OWN_BEFORE_POSITION,  S.SET_MESSAGES,         set_messages,        is_ours,              "CR-47"),
    Row(Loaded,  S.OWN_BEFORE_POSITION,  S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Row(Stored,  S.SET_MESSAGES,         S.SET_POSITION,         set_position,        None,                 "CR-47"),
    Row(Stored,  S.SET_POSITION,         S.OWN_BEFORE_HEAD,      ask_own,             None,                 "CR-15"),
    Row(Loaded,  S.OWN_BEFORE_HEAD,      S.MOVE_HEAD,            move_head,           is_ours,              "CR-48"),
    Row(Loaded,  S.OWN_BEFORE_HEAD,      S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Row(Swapped, S.MOVE_HEAD,            S.COPY_DATA,            take_block,          is_done,              "CR-49"),
    Row(Swapped, S.MOVE_HEAD,            S.LOAD_READ_HEAD,       load_read_head,      None,                 "CR-19"),
    Row(Copied,  S.COPY_DATA,            S.RELEASE,              release,             is_whole,             "CR-50"),
    Row(Copied,  S.COPY_DATA,            S.OWN_AFTER_COPY,       ask_own,             None,                 "CR-50"),
    Row(Loaded,  S.OWN_AFTER_COPY,       S.LOAD_READ_HEAD,       tell_broken,         is_ours,              "CR-50"),
    Row(Loaded,  S.OWN_AFTER_COPY,       S.DISCARDED,            tell_discarded,      None,                 "CR-52"),
    Row(Swapped, S.RELEASE,              S.DELIVERED,            tell_delivered,      is_done,              "CR-51"),
    Row(Swapped, S.RELEASE,              S.DISCARDED,            tell_discarded,      None,                 "CR-52"),
    Refuse((Read,),      (*LOADS, *STORES, *SWAPS, *COPIES),      "CR-23"),
    Refuse((Loaded,),    (S.IDLE, *STORES, *SWAPS, *COPIES),      "CR-24"),
    Refuse((Stored,),    (S.IDLE, *LOADS, *SWAPS, *COPIES),       "CR-24"),
    Refuse((Swapped,),   (S.IDLE, *LOADS, *STORES, *COPIES),      "CR-24"),
    Refuse((Copied,),    (S.IDLE, *LOADS, *STORES, *SWAPS),       "CR-24"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------

OWNING = tuple(state for state in S if state is S.CLEAR_POSITION or state.value[0] in "2345678")
TAKING = tuple(state for state in S if state.value[0] in "5678")


def owns_what_it_reads_through(record: ReaderRecord) -> bool:
    """From the clearing of the position to the release there is a token."""
    return record.token != FREE or record.status not in OWNING


def takes_what_was_written(record: ReaderRecord) -> bool:
    """From step 5 on the block begins at the read head that was loaded, and ends at most at the write head."""
    return record.status not in TAKING or record.read_head == record.at < record.end <= record.write_head


READER = Fsm(
    "reader",
    protocol="cursor_recovery",
    record=ReaderRecord,
    states=ReaderStatus,
    initial=S.IDLE,
    final=FINAL,
    rows=ROWS,
    invariants=(
        Invariant("owns-what-it-reads-through", "CR-31", owns_what_it_reads_through),
        Invariant("takes-what-was-written", "CR-53", takes_what_was_written),
    ),
)


def new_reader(queue: Queue, slot: int, incarnation: int, slice_bytes: int = SLICE_BYTES) -> ReaderRecord:
    """The record of one read, which looks through so many bytes at most where no block begins, in whole cells.

    `ConfigurationError` where the owner has no room in a cursor's word.
    """
    check_owner(slot, incarnation)
    return ReaderRecord(queue, slot, incarnation, slice_bytes=slice_bytes)
