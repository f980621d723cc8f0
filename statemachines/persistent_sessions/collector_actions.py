"""What an event makes of a Collector: the guards and actions of its table (`collector`)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, Tell
from statemachines.persistent_sessions.collector_record import CollectorRecord, Done, MessageLost, RoundEnded
from statemachines.persistent_sessions.collector_request import (
    Deleted,
    DeleteMessage,
    DeleteRow,
    MessagesRead,
    ReadMessages,
    ReadRows,
    RowsRead,
)
from statemachines.persistent_sessions.collector_rules import message_garbage, row_garbage
from statemachines.persistent_sessions.request import DATABASE


def garbage_rows(record: CollectorRecord, event: RowsRead) -> tuple[DeleteRow, ...]:
    """What of the page goes, in its order: of a pair the undelivered row stands first."""
    found = (row_garbage(row, record.graces) for row in event.rows)
    return tuple(one for one in found if one is not None)


def garbage_messages(record: CollectorRecord, event: MessagesRead) -> tuple[DeleteMessage, ...]:
    found = (message_garbage(one, record.graces) for one in event.messages)
    return tuple(one for one in found if one is not None)


# -- guards ---------------------------------------------------------------------------------------------------------


def has_garbage(record: CollectorRecord, event: RowsRead) -> bool:
    return bool(garbage_rows(record, event))


def has_more(record: CollectorRecord, event: RowsRead) -> bool:
    """A page that is not empty: there may be another behind it."""
    return bool(event.rows)


def has_unneeded(record: CollectorRecord, event: MessagesRead) -> bool:
    return bool(garbage_messages(record, event))


def has_more_messages(record: CollectorRecord, event: MessagesRead) -> bool:
    return bool(event.messages)


def has_more_to_do(record: CollectorRecord, event: Deleted) -> bool:
    return len(record.todo) > 1


# -- actions --------------------------------------------------------------------------------------------------------


def read(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, ReadRows(record.after, record.graces.page)),)


def scan_messages(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, ReadMessages(record.last, record.graces.page)),)


def delete_first(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, record.todo[0]),)


def begin_round(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    return read(replace(record, rows=0, messages=0))


def delete_rows(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    return delete_first(replace(record, after=event.rows[-1].key, todo=garbage_rows(record, event)))


def read_on(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    return read(replace(record, after=event.rows[-1].key))


def scan(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    """The next round begins with the first row again."""
    return scan_messages(replace(record, after=None))


def counted(record: CollectorRecord, event: Deleted) -> tuple[CollectorRecord, Effects]:
    """The first is done with, whether it was there or not; what a client will miss is told."""
    first, rest = record.todo[0], record.todo[1:]
    if isinstance(first, DeleteRow):
        return replace(record, todo=rest, rows=record.rows + event.done), ()
    lost = (Tell(MessageLost(first.message, event.lost)),) if event.lost else ()
    return replace(record, todo=rest, messages=record.messages + event.done), lost


def count_and_delete(record: CollectorRecord, event: Deleted, now_ns: int) -> Done:
    return delete_first(counted(record, event)[0])


def count_and_read(record: CollectorRecord, event: Deleted, now_ns: int) -> Done:
    return read(counted(record, event)[0])


def remove_messages(record: CollectorRecord, event: MessagesRead, now_ns: int) -> Done:
    return delete_first(replace(record, last=event.messages[-1].message, todo=garbage_messages(record, event)))


def scan_on(record: CollectorRecord, event: MessagesRead, now_ns: int) -> Done:
    return scan_messages(replace(record, last=event.messages[-1].message))


def count_and_remove(record: CollectorRecord, event: Deleted, now_ns: int) -> Done:
    record, told = counted(record, event)
    record, effects = delete_first(record)
    return record, (*told, *effects)


def count_and_scan(record: CollectorRecord, event: Deleted, now_ns: int) -> Done:
    record, told = counted(record, event)
    record, effects = scan_messages(record)
    return record, (*told, *effects)


def end_round(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    return replace(record, last=""), (Tell(RoundEnded(record.rows, record.messages, True)),)


def break_off(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    """What is left waits for the next round, which begins where this one was."""
    return replace(record, todo=()), (Tell(RoundEnded(record.rows, record.messages, False)),)
