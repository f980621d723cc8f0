"""Memory statements: what the statements that a run gives most often do, on tables that are Python values.

Each does what its text says.  A statement that is not here is SQLite's.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice, takewhile
from typing import Any, Final

from statemachines.drivers.persistent_sessions import collector_requests as collector
from statemachines.drivers.persistent_sessions import host_requests as host
from statemachines.drivers.persistent_sessions import machine_requests as machine
from statemachines.drivers.persistent_sessions.machine_requests import MARK, MARKERS
from statemachines.drivers.persistent_sessions.row_products import PUT_ROW
from statemachines.drivers.persistent_sessions.state_rows import (
    DELETE_PACKETS,
    DELETE_QUEUED,
    PUT_PACKET,
    PUT_QUEUED,
    PUT_TAKEN,
    QUEUED_ENDS,
    WRITE_REVISION,
)
from statemachines.drivers.persistent_sessions.tables import ABANDONED, DELIVERED, MARKER, UNDELIVERED
from statemachines.persistent_sessions.collector_request import Only
from statemachines_sim.persistent_sessions.memory_table import MemoryTable, RowKey, TableLayout, TableRow

Values = Mapping[str, Any]
Tables = Mapping[str, MemoryTable]
"""By their names, all of them loaded."""

LAYOUTS: Final = (
    TableLayout("session_rows", 14, 5, message=5, is_indexed=lambda row: row[4] == UNDELIVERED),
    TableLayout("taken", 4, 2),
    TableLayout("packets", 9, 2, message=5),
    TableLayout("queued", 7, 2, message=3),
    TableLayout("messages", 6, 1),
    TableLayout("sessions", 9, 1),
)
PUTS: Final = {
    PUT_ROW: "session_rows",
    PUT_PACKET: "packets",
    PUT_TAKEN: "taken",
    PUT_QUEUED: "queued",
    host.PUT_MESSAGE: "messages",
}
"""An `INSERT` of whole rows, and its table."""
KEPT: Final = (host.PUT_MESSAGE,)
"""Of these a row that is there stays."""


# -- sessions and their state -----------------------------------------------------------------------------------------


def read_token(tables: Tables, values: Values) -> list[TableRow]:
    row = tables["sessions"].rows.get((values["session"],))
    return [] if row is None else [(row[2],)]


def read_ends(tables: Tables, values: Values) -> list[TableRow]:
    order, session = tables["queued"].order, values["session"]
    first, behind = bisect_left(order, (session,)), bisect_right(order, (session, 2**63))
    return [(order[first][1], order[behind - 1][1]) if first < behind else (0, -1)]


def write_revision(tables: Tables, values: Values) -> int:
    row = tables["sessions"].rows.get((values["session"],))
    if row is None:
        return 0
    tables["sessions"].put((*row[:7], row[7] + 1, values["places"]))
    return 1


def read_taken(tables: Tables, values: Values) -> list[TableRow]:
    row = tables["taken"].rows.get((values["session"], values["writer"]))
    return [] if row is None else [row[2:]]


def delete_packets(tables: Tables, values: Values) -> int:
    packets, session = tables["packets"], values["session"]
    first = bisect_left(packets.order, (session, values["first"]))
    last = bisect_right(packets.order, (session, values["last"]))
    return sum([packets.remove(key) for key in packets.order[first:last]])


def delete_queued(tables: Tables, values: Values) -> int:
    queued, session = tables["queued"], values["session"]
    first = bisect_left(queued.order, (session,))
    last = bisect_left(queued.order, (session, values["first"]))
    return sum([queued.remove(key) for key in queued.order[first:last]])


# -- rows -------------------------------------------------------------------------------------------------------------


def keys_of_writer(tables: Tables, values: Values, *begin: int) -> Iterator[RowKey]:
    """Of the rows of a session and writer, from this place on."""
    rows, session, writer = tables["session_rows"], values["session"], values["writer"]
    for place in range(bisect_left(rows.order, (session, writer, *begin)), len(rows.order)):
        key = rows.order[place]
        if key[1] != writer or key[0] != session:
            return
        yield key


def read_following(tables: Tables, values: Values, *, is_pending: bool = False) -> list[TableRow]:
    """`ROWS`; `is_pending`: those that are not marked."""
    rows, messages, small = tables["session_rows"].rows, tables["messages"].rows, values["small"]
    found: list[TableRow] = []
    for key in keys_of_writer(tables, values, values["epoch"], values["number"], DELIVERED + MARKER + ABANDONED):
        if key[2] >= values["below"] or len(found) >= values["page"]:
            break
        if key[4] != UNDELIVERED or (is_pending and (*key[:4], DELIVERED) in rows):
            continue
        row = rows[key]
        message = messages.get((row[5],))
        shown: tuple[Any, ...] = (None, None, None)
        if message is not None and len(message[1]) + len(message[2]) + len(message[5] or b"") <= small:
            shown = (message[1], message[2], message[5])
        found.append((key[2], key[3], row[5], row[6], row[7], row[12], *shown, int(message is None), row[11], row[13]))
    return found


def read_pending(tables: Tables, values: Values) -> list[TableRow]:
    return read_following(tables, values, is_pending=True)


def keys_of_range(tables: Tables, values: Values) -> list[RowKey]:
    """Of the undelivered rows that are named."""
    keys = keys_of_writer(tables, values, values["epoch"], values["first"])
    range_ = takewhile(lambda key: key[2] == values["epoch"] and key[3] <= values["last"], keys)
    return [key for key in range_ if key[4] == UNDELIVERED]


def delete_taken(tables: Tables, values: Values) -> int:
    table = tables["session_rows"]
    return sum([table.remove(key) for key in keys_of_range(tables, values) if is_taken(tables, key)])


def mark_rows(tables: Tables, values: Values) -> int:
    table = tables["session_rows"]
    keys = [key for key in keys_of_range(tables, values) if (*key[:4], DELIVERED) not in table.rows]
    for key in keys:
        row = table.rows[key]
        table.put((*key[:4], DELIVERED, *row[5:8], 0, 0, 0, values["time_ns"], row[12], None))
    return len(keys)


def keys_of_markers(tables: Tables, values: Values) -> Iterator[RowKey]:
    """Of a session and writer: they have the number 0, and so stand first of an epoch."""
    order, whose = tables["session_rows"].order, (values["session"], values["writer"])
    place = bisect_left(order, whose)
    while place < len(order) and order[place][:2] == whose:
        key = order[place]
        if key[3] == 0:
            if key[4] == MARKER:
                yield key
            place += 1
        else:
            place = bisect_left(order, (*whose, key[2] + 1))


def read_markers(tables: Tables, values: Values) -> list[TableRow]:
    rows = tables["session_rows"].rows
    return sorted((key[2], *rows[key][8:10]) for key in keys_of_markers(tables, values))


def delete_markers(tables: Tables, values: Values) -> int:
    table = tables["session_rows"]
    return sum([table.remove(key) for key in list(keys_of_markers(tables, values))])


def follow_rows(tables: Tables, values: Values) -> list[TableRow]:
    rows = tables["session_rows"].rows
    place = (values["epoch"], values["number"])
    keys = (key for key in keys_of_writer(tables, values, *place) if key[4] == UNDELIVERED and key[2:4] > place)
    return [(*key[2:4], *rows[key][5:8], *rows[key][12:]) for key in islice(keys, host.LOOK)]


def read_place(tables: Tables, values: Values) -> list[TableRow]:
    key = (values["session"], values["writer"], values["epoch"], values["number"], UNDELIVERED)
    return [(1,)] if key in tables["session_rows"].rows else []


def read_message_time(tables: Tables, values: Values) -> list[TableRow]:
    row = tables["messages"].rows.get((values["id"],))
    return [] if row is None else [(row[4],)]


# -- the collector ----------------------------------------------------------------------------------------------------


def is_abandoned(tables: Tables, session: bytes) -> bool:
    return (session, b"", 0, 0, ABANDONED) in tables["session_rows"].rows


def is_taken(tables: Tables, key: RowKey) -> bool:
    taken = tables["taken"].rows.get(key[:2])
    return taken is not None and taken[2:] >= key[2:4]


def has_others(tables: Tables, session: bytes, writer: bytes = b"") -> bool:
    """Rows of the session that have a writer behind this one."""
    order = tables["session_rows"].order
    place = bisect_right(order, (session, writer, 2**63))
    return place < len(order) and order[place][0] == session


def collect_rows(tables: Tables, values: Values) -> list[TableRow]:
    rows, order, taken = tables["session_rows"].rows, tables["session_rows"].order, tables["taken"].rows
    begin = bisect_right(order, tuple(values[name] for name in ("session", "writer", "epoch", "number", "tag")))
    found: list[TableRow] = []
    last: tuple[Any, ...] = ()
    abandoned, until = False, (0, 0)
    for key in islice(order, begin, begin + values["limit"]):
        row = rows[key]
        session, writer, epoch, number, tag = key
        if last != (session, writer):
            last = (session, writer)
            abandoned = is_abandoned(tables, session)
            mark = taken.get(last)
            until = (-1, -1) if mark is None else mark[2:]
        is_row = tag <= DELIVERED
        found.append((
            *key, row[8], row[9], row[11], abandoned, is_row and (session, writer, epoch, number, 1 - tag) in rows,
            is_row and until >= (epoch, number), tag == ABANDONED and not has_others(tables, session),
        ))  # fmt: skip
    return found


def keys_of_epoch(tables: Tables, values: Values) -> Iterator[RowKey]:
    """Of rows of one epoch, from the number on."""
    keys = keys_of_writer(tables, values, values["epoch"], values["number"])
    return takewhile(lambda key: key[2] == values["epoch"], keys)


def read_next_mark(tables: Tables, values: Values) -> list[TableRow]:
    marks = (key for key in keys_of_epoch(tables, values) if key[3] > values["number"] and key[4] == DELIVERED)
    return [(key[3],) for key in islice(marks, 1)]


def read_last_of_run(tables: Tables, values: Values) -> list[TableRow]:
    run = list(takewhile(lambda key: key[3] < values["until"], keys_of_epoch(tables, values)))
    return [(run[-1][3],)] if run else []


def read_waiting(tables: Tables, values: Values) -> list[TableRow]:
    rows, messages = tables["session_rows"].rows, tables["messages"].rows
    run = takewhile(lambda key: key[3] <= values["last"], keys_of_epoch(tables, values))
    found = []
    for key in islice(run, values["limit"]):
        row = rows[key]
        message = messages.get((row[5],))
        found.append((key[3], row[11], row[5] != b"", 0 if message is None else len(message[2])))
    return found


def delete_rows(tag: int, only: Only) -> Callable[[Tables, Values], int]:
    def delete(tables: Tables, values: Values, number: int) -> int:
        table = tables["session_rows"]
        place = (values["session"], values["writer"], values["epoch"], number)
        row = table.rows.get((*place, tag))
        if row is None or row[8] != values["token"] or row[9] != values["n"]:
            return 0
        if only is Only.UNPAIRED and (*place, UNDELIVERED) in table.rows:
            return 0
        if only is Only.ALONE and has_others(tables, *place[:2]):
            return 0
        return int(table.remove((*place, tag)))

    def delete_all(tables: Tables, values: Values) -> int:
        return sum([delete(tables, values, number) for number in range(values["number"], values["last"] + 1)])

    return delete_all


def is_held(tables: Tables, message: bytes) -> bool:
    return bool(tables["packets"].list_of(message)) or bool(tables["queued"].list_of(message))


def is_over(tables: Tables, message: bytes, now_ns: int) -> bool:
    """Rows refer to it, and all of them are over."""
    table = tables["session_rows"]
    found = table.list_of(message)
    return bool(found) and all(0 < table.rows[key][12] <= now_ns for key in found)


def collect_messages(tables: Tables, values: Values) -> list[TableRow]:
    messages, rows, now_ns = tables["messages"], tables["session_rows"].rows, values["now_ns"]
    referring, packets, queued = (tables[name].by_message() for name in ("session_rows", "packets", "queued"))
    place, last_ns = (values["time_ns"], values["id"]), values["last_ns"]
    behind = ((row[4], row[0]) for row in messages.rows.values() if row[4] <= last_ns and (row[4], row[0]) > place)
    found = []
    for time_ns, message in nsmallest(values["limit"], behind):
        its = referring.get(message, ())
        over = bool(its)
        for row in its:
            if not 0 < rows[row][12] <= now_ns:
                over = False
                break
        is_kept = bool(packets.get(message)) or bool(queued.get(message))
        found.append((message, time_ns, bool(its), is_kept, over))
    return found


def count_lost(tables: Tables, values: Values) -> list[TableRow]:
    rows, now_ns = tables["session_rows"], values["now_ns"]
    lost = (
        not is_abandoned(tables, key[0]) and not is_taken(tables, key) and not 0 < rows.rows[key][12] <= now_ns
        for key in rows.list_of(values["id"])
    )  # fmt: skip
    return [(sum(lost),)]


def delete_message(only: Only) -> Callable[[Tables, Values], int]:
    def delete(tables: Tables, values: Values) -> int:
        message = values["id"]
        if only is not Only.ALWAYS and is_held(tables, message):
            return 0
        if only is Only.UNREFERENCED and tables["session_rows"].list_of(message):
            return 0
        if only is Only.OVER and not is_over(tables, message, values["now_ns"]):
            return 0
        return int(tables["messages"].remove((message,)))

    return delete


# -- which they are ---------------------------------------------------------------------------------------------------

THERE: Final = (
    "SELECT 1 FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch AND number = :number"
    f" AND tag = {UNDELIVERED}"
)
MESSAGE_TIME: Final = "SELECT time_ns FROM @messages WHERE id = :id"

QUERIES: Final[Mapping[str, Callable[[Tables, Values], list[TableRow]]]] = {
    machine.PENDING: read_pending,
    machine.FOLLOWING: read_following,
    machine.TOKEN: read_token,
    QUEUED_ENDS: read_ends,
    machine.TAKEN: read_taken,
    MARKERS: read_markers,
    host.FOLLOW: follow_rows,
    collector.ROWS: collect_rows,
    collector.NEXT_MARK: read_next_mark,
    collector.LAST_OF_RUN: read_last_of_run,
    collector.WAITING: read_waiting,
    collector.MESSAGES: collect_messages,
    collector.LOST: count_lost,
    THERE: read_place,
    MESSAGE_TIME: read_message_time,
}
CHANGES: Final[Mapping[str, Callable[[Tables, Values], int]]] = {
    machine.DELETE_TAKEN: delete_taken,
    MARK: mark_rows,
    machine.DELETE_MARKERS: delete_markers,
    WRITE_REVISION: write_revision,
    DELETE_PACKETS: delete_packets,
    DELETE_QUEUED: delete_queued,
    **{text: delete_rows(*key) for key, text in collector.DELETIONS.items()},
    **{text: delete_message(only) for only, text in collector.DELETE_MESSAGE.items()},
}
