"""Writer record: what a writer knows, its states, and the questions its table asks (the guards)."""

from __future__ import annotations

from enum import Enum

import msgspec

from statemachines.cursor_recovery.block import length_of
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    INCARNATIONS,
    NONE,
    SLOTS,
    Loaded,
    Queue,
    Stored,
    Swapped,
    incarnation_in,
    is_aged,
)
from statemachines.kernel import Call, ConfigurationError, Event, Status


class Write(Call, frozen=True, gc=False):
    """From the host: publish `payload`."""

    payload: bytes


class Outcome(Enum):
    """How a write ends.  FENCED: others took the cursor for a dead one's; if the block was begun, it may be skipped."""

    WRITTEN = "written"
    FULL = "full"
    NO_CURSOR = "no_cursor"
    FENCED = "fenced"
    OVERSIZE = "oversize"


class WriteDone(Event, frozen=True, gc=False):
    """To the host: how it ended, and (when WRITTEN) the position of the block, else -1."""

    outcome: Outcome
    position: int = -1


class WriterStatus(Status):
    """Steps 1 to 8, an access each; then the outcomes."""

    IDLE = "idle"
    LOAD_CURSOR = "1_load_cursor"
    LOAD_OWNER_LOCK = "1_load_owner_lock"
    LOAD_OWNER_LIFE = "1_load_owner_life"
    RECLAIM_CURSOR = "1_reclaim_cursor"
    TAKE_CURSOR = "1_take_cursor"
    CLEAR_POSITION = "1_clear_position"
    LOAD_READ_HEAD = "2_load_read_head"
    LOAD_WRITE_HEAD = "2_load_write_head"
    CHECK_CURSOR = "3_check_cursor"
    CHECK_POSITION = "3_check_position"
    CHECK_OWNER_LOCK = "3_check_owner_lock"
    CHECK_OWNER_LIFE = "3_check_owner_life"
    RECLAIM_READER = "3_reclaim_reader"
    GIVE_BACK = "3_give_back"
    OWN_BEFORE_POSITION = "4_own_before_position"
    SET_POSITION = "4_set_position"
    OWN_BEFORE_HEAD = "5_own_before_head"
    MOVE_HEAD = "5_move_head"
    STORE_SIZE = "6_store_size"
    STORE_CHECKSUM = "6_store_checksum"
    STORE_COMMIT_LOW = "6_store_commit_low"
    STORE_COMMIT_HIGH = "6_store_commit_high"
    STORE_DATA = "7_store_data"
    RELEASE = "8_release"
    WRITTEN = "written"
    FULL = "full"
    NO_CURSOR = "no_cursor"
    FENCED = "fenced"
    OVERSIZE = "oversize"


S = WriterStatus
FINAL = (S.WRITTEN, S.FULL, S.NO_CURSOR, S.FENCED, S.OVERSIZE)
LOADS = (
    S.LOAD_CURSOR, S.LOAD_OWNER_LOCK, S.LOAD_OWNER_LIFE, S.LOAD_READ_HEAD, S.LOAD_WRITE_HEAD, S.CHECK_CURSOR,
    S.CHECK_POSITION, S.CHECK_OWNER_LOCK, S.CHECK_OWNER_LIFE, S.OWN_BEFORE_POSITION, S.OWN_BEFORE_HEAD,
)  # fmt: skip
STORES = (
    S.CLEAR_POSITION, S.SET_POSITION, S.STORE_SIZE, S.STORE_CHECKSUM, S.STORE_COMMIT_LOW, S.STORE_COMMIT_HIGH,
    S.STORE_DATA,
)  # fmt: skip
SWAPS = (S.RECLAIM_CURSOR, S.TAKE_CURSOR, S.RECLAIM_READER, S.GIVE_BACK, S.MOVE_HEAD, S.RELEASE)
OWNING = tuple(state for state in S if state is S.CLEAR_POSITION or state.value[0] in "2345678")
RESERVING = tuple(state for state in S if state.value[0] in "45678")


class WriterRecord(msgspec.Struct, frozen=True, gc=False):
    """One write.  `own`: its write cursor; `token`: what it put there; `other`: the read cursor it looks at; `seen`:
    the state word it judges, loaded at `seen_ns`; `cell`: how many cells of data are stored."""

    queue: Queue
    slot: int
    incarnation: int
    payload: bytes = b""
    own: int = 0
    token: int = FREE
    other: int = 0
    seen: int = FREE
    seen_ns: int = 0
    read_head: int = 0
    write_head: int = 0
    cell: int = 0
    status: WriterStatus = S.IDLE

    @property
    def end(self) -> int:
        """Where the block ends."""
        return self.write_head + length_of(len(self.payload))

    def address(self, offset: int) -> str:
        """The cell `offset` bytes into the block."""
        return self.queue.address(self.write_head + offset)


def new_writer(queue: Queue, slot: int, incarnation: int) -> WriterRecord:
    """The record of one write by the process that holds `slot` in its life `incarnation`."""
    if not 0 <= slot < SLOTS:
        raise ConfigurationError("slot", slot, f"0 to {SLOTS - 1}: a cursor's word has no more room for it")
    if incarnation < 1:
        raise ConfigurationError("incarnation", incarnation, "at least 1: raise the slot's word after locking it")
    return WriterRecord(queue, slot, incarnation)


# -- invariants -----------------------------------------------------------------------------------------------------


def owns_what_it_writes_through(record: WriterRecord) -> bool:
    """From the clearing of the position to the release there is a token."""
    return record.token != FREE or record.status not in OWNING


def stays_within_a_lap(record: WriterRecord) -> bool:
    """From step 4 on the block ends at most one lap behind the read head that was loaded."""
    return record.status not in RESERVING or record.end <= record.read_head + record.queue.capacity


# -- guards ---------------------------------------------------------------------------------------------------------


def is_oversize(record: WriterRecord, event: Write) -> bool:
    return length_of(len(event.payload)) > record.queue.capacity


def is_free(record: WriterRecord, event: Loaded) -> bool:
    return event.value == FREE


def is_aged_cursor(record: WriterRecord, event: Loaded) -> bool:
    return is_aged(event.value, record.queue.threshold_ns, event.time_ns)


def is_old_by_age_alone(record: WriterRecord, event: Loaded) -> bool:
    return record.queue.threshold_only and is_aged_cursor(record, event)


def has_another(record: WriterRecord, event: Event) -> bool:
    return record.own + 1 < record.queue.write_cursors


def is_dead(record: WriterRecord, event: Loaded) -> bool:
    return event.value == 0


def is_reborn(record: WriterRecord, event: Loaded) -> bool:
    return event.value % INCARNATIONS != incarnation_in(record.seen)


def is_done(record: WriterRecord, event: Swapped) -> bool:
    return event.done


def has_no_room(record: WriterRecord, event: Loaded) -> bool:
    return event.value + length_of(len(record.payload)) > record.read_head + record.queue.capacity


def has_more_readers(record: WriterRecord, event: Event) -> bool:
    return record.other + 1 < record.queue.read_cursors


def is_free_and_more(record: WriterRecord, event: Loaded) -> bool:
    return event.value == FREE and has_more_readers(record, event)


def leaves_room(record: WriterRecord, event: Loaded) -> bool:
    return event.value == NONE or record.end <= event.value + record.queue.capacity


def leaves_room_and_more(record: WriterRecord, event: Loaded) -> bool:
    return leaves_room(record, event) and has_more_readers(record, event)


def is_young(record: WriterRecord, event: Loaded) -> bool:
    return not is_aged(record.seen, record.queue.threshold_ns, record.seen_ns)


def goes_by_age_alone(record: WriterRecord, event: Loaded) -> bool:
    return record.queue.threshold_only


def is_ours(record: WriterRecord, event: Loaded) -> bool:
    return event.value == record.token


def has_data(record: WriterRecord, event: Stored) -> bool:
    return bool(record.payload)


def has_more_data(record: WriterRecord, event: Stored) -> bool:
    return (record.cell + 1) * CELL < len(record.payload)
