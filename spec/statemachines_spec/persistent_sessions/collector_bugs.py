"""Bugs of the collector: mistakes that can be planted in it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions import machine_requests
from statemachines.kernel import STAY, Ask
from statemachines.persistent_sessions import collector_actions
from statemachines.persistent_sessions.collector import COLLECTOR
from statemachines.persistent_sessions.collector_record import DELETING, FORGETTING
from statemachines.persistent_sessions.collector_request import (
    ClientForgotten,
    Only,
    PageDeleted,
    ReadRows,
    RowDeletion,
    RowsRead,
    Tag,
)
from statemachines.persistent_sessions.request import DATABASE
from statemachines_spec.bug import Bug, change_rows, combine, replace_call, wrap_call
from statemachines_spec.persistent_sessions import collected_database
from statemachines_spec.persistent_sessions.clients import on


def replace_tagged(tag: Tag, **facts: Any) -> Any:
    """Rows with this tag are judged as if this were so of them."""

    def wrap(row_garbage: Any) -> Any:
        return lambda row, graces: row_garbage(replace(row, **facts) if row.key.tag is tag else row, graces)

    return wrap


def message_seen_as(**facts: Any) -> Any:
    """Messages are judged as if this were so of them."""
    return lambda message_garbage: lambda one, graces: message_garbage(replace(one, **facts), graces)


def always_deleted(garbage: Any) -> Any:
    """What was read is not asked again when it is deleted."""

    def changed(one: Any, graces: Any) -> Any:
        found = garbage(one, graces)
        return None if found is None else replace(found, only=Only.ALWAYS)

    return changed


def by_its_own_clock(message_garbage: Any) -> Any:
    """The clock of the collector is ahead of that of the database, which is not asked."""

    def changed(one: Any, graces: Any) -> Any:
        found = message_garbage(replace(one, over=one.referenced), graces)
        return found if found is None or found.only is not Only.OVER else replace(found, only=Only.UNHELD)

    return changed


def over_whoever_has_it(message_garbage: Any) -> Any:
    """What is over is deleted though a state holds it."""
    blind = always_deleted(message_seen_as(held=False)(message_garbage))
    return lambda one, graces: (blind if one.over else message_garbage)(one, graces)


def nameless(queued: Any, now_ns: int) -> Any:
    return replace(queued, message="")


def at_once(tag: Tag, **facts: Any) -> Any:
    """Rows with this tag are judged as if this were so of them, and what was read is not asked again."""

    def wrap(row_garbage: Any) -> Any:
        sure = always_deleted(replace_tagged(tag, **facts)(row_garbage))
        return lambda row, graces: (sure if row.key.tag is tag else row_garbage)(row, graces)

    return wrap


def whole_page(garbage_rows: Any) -> Any:
    """All rows between the first and the last that go are deleted with them."""

    def changed(record: Any, event: RowsRead) -> tuple[RowDeletion, ...]:
        found: tuple[RowDeletion, ...] = garbage_rows(record, event)
        keys = [row.key for row in event.rows]
        within = keys[keys.index(found[0].row) : keys.index(found[-1].row)] if found else []
        return tuple(RowDeletion(key, Only.ALWAYS) for key in within) + found[-1:]

    return changed


def read_waiting(record: Any) -> Any:
    """Rows that wait are read as well."""
    return record, (Ask(DATABASE, ReadRows(record.after, record.graces.page)),)


def go_on_behind(record: Any, event: Any, now_ns: int) -> Any:
    """The next round begins where this one has ended."""
    return collector_actions.scan_messages(record)


def end_and_stay(record: Any, event: Any, now_ns: int) -> Any:
    return record, end_round(record, event, now_ns)[1]


def read_from_behind(record: Any, event: Any, now_ns: int) -> Any:
    """The next round begins with the client with which this one has ended."""
    return collector_actions.read(record)


def stand(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


end_round = collector_actions.end_round


A, C = collector_actions, COLLECTOR
OLD = 1_000_000

BUGS = (
    Bug(
        "undelivered-deleted",
        "a row that nobody has taken is deleted",
        "PS-81",
        "the look at the mark",
        wrap_call(A, "row_garbage", replace_tagged(Tag.UNDELIVERED, paired=True)),
    ),
    Bug(
        "taken-row-kept",
        "a row that is taken and was never marked stays",
        "PS-81",
        "the look at the state",
        wrap_call(A, "row_garbage", replace_tagged(Tag.UNDELIVERED, taken=False)),
    ),
    Bug(
        "marks-stay",
        "a lone mark is never deleted",
        "PS-81",
        "the grace of marks",
        wrap_call(A, "row_garbage", replace_tagged(Tag.DELIVERED, age_ms=0)),
    ),
    Bug(
        "mark-goes-first",
        "of a pair the mark may go first",
        "PS-81",
        "the order",
        wrap_call(A, "row_garbage", at_once(Tag.DELIVERED)),
    ),
    Bug(
        "young-marker-deleted",
        "a marker is deleted while a resume waits for it",
        "PS-81",
        "the grace of markers",
        wrap_call(A, "row_garbage", replace_tagged(Tag.MARKER, age_ms=OLD)),
    ),
    Bug(
        "markers-stay",
        "markers are never deleted",
        "PS-81",
        "the grace of markers",
        wrap_call(A, "row_garbage", replace_tagged(Tag.MARKER, age_ms=0)),
    ),
    Bug(
        "abandoned-too-early",
        "what says that a session is abandoned goes before its rows",
        "PS-81",
        "the last row",
        wrap_call(A, "row_garbage", at_once(Tag.ABANDONED, alone=True)),
    ),
    Bug(
        "abandoned-without-grace",
        "what says that a session is abandoned goes while a writer still stores",
        "PS-81",
        "the grace",
        wrap_call(A, "row_garbage", replace_tagged(Tag.ABANDONED, age_ms=OLD)),
    ),
    Bug(
        "abandoned-stays",
        "what says that a session is abandoned is never deleted",
        "PS-81",
        "the last row",
        wrap_call(A, "row_garbage", replace_tagged(Tag.ABANDONED, alone=False)),
    ),
    Bug(
        "abandoned-rows-stay",
        "rows of an abandoned session stay",
        "PS-81",
        "the look at the session",
        wrap_call(A, "row_garbage", replace_tagged(Tag.UNDELIVERED, abandoned=False)),
    ),
    Bug(
        "held-message-deleted",
        "a message that is in flight is deleted",
        "PS-84",
        "the look at the states",
        wrap_call(A, "message_garbage", lambda garbage: always_deleted(message_seen_as(held=False)(garbage))),
    ),
    Bug(
        "referenced-since",
        "a message is deleted though a row has come to refer to it",
        "PS-84",
        "the transaction",
        wrap_call(A, "message_garbage", always_deleted),
    ),
    Bug(
        "messages-stay",
        "messages to which nothing refers stay",
        "PS-84",
        "the grace of messages",
        wrap_call(A, "message_garbage", message_seen_as(referenced=True)),
    ),
    Bug(
        "over-stays",
        "a message that is over stays until its sessions have come",
        "PS-240",
        "the look at the expiry",
        wrap_call(A, "message_garbage", message_seen_as(over=False)),
    ),
    Bug(
        "over-by-the-collectors-clock",
        "a message is deleted when the collector thinks that it is over",
        "PS-240",
        "the clock of the database",
        wrap_call(A, "message_garbage", by_its_own_clock),
    ),
    Bug(
        "over-in-flight-deleted",
        "a message that is over is deleted though it is in flight",
        "PS-240",
        "the look at the states",
        wrap_call(A, "message_garbage", over_whoever_has_it),
    ),
    Bug(
        "over-counts-as-lost",
        "a row whose message is deleted, being over, counts as lost",
        "PS-241",
        "the name of its message",
        combine(
            replace_call(machine_requests, "without_message", nameless),
            replace_call(collected_database, "without_message", nameless),
        ),
    ),
    Bug(
        "round-begins-behind",
        "the next round does not begin with the first row",
        "PS-82",
        "the first row",
        change_rows(C, "scan", do=go_on_behind),
    ),
    Bug(
        "messages-from-behind",
        "the next round does not begin with the first message",
        "PS-82",
        "the first message",
        change_rows(C, "end_round", do=end_and_stay),
    ),
    Bug(
        "collector-stands",
        "a collector that has deleted something waits for nothing",
        "PS-83",
        "the next deletion",
        on(C, PageDeleted, DELETING, to=STAY, do=stand),
    ),
    Bug(
        "page-deleted-whole",
        "rows that wait are read, and deleted where they stand between two that go",
        "PS-83",
        "the rows of the page",
        combine(wrap_call(A, "garbage_rows", whole_page), replace_call(A, "read", read_waiting)),
    ),
    Bug(
        "expired-stays",
        "a client whose session has expired is never forgotten",
        "PS-120",
        "the look at the expiry",
        replace_call(A, "clients_over", lambda record, event: ()),
    ),
    Bug(
        "forgetting-stands",
        "a collector that has forgotten a client waits for nothing",
        "PS-121",
        "the next client",
        on(C, ClientForgotten, FORGETTING, to=STAY, do=stand),
    ),
    Bug(
        "clients-from-behind",
        "the next round does not begin with the first client",
        "PS-82",
        "the first client",
        change_rows(C, "read_first", do=read_from_behind),
    ),
)
"""Each with a sentence of its own."""
