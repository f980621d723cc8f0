"""Share rows: what of a group's messages is a session's, and what comes back of sessions that have ended."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from statemachines.drivers.persistent_sessions.group_rows import WRITERS
from statemachines.drivers.persistent_sessions.payloads import Payload, to_payload
from statemachines.drivers.persistent_sessions.shared_message_codec import (
    SharedOrigin,
    SharedTerms,
    add_terms,
    name_group,
)
from statemachines.drivers.persistent_sessions.sql import Sql, all_of, read_one
from statemachines.drivers.persistent_sessions.tables import UNDELIVERED
from statemachines.drivers.topic import is_shared
from statemachines.persistent_sessions.in_flight_record import InFlightStatus
from statemachines.persistent_sessions.request import PutRows
from statemachines.persistent_sessions.shared_group import goes_back, is_first_time, is_stored_now

logger = logging.getLogger("gapless")

RETURNED_MAX: Final = 100
"""Messages of sessions that have ended that are read at once."""

ROWS_MAX: Final = 1_000
"""Rows of one writer that are read at once."""

PLACE: Final = (
    "SELECT coalesce(max(epochs.epoch), 0), coalesce(max(epochs.last), 0) FROM @sessions AS sessions"
    " LEFT JOIN @epochs AS epochs ON epochs.session = sessions.session AND epochs.writer = :writer"
    " AND epochs.epoch = (SELECT max(epoch) FROM @epochs WHERE session = :session AND writer = :writer)"
    " WHERE sessions.session = :session GROUP BY sessions.session"
)
NEXT: Final = "SELECT next FROM @carried WHERE filter = :filter AND stream = :stream"
PUT_NEXT: Final = (
    "INSERT INTO @carried VALUES (:filter, :stream, :next)"
    " ON CONFLICT (filter, stream) DO UPDATE SET next = excluded.next"
)
TAKE_RETURNED: Final = "DELETE FROM @returned WHERE message = :message AND filter = :filter"
PUT_RETURNED: Final = (
    "INSERT INTO @returned VALUES (:filter, :time_ns, :part, :message, :topic, :payload, :head)"
    " ON CONFLICT (message) DO NOTHING"
)
FIND_RETURNED: Final = (
    "SELECT message, topic, payload, head FROM @returned WHERE filter = :filter"
    f" ORDER BY time_ns, part LIMIT {RETURNED_MAX}"
)
HAD_GROUPS: Final = "SELECT 1 FROM @routes WHERE session = :session AND filter >= :first AND filter < :last LIMIT 1"
"""Also those that are gone: what came by them is the session's still."""
AHEAD_SHARED: Final = (
    "SELECT epoch, number, filter, qos, until_ns, message FROM @session_rows WHERE session = :session"
    f" AND writer = :writer AND (epoch, number) > (:epoch, :number) AND tag = {UNDELIVERED}"
    f" ORDER BY epoch, number LIMIT {ROWS_MAX}"
)
QUEUED_SHARED: Final = "SELECT filter, qos, until_ns, message FROM @queued WHERE session = :session ORDER BY place"
IN_FLIGHT_SHARED: Final = (
    "SELECT status, filter, qos, until_ns, message FROM @packets WHERE session = :session ORDER BY place"
)
MESSAGES: Final = "SELECT id, topic, payload, head FROM @messages WHERE id IN ({keys})"


# -- what is a session's ----------------------------------------------------------------------------------------------


def settle_origins(
    sql: Sql, asked: PutRows, origins: Mapping[str, SharedOrigin], payloads: Mapping[str, Payload]
) -> frozenset[str]:
    """Which messages of these rows, that are about to be stored, some session has already: each is deleted, so that its
    row brings nothing.  The streams are noted as read up to the others.  Where the session is gone its messages come
    back to the group."""
    place = read_one(sql, PLACE, session=asked.session.encode(), writer=asked.writer.encode())
    is_new = is_stored_now(place, asked.epoch, asked.first_number)
    is_homeless = place is None
    if not is_new:
        return frozenset()
    had = set()
    for part, row in enumerate(asked.rows):
        origin = origins.get(row.message)
        if origin is None:
            continue
        if not _take(sql, origin):
            had.add(row.message)
            sql.run("DELETE FROM @messages WHERE id = :id", id=row.message.encode())
        elif is_homeless:
            terms = SharedTerms(row.qos, row.until_ns)
            _put_returned(sql, origin.group.encode(), row.message, payloads[row.message], terms, part)
    return frozenset(had)


def _take(sql: Sql, origin: SharedOrigin) -> bool:
    """Whether no session has had the message yet; it counts as had from now on."""
    group = origin.group.encode()
    if not origin.stream:
        return bool(sql.count(TAKE_RETURNED, message=origin.message.encode(), filter=group))
    stream = origin.stream.encode()
    known = read_one(sql, NEXT, filter=group, stream=stream)
    is_first = is_first_time(None if known is None else known[0], origin.offset)
    if is_first:
        sql.run(PUT_NEXT, filter=group, stream=stream, next=origin.offset + 1)
    return is_first


# -- what comes back --------------------------------------------------------------------------------------------------


class SharedRow(NamedTuple):
    """A message that a session has of a group."""

    group: str
    message_id: bytes
    terms: SharedTerms


def return_messages(sql: Sql, session: bytes) -> None:
    """The session ends: its messages of groups that its client did not acknowledge go back to them."""
    had_groups = read_one(sql, HAD_GROUPS, session=session, first=b"$", last=b"%") is not None
    if not had_groups:
        return
    rows, dropped = _list_in_flight(sql, session)
    rows += [found for row in sql.all(QUEUED_SHARED, session=session) for found in _read_shared(row)]
    for writer, epoch, number in sql.all(WRITERS, session=session):
        rows += _list_ahead(sql, session, writer, epoch, number)
    contents = {bytes(key): to_payload(row) for key, *row in all_of(sql, MESSAGES, [each.message_id for each in rows])}
    there = [each for each in rows if each.message_id in contents]
    for part, each in enumerate(there):
        _put_returned(sql, each.group.encode(), each.message_id.decode(), contents[each.message_id], each.terms, part)
    if there or dropped:
        what = "session %s has ended: %d messages of groups go back to them; %d of QoS 2 were in flight and are dropped"
        logger.warning(what, session.decode(), len(there), dropped)


def _list_in_flight(sql: Sql, session: bytes) -> tuple[list[SharedRow], int]:
    """Those that go back, and how many do not: of QoS 2 the client may have them."""
    flying = [
        (each, goes_back(InFlightStatus(bytes(status).decode()), each.terms.qos))
        for status, *row in sql.all(IN_FLIGHT_SHARED, session=session)
        for each in _read_shared(row)
    ]
    rows = [each for each, is_back in flying if is_back]
    return rows, len(flying) - len(rows)


def _list_ahead(sql: Sql, session: bytes, writer: bytes, epoch: int, number: int) -> list[SharedRow]:
    """Those of one writer that the state of the session has not yet."""
    rows: list[SharedRow] = []
    while True:
        chunk = sql.all(AHEAD_SHARED, session=session, writer=writer, epoch=epoch, number=number)
        rows += [found for _, _, *row in chunk for found in _read_shared(row)]
        if len(chunk) < ROWS_MAX:
            return rows
        epoch, number = chunk[-1][:2]


def _read_shared(row: Sequence[Any]) -> list[SharedRow]:
    """Nothing where the filter is none of a group."""
    topic_filter, qos, until_ns, message = row
    text = bytes(topic_filter).decode()
    return [SharedRow(name_group(text), bytes(message), SharedTerms(qos, until_ns))] if is_shared(text) else []


def _put_returned(sql: Sql, group: bytes, message: str, payload: Payload, terms: SharedTerms, part: int) -> None:
    kept = add_terms(payload, terms)
    sql.run(
        PUT_RETURNED,
        filter=group, time_ns=sql.now_ns, part=part, message=message.encode(), topic=kept.topic.encode(),
        payload=kept.data, head=kept.head,
    )  # fmt: skip


def read_returned(sql: Sql, groups: Sequence[str]) -> dict[str, list[tuple[str, Payload]]]:
    """Group -> its messages that came back, as (id, message), the oldest first."""
    if read_one(sql, "SELECT 1 FROM @returned LIMIT 1") is None:
        return {}
    found = {group: sql.all(FIND_RETURNED, filter=group.encode()) for group in groups}
    return {
        group: [(message.decode(), to_payload(content)) for message, *content in its]
        for group, its in found.items()
        if its
    }
