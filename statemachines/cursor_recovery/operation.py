"""Operation: what a read and a write have in common: to take a cursor and to free stale ones, one access a state.

An operation takes a cursor of its own pool (step 1 of the source) and looks at every cursor of the other one (step 3).
Wherever it meets a cursor that is aged it asks for the owner: the lock of its slot, then the incarnation.  A stale
cursor is freed by a swap that expects the very word that was judged; what a dead reader had taken is counted first.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.memory import (
    FREE,
    INCARNATIONS,
    LOST,
    NONE,
    READ_HEAD,
    SERVICE,
    SLOTS,
    WRITE_HEAD,
    CompareAndSwap,
    CopyIn,
    CopyOut,
    Load,
    Loaded,
    Queue,
    Store,
    Swapped,
    incarnation_in,
    incarnation_of,
    is_aged,
    lock_of,
    messages_of,
    position_of,
    slot_in,
    state_of,
    token,
)
from statemachines.kernel import Ask, ConfigurationError, Effects, Event, Row
from statemachines.kernel.row import AnyRow

READ, WRITE = "read", "write"


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One read or write by the process that holds `slot` in its life `incarnation`.

    `own`: the cursor of its pool that it looks at, or has; `token`: what it put there; `other`: the cursor of the other
    pool that it looks at; `seen`: the state word that it judges, loaded at `seen_ns`; `recovers`: that is one of the
    other pool; `taken`, `messages_taken`: position and messages of a dead reader's cursor; `read_head`, `write_head`:
    as this attempt loaded them.
    """

    pool: ClassVar[str]
    other_pool: ClassVar[str]

    queue: Queue
    slot: int
    incarnation: int
    own: int = 0
    token: int = FREE
    other: int = 0
    seen: int = FREE
    seen_ns: int = 0
    recovers: bool = False
    taken: int = NONE
    messages_taken: int = 0
    read_head: int = 0
    write_head: int = 0

    @property
    def judged_cursor(self) -> tuple[str, int]:
        """The pool and the number of the cursor that is judged."""
        return (self.other_pool, self.other) if self.recovers else (self.pool, self.own)

    @property
    def has_more_others(self) -> bool:
        """There is another cursor of the other pool to look at."""
        return self.other + 1 < (self.queue.write_cursors if self.pool == READ else self.queue.read_cursors)


def check_owner(slot: int, incarnation: int) -> None:
    """Raises `ConfigurationError` where a state word has no room for them."""
    if not 0 <= slot < SLOTS:
        raise ConfigurationError("slot", slot, f"0 to {SLOTS - 1}: a cursor's word has no more room for it")
    if incarnation < 1:
        raise ConfigurationError("incarnation", incarnation, "at least 1: raise the slot's word after locking it")


T = TypeVar("T", bound=Operation)


def recovery_rows(states: Any, no_cursor: Any) -> tuple[AnyRow, ...]:
    """The rows of every operation that take a cursor of its pool and free stale ones; `no_cursor` tells the outcome."""
    s = states
    # fmt: off
    return (
        #   on       from               to                 do                  when             clause
        Row(Loaded,  s.LOAD_CURSOR,     s.TAKE_CURSOR,     take,               is_free,         "CR-02"),
        Row(Loaded,  s.LOAD_CURSOR,     s.LOST_POSITION,   ask_lost_position,  is_old_reader,   "CR-06"),
        Row(Loaded,  s.LOAD_CURSOR,     s.RECLAIM,         reclaim_seen,       is_old,          "CR-06"),
        Row(Loaded,  s.LOAD_CURSOR,     s.LOAD_LOCK,       ask_lock,           is_aged_cursor,  "CR-04"),
        Row(Loaded,  s.LOAD_CURSOR,     s.LOAD_CURSOR,     look_further,       has_another,     "CR-02"),
        Row(Loaded,  s.LOAD_CURSOR,     s.NO_CURSOR,       no_cursor,          None,            "CR-08"),
        Row(Loaded,  s.LOAD_LOCK,       s.LOST_POSITION,   load_lost_position, is_dead_reader,  "CR-05"),
        Row(Loaded,  s.LOAD_LOCK,       s.RECLAIM,         reclaim,            is_dead,         "CR-05"),
        Row(Loaded,  s.LOAD_LOCK,       s.LOAD_LIFE,       ask_life,           None,            "CR-05"),
        Row(Loaded,  s.LOAD_LIFE,       s.LOST_POSITION,   load_lost_position, is_reborn_reader, "CR-05"),
        Row(Loaded,  s.LOAD_LIFE,       s.RECLAIM,         reclaim,            is_reborn,       "CR-05"),
        Row(Loaded,  s.LOAD_LIFE,       s.GIVE_BACK,       give_back,          is_in_the_way,   "CR-12"),
        Row(Loaded,  s.LOAD_LIFE,       s.LOAD_CURSOR,     look_further,       has_another,     "CR-02"),
        Row(Loaded,  s.LOAD_LIFE,       s.NO_CURSOR,       no_cursor,          None,            "CR-08"),
        Row(Loaded,  s.LOST_POSITION,   s.RECLAIM,         reclaim,            is_nowhere,      "CR-40"),
        Row(Loaded,  s.LOST_POSITION,   s.LOST_MESSAGES,   load_lost_messages, None,            "CR-40"),
        Row(Loaded,  s.LOST_MESSAGES,   s.LOST_HEAD,       load_lost_head,     None,            "CR-40"),
        Row(Loaded,  s.LOST_HEAD,       s.RECLAIM,         reclaim,            is_not_taken,    "CR-40"),
        Row(Loaded,  s.LOST_HEAD,       s.LOST_COUNT,      load_lost,          None,            "CR-40"),
        Row(Loaded,  s.LOST_COUNT,      s.LOST_ADD,        add_lost,           None,            "CR-40"),
        Row(Swapped, s.LOST_ADD,        s.RECLAIM,         reclaim,            is_done,         "CR-40"),
        Row(Swapped, s.LOST_ADD,        s.LOST_COUNT,      load_lost,          None,            "CR-40"),
        Row(Swapped, s.RECLAIM,         s.CHECK_CURSOR,    look_again,         is_in_the_way,   "CR-14"),
        Row(Swapped, s.RECLAIM,         s.TAKE_CURSOR,     take_reclaimed,     is_done,         "CR-07"),
        Row(Swapped, s.RECLAIM,         s.LOAD_CURSOR,     look_further,       has_another,     "CR-02"),
        Row(Swapped, s.RECLAIM,         s.NO_CURSOR,       no_cursor,          None,            "CR-08"),
        Row(Swapped, s.TAKE_CURSOR,     s.CLEAR_POSITION,  clear_position,     is_done,         "CR-03"),
        Row(Swapped, s.TAKE_CURSOR,     s.LOAD_CURSOR,     look_further,       has_another,     "CR-02"),
        Row(Swapped, s.TAKE_CURSOR,     s.NO_CURSOR,       no_cursor,          None,            "CR-08"),
    )
    # fmt: on


# -- accesses -------------------------------------------------------------------------------------------------------


def load(record: T, address: str) -> tuple[T, Effects]:
    return record, (Ask(SERVICE, Load(address)),)


def store(record: T, address: str, value: int) -> tuple[T, Effects]:
    return record, (Ask(SERVICE, Store(address, value)),)


def swap(record: T, address: str, expected: int, value: int) -> tuple[T, Effects]:
    return record, (Ask(SERVICE, CompareAndSwap(address, expected, value)),)


def copy_in(record: T, position: int, data: bytes) -> tuple[T, Effects]:
    return record, (Ask(SERVICE, CopyIn(position, data)),)


def copy_out(record: T, position: int, size: int) -> tuple[T, Effects]:
    return record, (Ask(SERVICE, CopyOut(position, size)),)


def own_state(record: Operation) -> str:
    return state_of(record.pool, record.own)


# -- step 1 ---------------------------------------------------------------------------------------------------------


def look_further(record: T, event: Event, now_ns: int) -> tuple[T, Effects]:
    record = replace(record, own=record.own + 1)
    return load(record, own_state(record))


def take(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    word = token(record.slot, record.incarnation, event.time_ns)
    return swap(replace(record, token=word), own_state(record), FREE, word)


def take_reclaimed(record: T, event: Swapped, now_ns: int) -> tuple[T, Effects]:
    word = token(record.slot, record.incarnation, record.seen_ns)
    return swap(replace(record, token=word), own_state(record), FREE, word)


def clear_position(record: T, event: Swapped, now_ns: int) -> tuple[T, Effects]:
    return store(record, position_of(record.pool, record.own), NONE)


# -- step 2 ---------------------------------------------------------------------------------------------------------


def load_read_head(record: T, event: Event, now_ns: int) -> tuple[T, Effects]:
    return load(record, READ_HEAD)


def load_write_head(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return load(replace(record, read_head=event.value), WRITE_HEAD)


# -- step 3 ---------------------------------------------------------------------------------------------------------


def look_at_next(record: T, event: Event, now_ns: int) -> tuple[T, Effects]:
    record = replace(record, other=record.other + 1)
    return load(record, state_of(record.other_pool, record.other))


def look_again(record: T, event: Swapped, now_ns: int) -> tuple[T, Effects]:
    """Reclaimed, or changed meanwhile: what is there now decides."""
    return load(record, state_of(record.other_pool, record.other))


def ask_position(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    record = replace(record, seen=event.value, seen_ns=event.time_ns, recovers=True)
    return load(record, position_of(record.other_pool, record.other))


def ask_own(record: T, event: Event, now_ns: int) -> tuple[T, Effects]:
    return load(record, own_state(record))


def give_back(record: T, event: Event, now_ns: int) -> tuple[T, Effects]:
    return swap(record, own_state(record), record.token, FREE)


# -- a cursor that is aged ------------------------------------------------------------------------------------------


def note_own_word(record: T, event: Loaded) -> T:
    return replace(record, seen=event.value, seen_ns=event.time_ns, recovers=False)


def ask_lock(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    """Of the owner of the cursor of our own pool just seen."""
    return load_lock(note_own_word(record, event), event, now_ns)


def load_lock(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return load(record, lock_of(slot_in(record.seen)))


def ask_life(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return load(record, incarnation_of(slot_in(record.seen)))


def reclaim_seen(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return reclaim(note_own_word(record, event), event, now_ns)


def ask_lost_position(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return load_lost_position(note_own_word(record, event), event, now_ns)


def load_lost_position(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return load(record, position_of(*record.judged_cursor))


def load_lost_messages(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return load(replace(record, taken=event.value), messages_of(record.judged_cursor[1]))


def load_lost_head(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return load(replace(record, messages_taken=event.value), READ_HEAD)


def load_lost(record: T, event: Event, now_ns: int) -> tuple[T, Effects]:
    return load(record, LOST)


def add_lost(record: T, event: Loaded, now_ns: int) -> tuple[T, Effects]:
    return swap(record, LOST, event.value, event.value + record.messages_taken)


def reclaim(record: T, event: Event, now_ns: int) -> tuple[T, Effects]:
    return swap(record, state_of(*record.judged_cursor), record.seen, FREE)


# -- guards ---------------------------------------------------------------------------------------------------------


def is_outrun(record: Operation, event: Loaded) -> bool:
    """Between the loads of the heads the queue has gone on by more than all it holds."""
    return event.value > record.read_head + record.queue.capacity


def is_free(record: Operation, event: Loaded) -> bool:
    return event.value == FREE


def is_free_and_more(record: Operation, event: Loaded) -> bool:
    return event.value == FREE and record.has_more_others


def is_aged_cursor(record: Operation, event: Loaded) -> bool:
    return is_aged(event.value, record.queue.threshold_ns, event.time_ns)


def is_old(record: Operation, event: Loaded) -> bool:
    """Aged, where age alone decides."""
    return record.queue.threshold_only and is_aged_cursor(record, event)


def is_old_reader(record: Operation, event: Loaded) -> bool:
    return record.pool == READ and is_old(record, event)


def is_young(record: Operation, event: Loaded) -> bool:
    """The cursor whose position is told: it is not aged."""
    return not is_aged(record.seen, record.queue.threshold_ns, record.seen_ns)


def goes_by_age_alone(record: Operation, event: Loaded) -> bool:
    return record.queue.threshold_only


def has_another(record: Operation, event: Event) -> bool:
    return record.own + 1 < (record.queue.read_cursors if record.pool == READ else record.queue.write_cursors)


def is_dead(record: Operation, event: Loaded) -> bool:
    return event.value == 0


def is_dead_reader(record: Operation, event: Loaded) -> bool:
    return record.judged_cursor[0] == READ and is_dead(record, event)


def is_reborn(record: Operation, event: Loaded) -> bool:
    return event.value % INCARNATIONS != incarnation_in(record.seen)


def is_reborn_reader(record: Operation, event: Loaded) -> bool:
    return record.judged_cursor[0] == READ and is_reborn(record, event)


def is_in_the_way(record: Operation, event: Event) -> bool:
    """What is judged is a cursor of the other pool."""
    return record.recovers


def is_nowhere(record: Operation, event: Loaded) -> bool:
    return event.value == NONE


def is_not_taken(record: Operation, event: Loaded) -> bool:
    """The read head, which the dead cannot move any more, is not beyond its position."""
    return event.value <= record.taken


def is_done(record: Operation, event: Swapped) -> bool:
    return event.done


def is_ours(record: Operation, event: Loaded) -> bool:
    return event.value == record.token
