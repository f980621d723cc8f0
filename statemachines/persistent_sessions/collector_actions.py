"""What an event makes of a Collector: the guards and actions of its table (`collector`).

Rules of the collector: what is garbage, and on what its deletion depends (source: "Garbage collection of
persistent data").
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, Event, Tell
from statemachines.persistent_sessions.collector_record import CollectorRecord, Done, MessageLost, RoundEnded
from statemachines.persistent_sessions.collector_request import (
    ClientForgotten,
    ClientsRead,
    DeletePage,
    ForgetClient,
    MessageDeletion,
    MessagesRead,
    Only,
    PageDeleted,
    ReadClients,
    ReadMessages,
    ReadRows,
    RowDeletion,
    RowsRead,
    StoredMessage,
    StoredRow,
    Tag,
)
from statemachines.persistent_sessions.graces import Graces
from statemachines.persistent_sessions.request import DATABASE


def row_garbage(row: StoredRow, graces: Graces) -> RowDeletion | None:
    """How the row is deleted; None: it is needed, or may be.

    That a session is abandoned, a row delivered or taken, or old, stays so: nothing is asked again.
    """
    match row.key.tag:
        case Tag.UNDELIVERED:
            is_due, only = not row.waits, Only.ALWAYS
        case Tag.DELIVERED:
            is_due = row.abandoned or row.paired or row.age_ms >= graces.message_ms
            only = Only.ALWAYS if row.abandoned else Only.UNPAIRED
        case Tag.MARKER:
            is_due, only = row.abandoned or row.age_ms >= graces.marker_ms, Only.ALWAYS
        case Tag.ABANDONED:
            is_due = row.alone and row.age_ms >= graces.abandon_ms
            only = Only.ALONE
    return RowDeletion(row.key, only) if is_due else None


def message_garbage(one: StoredMessage, graces: Graces) -> MessageDeletion | None:
    """How the message is deleted; None: it is needed, or may be."""
    if one.held:
        return None
    if one.age_ms >= graces.retention_ms:
        return MessageDeletion(one.message, Only.UNHELD)
    if one.age_ms < graces.message_ms or (one.referenced and not one.over):
        return None
    return MessageDeletion(one.message, Only.OVER if one.over else Only.UNREFERENCED)


def clients_over(record: CollectorRecord, event: ClientsRead) -> tuple[ForgetClient, ...]:
    """Who of the page is forgotten."""
    return tuple(ForgetClient(one.client, record.graces.dead_ms) for one in event.clients if one.over)


def garbage_rows(record: CollectorRecord, event: RowsRead) -> tuple[RowDeletion, ...]:
    """What of the page goes, in its order: of a pair the undelivered row stands first."""
    found = (row_garbage(row, record.graces) for row in event.rows)
    return tuple(one for one in found if one is not None)


def garbage_messages(record: CollectorRecord, event: MessagesRead) -> tuple[MessageDeletion, ...]:
    found = (message_garbage(one, record.graces) for one in event.messages)
    return tuple(one for one in found if one is not None)


# -- guards ---------------------------------------------------------------------------------------------------------


def has_clients_over(record: CollectorRecord, event: ClientsRead) -> bool:
    return bool(clients_over(record, event))


def has_more_clients(record: CollectorRecord, event: ClientsRead) -> bool:
    """A page that is not empty: there may be another behind it."""
    return bool(event.clients)


def has_garbage(record: CollectorRecord, event: RowsRead) -> bool:
    return any(row_garbage(row, record.graces) is not None for row in event.rows)


def has_more(record: CollectorRecord, event: RowsRead) -> bool:
    """A page that is not empty: there may be another behind it."""
    return bool(event.rows)


def has_unneeded(record: CollectorRecord, event: MessagesRead) -> bool:
    return bool(garbage_messages(record, event))


def has_more_messages(record: CollectorRecord, event: MessagesRead) -> bool:
    return bool(event.messages)


def has_more_to_do(record: CollectorRecord, event: ClientForgotten) -> bool:
    return len(record.todo) > 1


# -- actions --------------------------------------------------------------------------------------------------------


def find(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, ReadClients(record.seen, record.graces.page, record.graces.dead_ms)),)


def read(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, ReadRows(record.after, record.graces.page, waiting=False)),)


def scan_messages(record: CollectorRecord) -> Done:
    """No message goes that is younger than the grace of messages."""
    return record, (Ask(DATABASE, ReadMessages(record.last, record.graces.page, record.graces.message_ms)),)


def forget_first(record: CollectorRecord) -> Done:
    return record, (Ask(DATABASE, record.todo[0]),)


def begin_round(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    return find(replace(record, clients=0, rows=0, messages=0))


def forget_clients(record: CollectorRecord, event: ClientsRead, now_ns: int) -> Done:
    return forget_first(replace(record, seen=event.clients[-1].client, todo=clients_over(record, event)))


def find_on(record: CollectorRecord, event: ClientsRead, now_ns: int) -> Done:
    return find(replace(record, seen=event.clients[-1].client))


def read_first(record: CollectorRecord, event: ClientsRead, now_ns: int) -> Done:
    """The next round begins with the first client again; rows of those that were forgotten go in this one."""
    return read(replace(record, seen=""))


def delete_rows(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    asked = DeletePage(rows=garbage_rows(record, event))
    return replace(record, after=event.rows[-1].key), (Ask(DATABASE, asked),)


def read_on(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    return read(replace(record, after=event.rows[-1].key))


def scan(record: CollectorRecord, event: RowsRead, now_ns: int) -> Done:
    """The next round begins with the first row again."""
    return scan_messages(replace(record, after=None))


def count_forgotten(record: CollectorRecord, event: ClientForgotten) -> CollectorRecord:
    """The first is done with, whether it was there or not."""
    return replace(record, todo=record.todo[1:], clients=record.clients + event.done)


def count_and_forget(record: CollectorRecord, event: ClientForgotten, now_ns: int) -> Done:
    return forget_first(count_forgotten(record, event))


def count_and_find(record: CollectorRecord, event: ClientForgotten, now_ns: int) -> Done:
    return find(count_forgotten(record, event))


def count_and_read(record: CollectorRecord, event: PageDeleted, now_ns: int) -> Done:
    return read(replace(record, rows=record.rows + event.rows))


def remove_messages(record: CollectorRecord, event: MessagesRead, now_ns: int) -> Done:
    asked = DeletePage(messages=garbage_messages(record, event))
    return replace(record, last=event.place), (Ask(DATABASE, asked),)


def scan_on(record: CollectorRecord, event: MessagesRead, now_ns: int) -> Done:
    return scan_messages(replace(record, last=event.place))


def count_and_scan(record: CollectorRecord, event: PageDeleted, now_ns: int) -> Done:
    """What clients will miss is told."""
    lost = (Tell(MessageLost(message, rows)) for message, rows in event.messages if rows)
    record, effects = scan_messages(replace(record, messages=record.messages + len(event.messages)))
    return record, (*lost, *effects)


def make_round_ended(record: CollectorRecord, *, whole: bool) -> RoundEnded:
    return RoundEnded(record.rows, record.messages, whole, record.clients)


def end_round(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    return replace(record, last=""), (Tell(make_round_ended(record, whole=True)),)


def break_off(record: CollectorRecord, event: Event, now_ns: int) -> Done:
    """What is left waits for the next round, which begins where this one was."""
    return replace(record, todo=()), (Tell(make_round_ended(record, whole=False)),)
