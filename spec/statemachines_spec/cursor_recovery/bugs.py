"""Bugs: mistakes that can be planted in the operations; each is found by exploring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from statemachines.cursor_recovery import operation, reader, writer
from statemachines.cursor_recovery.block import checksum, length_of
from statemachines.cursor_recovery.memory import (
    CELL,
    LOST,
    NONE,
    READ_HEAD,
    Loaded,
    token,
)
from statemachines.cursor_recovery.reader import READER, ReaderRecord, ReaderStatus
from statemachines.cursor_recovery.writer import WRITER, QueueWriterRecord, QueueWriterStatus
from statemachines.kernel import Event, Fsm, Row
from statemachines.kernel.row import AnyRow
from statemachines_spec.bug import Apply, Bug, action_of, combine, redeclare, replace_call

W, R = QueueWriterStatus, ReaderStatus


def always(record: Any, event: Event) -> bool:
    return True


def never(record: Any, event: Event) -> bool:
    return False


def guard(fsm: Fsm[Any], action: str, state: Any, when: Callable[[Any, Any], bool]) -> Apply:
    """The row of `state` that does `action` asks this."""
    return row(fsm, action, state, lambda one: Row(one.on, one.source, one.to, one.do, when, one.clause))


def row(fsm: Fsm[Any], action: str, state: Any, change: Callable[[Row], Row]) -> Apply:
    """The row of `state` that does `action` is another."""

    def changed(one: AnyRow) -> list[AnyRow]:
        if not isinstance(one, Row) or action_of(one) != action:
            return [one]
        sources = one.source if isinstance(one.source, tuple) else (one.source,)
        return [change(one)] if state in sources else [one]

    return lambda stack: redeclare(stack, fsm, changed)


def does(fsm: Fsm[Any], action: str, state: Any, do: Callable[..., Any], to: Any = None) -> Apply:
    """That row does something else, and leads elsewhere."""
    return row(fsm, action, state, lambda one: Row(one.on, one.source, to or one.to, do, one.when, one.clause))


# -- what is done instead -------------------------------------------------------------------------------------------


def give_nothing_back(record: Any, event: Event, now_ns: int) -> Any:
    """A swap that changes nothing, in place of the one that frees the cursor."""
    return operation.swap(record, operation.own_state(record), record.token, record.token)


def swap_to_the_same(record: Any, event: Event, now_ns: int) -> Any:
    """A scan that reached the write head moves nothing."""
    return operation.swap(record, READ_HEAD, record.read_head, record.read_head)


def a_cell_further(record: ReaderRecord, event: Event, now_ns: int) -> Any:
    return reader.skip_to_block(replace(record, at=record.at + 2 * CELL, has_looked=True), event, now_ns)


def give_up_slice(record: ReaderRecord, event: Event, now_ns: int) -> Any:
    return operation.give_back(record, event, now_ns)


def take_over(record: Any, event: Loaded, now_ns: int) -> Any:
    """The cursor is taken whatever it holds."""
    word = token(record.slot, record.incarnation, event.time_ns)
    return operation.swap(replace(record, token=word), operation.own_state(record), event.value, word)


def one_cell_more(record: QueueWriterRecord, event: Loaded) -> bool:
    return event.value + length_of(len(record.data)) > record.read_head + record.queue.capacity + 4


def a_lap_and_a_bit(record: QueueWriterRecord, event: Loaded) -> bool:
    return event.value == NONE or record.write_head <= event.value + record.queue.capacity


def a_lap_and_more(record: QueueWriterRecord, event: Loaded) -> bool:
    return a_lap_and_a_bit(record, event) and record.has_more_others


def is_not_behind(record: ReaderRecord, event: Loaded) -> bool:
    return event.value == NONE or event.value >= record.limit


def is_not_behind_and_more(record: ReaderRecord, event: Loaded) -> bool:
    return is_not_behind(record, event) and record.has_more_others


def add_one(record: Any, event: Loaded, now_ns: int) -> Any:
    return operation.swap(record, LOST, event.value, event.value + 1)


def sum_without_position(position: int, size: int, data: bytes) -> int:
    return checksum(0, size, data)


_MORE = "the room that is left is reckoned one cell too large"

BUGS = (
    Bug("torn-data", "the checksum is not looked at", "CR-50", "the check on the copy",
        combine(guard(READER, "release", R.COPY_DATA, always), guard(READER, "skip_to_block", R.SCAN_DATA, always))),
    Bug("marks-without-position", "mark and checksum do not say where the block is, so an earlier lap's counts again",
        "CR-44", "the commit word and the checksum",
        combine(*(replace_call(one, "commit_word", lambda position: (7, 7)) for one in (reader, writer)),
             *(replace_call(one, "checksum", sum_without_position) for one in (reader, writer)))),
    Bug("one-look", "a reader that finds no block scans without a look at writers behind the write head", "CR-45",
        "the second look", guard(READER, "look_at_all_writers", R.LOAD_COMMIT_LOW, never)),
    Bug("scan-moves-nothing", "a scan that reaches the write head leaves the read head where it is", "CR-46",
        "the skip to the write head", does(READER, "skip_to_head", R.LOAD_COMMIT_LOW, swap_to_the_same)),
    Bug("scan-goes-too-far", "a scan that finds a block goes to the write head all the same", "CR-46",
        "the skip to the block", does(READER, "skip_to_block", R.SCAN_DATA, reader.skip_to_head)),
    Bug("slice-passes-a-cell", "the read head goes a cell further than a slice was looked through", "CR-59",
        "the end of the slice", does(READER, "skip_slice", R.LOAD_COMMIT_LOW, a_cell_further)),
    Bug("slice-moves-nothing", "a read that has looked through its slice leaves the read head where it is", "CR-59",
        "the skip of the slice", does(READER, "skip_slice", R.LOAD_COMMIT_LOW, give_up_slice, R.GIVE_BACK)),
    Bug("stale-is-left-to-write", "a writer does not free a stale cursor of its own pool", "CR-07",
        "the look at age", guard(WRITER, "ask_lock", W.LOAD_CURSOR, never)),
    Bug("stale-is-left-to-read", "a reader does not free a stale cursor of its own pool", "CR-07",
        "the look at age", guard(READER, "ask_lock", R.LOAD_CURSOR, never)),
    Bug("stale-reader-stays", "a writer waits for ever for a read cursor that is stale", "CR-13",
        "the verdict on the owner", guard(WRITER, "give_back", W.CHECK_POSITION, always)),
    Bug("stale-writer-stays", "a reader waits for ever for a write cursor that is stale", "CR-13",
        "the verdict on the owner", guard(READER, "give_back", R.CHECK_POSITION, always)),
    Bug("earlier-life-lives", "who holds the slot by now is taken for the owner", "CR-05", "the incarnation",
        combine(guard(WRITER, "reclaim", W.LOAD_LIFE, never), guard(WRITER, "load_lost_position", W.LOAD_LIFE, never),
             guard(READER, "reclaim", R.LOAD_LIFE, never), guard(READER, "load_lost_position", R.LOAD_LIFE, never))),
    Bug("aged-is-dead", "an aged cursor is taken for stale, whoever lives", "CR-05", "the lock",
        combine(guard(WRITER, "reclaim", W.LOAD_LOCK, always), guard(READER, "reclaim", R.LOAD_LOCK, always),
             guard(WRITER, "load_lost_position", W.LOAD_LOCK, operation.is_dead_reader))),
    Bug("cursor-taken-anyway", "a cursor is taken whatever it holds", "CR-02", "the look whether it is free",
        combine(guard(WRITER, "take", W.LOAD_CURSOR, always), does(WRITER, "take", W.LOAD_CURSOR, take_over))),
    Bug("write-head-taken", "a writer goes on although another moved the head", "CR-19", "the result of the swap",
        guard(WRITER, "store_size", W.MOVE_HEAD, always)),
    Bug("read-head-taken", "a reader goes on although another moved the head", "CR-19", "the result of the swap",
        guard(READER, "take_block", R.MOVE_HEAD, always)),
    Bug("a-cell-too-many", _MORE, "CR-10", "the room",
        guard(WRITER, "give_back", W.LOAD_WRITE_HEAD, one_cell_more)),
    Bug("reader-overrun", "a read cursor is in the way only if the block begins a lap ahead of it", "CR-11",
        "where the block ends",
        combine(guard(WRITER, "look_at_next", W.CHECK_POSITION, a_lap_and_more),
             guard(WRITER, "ask_own", W.CHECK_POSITION, a_lap_and_a_bit))),
    Bug("writer-at-the-head", "a writer exactly at the read head is not in the way", "CR-42", "at or behind",
        combine(guard(READER, "look_at_next", R.CHECK_POSITION, is_not_behind_and_more),
             guard(READER, "load_commit_low", R.CHECK_POSITION, is_not_behind))),
    Bug("full-keeps-its-cursor", "a writer that finds no room keeps its cursor", "CR-10", "what is given back",
        does(WRITER, "give_back", W.LOAD_WRITE_HEAD, give_nothing_back)),
    Bug("empty-keeps-its-cursor", "a reader that finds nothing keeps its cursor", "CR-41", "what is given back",
        does(READER, "give_back", R.LOAD_WRITE_HEAD, give_nothing_back)),
    Bug("released-before-data", "a writer gives its cursor back before the data is there", "CR-21", "the data",
        guard(WRITER, "copy_data", W.STORE_COMMIT_HIGH, never)),
    Bug("no-position-of-writers", "a writer moves the head without its position in the cursor", "CR-17",
        "the position",
        does(WRITER, "set_position", W.OWN_BEFORE_POSITION, writer.move_head, W.MOVE_HEAD)),
    Bug("no-position-of-readers", "a reader moves the head without its position in the cursor", "CR-47",
        "the position",
        does(READER, "set_messages", R.OWN_BEFORE_POSITION, reader.move_head, R.MOVE_HEAD)),
    Bug("lost-forgotten", "what a dead reader had taken is not counted", "CR-40", "the count",
        guard(WRITER, "reclaim", W.LOST_HEAD, always)),
    Bug("lost-counted-once", "of all the messages that a dead reader had taken one is counted", "CR-40", "how many",
        combine(does(WRITER, "add_lost", W.LOST_COUNT, add_one), does(READER, "add_lost", R.LOST_COUNT, add_one))),
)  # fmt: skip
"""Each with a sentence of its own."""
