"""Writer: one write into the queue, one state per memory access (source: "Queue Recovery", column WRITE).

Steps 1 to 8 of the source, repaired.  Every state but the first waits for the answer to exactly one access, so a
crash between any two accesses is a state of this machine.  Whether a cursor in the way is stale is asked of its age
first, then of its owner: the lock byte, then the incarnation.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.cursor_recovery.block import cell, checksum, commit_word
from statemachines.cursor_recovery.memory import (
    CELL,
    FREE,
    HEADER,
    NONE,
    READ_HEAD,
    SERVICE,
    WRITE_HEAD,
    CompareAndSwap,
    Load,
    Loaded,
    Store,
    Stored,
    Swapped,
    incarnation_of,
    lock_of,
    position_of,
    slot_in,
    state_of,
    token,
)
from statemachines.cursor_recovery.writer_record import (
    FINAL,
    LOADS,
    STORES,
    SWAPS,
    Outcome,
    Write,
    WriteDone,
    WriterRecord,
    WriterStatus,
    goes_by_age_alone,
    has_another,
    has_data,
    has_more_data,
    has_no_room,
    is_aged_cursor,
    is_dead,
    is_done,
    is_free,
    is_free_and_more,
    is_old_by_age_alone,
    is_ours,
    is_oversize,
    is_reborn,
    is_young,
    leaves_room,
    leaves_room_and_more,
    owns_what_it_writes_through,
    stays_within_a_lap,
)
from statemachines.kernel import Ask, Effects, Event, Fsm, Invariant, Refuse, Row, Tell

S = WriterStatus
Done = tuple[WriterRecord, Effects]


def load(record: WriterRecord, address: str) -> Done:
    return record, (Ask(SERVICE, Load(address)),)


def store(record: WriterRecord, address: str, value: int) -> Done:
    return record, (Ask(SERVICE, Store(address, value)),)


def swap(record: WriterRecord, address: str, expected: int, value: int) -> Done:
    return record, (Ask(SERVICE, CompareAndSwap(address, expected, value)),)


def own_state(record: WriterRecord) -> str:
    return state_of("write", record.own)


# -- step 1 ---------------------------------------------------------------------------------------------------------


def look_for_cursor(record: WriterRecord, event: Write, now_ns: int) -> Done:
    return load(replace(record, payload=event.payload), own_state(record))


def look_further(record: WriterRecord, event: Event, now_ns: int) -> Done:
    record = replace(record, own=record.own + 1)
    return load(record, own_state(record))


def take(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    word = token(record.slot, record.incarnation, event.time_ns)
    return swap(replace(record, token=word), own_state(record), FREE, word)


def take_reclaimed(record: WriterRecord, event: Swapped, now_ns: int) -> Done:
    word = token(record.slot, record.incarnation, record.seen_ns)
    return swap(replace(record, token=word), own_state(record), FREE, word)


def ask_lock(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    """Of the owner of the write cursor just seen."""
    return load(replace(record, seen=event.value, seen_ns=event.time_ns), lock_of(slot_in(event.value)))


def ask_incarnation(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return load(record, incarnation_of(slot_in(record.seen)))


def reclaim_by_age(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return reclaim(replace(record, seen=event.value, seen_ns=event.time_ns), event, now_ns)


def reclaim(record: WriterRecord, event: Event, now_ns: int) -> Done:
    return swap(record, own_state(record), record.seen, FREE)


def clear_position(record: WriterRecord, event: Swapped, now_ns: int) -> Done:
    return store(record, position_of("write", record.own), NONE)


# -- steps 2 and 3 --------------------------------------------------------------------------------------------------


def load_read_head(record: WriterRecord, event: Event, now_ns: int) -> Done:
    return load(record, READ_HEAD)


def load_write_head(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return load(replace(record, read_head=event.value), WRITE_HEAD)


def look_at_readers(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return load(replace(record, write_head=event.value, other=0), state_of("read", 0))


def look_at_next_reader(record: WriterRecord, event: Event, now_ns: int) -> Done:
    record = replace(record, other=record.other + 1)
    return load(record, state_of("read", record.other))


def look_again(record: WriterRecord, event: Swapped, now_ns: int) -> Done:
    """Reclaimed, or changed meanwhile: what is there now decides."""
    return load(record, state_of("read", record.other))


def ask_position(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return load(replace(record, seen=event.value, seen_ns=event.time_ns), position_of("read", record.other))


def ask_reader_lock(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return load(record, lock_of(slot_in(record.seen)))


def reclaim_reader(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return swap(record, state_of("read", record.other), record.seen, FREE)


def give_back(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return swap(record, own_state(record), record.token, FREE)


# -- steps 4 to 8 ---------------------------------------------------------------------------------------------------


def ask_own(record: WriterRecord, event: Event, now_ns: int) -> Done:
    return load(record, own_state(record))


def set_position(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return store(record, position_of("write", record.own), record.write_head)


def move_head(record: WriterRecord, event: Loaded, now_ns: int) -> Done:
    return swap(record, WRITE_HEAD, record.write_head, record.end)


def store_size(record: WriterRecord, event: Swapped, now_ns: int) -> Done:
    return store(record, record.address(0), len(record.payload))


def store_checksum(record: WriterRecord, event: Stored, now_ns: int) -> Done:
    return store(record, record.address(CELL), checksum(record.write_head, record.payload))


def store_commit_low(record: WriterRecord, event: Stored, now_ns: int) -> Done:
    return store(record, record.address(2 * CELL), commit_word(record.write_head)[0])


def store_commit_high(record: WriterRecord, event: Stored, now_ns: int) -> Done:
    return store(record, record.address(3 * CELL), commit_word(record.write_head)[1])


def store_data(record: WriterRecord, event: Stored, now_ns: int) -> Done:
    return store(record, record.address(HEADER), cell(record.payload, 0))


def store_next_data(record: WriterRecord, event: Stored, now_ns: int) -> Done:
    record = replace(record, cell=record.cell + 1)
    return store(record, record.address(HEADER + record.cell * CELL), cell(record.payload, record.cell))


def release(record: WriterRecord, event: Stored, now_ns: int) -> Done:
    return swap(record, own_state(record), record.token, FREE)


# -- outcomes -------------------------------------------------------------------------------------------------------


def tell_written(record: WriterRecord, event: Swapped, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.WRITTEN, record.write_head)),)


def tell_full(record: WriterRecord, event: Swapped, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.FULL)),)


def tell_no_cursor(record: WriterRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.NO_CURSOR)),)


def tell_fenced(record: WriterRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.FENCED)),)


def tell_oversize(record: WriterRecord, event: Write, now_ns: int) -> Done:
    return record, (Tell(WriteDone(Outcome.OVERSIZE)),)


# fmt: off
ROWS = (
    #   on       from                    to                      do                   when                  clause
    Row(Write,   S.IDLE,                 S.OVERSIZE,             tell_oversize,       is_oversize,          "CR-01"),
    Row(Write,   S.IDLE,                 S.LOAD_CURSOR,          look_for_cursor,     None,                 "CR-02"),
    Row(Loaded,  S.LOAD_CURSOR,          S.TAKE_CURSOR,          take,                is_free,              "CR-02"),
    Row(Loaded,  S.LOAD_CURSOR,          S.RECLAIM_CURSOR,       reclaim_by_age,      is_old_by_age_alone,  "CR-06"),
    Row(Loaded,  S.LOAD_CURSOR,          S.LOAD_OWNER_LOCK,      ask_lock,            is_aged_cursor,       "CR-04"),
    Row(Loaded,  S.LOAD_CURSOR,          S.LOAD_CURSOR,          look_further,        has_another,          "CR-02"),
    Row(Loaded,  S.LOAD_CURSOR,          S.NO_CURSOR,            tell_no_cursor,      None,                 "CR-08"),
    Row(Loaded,  S.LOAD_OWNER_LOCK,      S.RECLAIM_CURSOR,       reclaim,             is_dead,              "CR-05"),
    Row(Loaded,  S.LOAD_OWNER_LOCK,      S.LOAD_OWNER_LIFE,      ask_incarnation,     None,                 "CR-05"),
    Row(Loaded,  S.LOAD_OWNER_LIFE,      S.RECLAIM_CURSOR,       reclaim,             is_reborn,            "CR-05"),
    Row(Loaded,  S.LOAD_OWNER_LIFE,      S.LOAD_CURSOR,          look_further,        has_another,          "CR-02"),
    Row(Loaded,  S.LOAD_OWNER_LIFE,      S.NO_CURSOR,            tell_no_cursor,      None,                 "CR-08"),
    Row(Swapped, S.RECLAIM_CURSOR,       S.TAKE_CURSOR,          take_reclaimed,      is_done,              "CR-07"),
    Row(Swapped, S.RECLAIM_CURSOR,       S.LOAD_CURSOR,          look_further,        has_another,          "CR-02"),
    Row(Swapped, S.RECLAIM_CURSOR,       S.NO_CURSOR,            tell_no_cursor,      None,                 "CR-08"),
    Row(Swapped, S.TAKE_CURSOR,          S.CLEAR_POSITION,       clear_position,      is_done,              "CR-03"),
    Row(Swapped, S.TAKE_CURSOR,          S.LOAD_CURSOR,          look_further,        has_another,          "CR-02"),
    Row(Swapped, S.TAKE_CURSOR,          S.NO_CURSOR,            tell_no_cursor,      None,                 "CR-08"),
    Row(Stored,  S.CLEAR_POSITION,       S.LOAD_READ_HEAD,       load_read_head,      None,                 "CR-09"),
    Row(Loaded,  S.LOAD_READ_HEAD,       S.LOAD_WRITE_HEAD,      load_write_head,     None,                 "CR-09"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.GIVE_BACK,            give_back,           has_no_room,          "CR-10"),
    Row(Loaded,  S.LOAD_WRITE_HEAD,      S.CHECK_CURSOR,         look_at_readers,     None,                 "CR-11"),
    Row(Loaded,  S.CHECK_CURSOR,         S.CHECK_CURSOR,         look_at_next_reader, is_free_and_more,     "CR-11"),
    Row(Loaded,  S.CHECK_CURSOR,         S.OWN_BEFORE_POSITION,  ask_own,             is_free,              "CR-15"),
    Row(Loaded,  S.CHECK_CURSOR,         S.CHECK_POSITION,       ask_position,        None,                 "CR-11"),
    Row(Loaded,  S.CHECK_POSITION,       S.CHECK_CURSOR,         look_at_next_reader, leaves_room_and_more, "CR-11"),
    Row(Loaded,  S.CHECK_POSITION,       S.OWN_BEFORE_POSITION,  ask_own,             leaves_room,          "CR-15"),
    Row(Loaded,  S.CHECK_POSITION,       S.GIVE_BACK,            give_back,           is_young,             "CR-12"),
    Row(Loaded,  S.CHECK_POSITION,       S.RECLAIM_READER,       reclaim_reader,      goes_by_age_alone,    "CR-06"),
    Row(Loaded,  S.CHECK_POSITION,       S.CHECK_OWNER_LOCK,     ask_reader_lock,     None,                 "CR-13"),
    Row(Loaded,  S.CHECK_OWNER_LOCK,     S.RECLAIM_READER,       reclaim_reader,      is_dead,              "CR-13"),
    Row(Loaded,  S.CHECK_OWNER_LOCK,     S.CHECK_OWNER_LIFE,     ask_incarnation,     None,                 "CR-13"),
    Row(Loaded,  S.CHECK_OWNER_LIFE,     S.RECLAIM_READER,       reclaim_reader,      is_reborn,            "CR-13"),
    Row(Loaded,  S.CHECK_OWNER_LIFE,     S.GIVE_BACK,            give_back,           None,                 "CR-12"),
    Row(Swapped, S.RECLAIM_READER,       S.CHECK_CURSOR,         look_again,          None,                 "CR-14"),
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
    Row(Stored,  S.STORE_COMMIT_HIGH,    S.STORE_DATA,           store_data,          has_data,             "CR-21"),
    Row(Stored,  S.STORE_COMMIT_HIGH,    S.RELEASE,              release,             None,                 "CR-22"),
    Row(Stored,  S.STORE_DATA,           S.STORE_DATA,           store_next_data,     has_more_data,        "CR-21"),
    Row(Stored,  S.STORE_DATA,           S.RELEASE,              release,             None,                 "CR-22"),
    Row(Swapped, S.RELEASE,              S.WRITTEN,              tell_written,        is_done,              "CR-22"),
    Row(Swapped, S.RELEASE,              S.FENCED,               tell_fenced,         None,                 "CR-16"),
    Refuse((Write,),           (*LOADS, *STORES, *SWAPS),  "CR-23"),
    Refuse((Loaded,),          (S.IDLE, *STORES, *SWAPS),  "CR-24"),
    Refuse((Stored,),          (S.IDLE, *LOADS, *SWAPS),   "CR-24"),
    Refuse((Swapped,),         (S.IDLE, *LOADS, *STORES),  "CR-24"),
)
# fmt: on

WRITER = Fsm(
    "writer",
    protocol="cursor_recovery",
    record=WriterRecord,
    states=WriterStatus,
    initial=S.IDLE,
    final=FINAL,
    rows=ROWS,
    invariants=(
        Invariant("owns-what-it-writes-through", "CR-31", owns_what_it_writes_through),
        Invariant("stays-within-a-lap", "CR-32", stays_within_a_lap),
    ),
)
