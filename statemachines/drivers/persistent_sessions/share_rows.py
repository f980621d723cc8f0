"""Share rows: what of a group's messages is a session's, and what comes back of sessions that have ended."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from statemachines.drivers.persistent_sessions.payloads import Payload, to_payload
from statemachines.drivers.persistent_sessions.shared_message import Origin, SharedTerms, add_terms, name_group
from statemachines.drivers.persistent_sessions.sql import Sql, one
from statemachines.drivers.persistent_sessions.state_rows import STATUS
from statemachines.drivers.persistent_sessions.tables import UNDELIVERED
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.in_flight_record import RECEIVED, RELEASED, SENT, TAKEN
from statemachines.persistent_sessions.request import PutRows

logger = logging.getLogger("gapless")

RETURNED_MAX: Final = 100
"""Messages of sessions that have ended that are read at once."""

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
WRITERS: Final = (
    "SELECT writer, coalesce(taken.epoch, 0), coalesce(taken.number, 0)"
    " FROM (SELECT DISTINCT writer FROM @epochs WHERE session = :session) AS writers"
    " LEFT JOIN (SELECT writer, epoch, number FROM @taken WHERE session = :session) AS taken USING (writer) ORDER BY 1"
)
_CONTENT: Final = (
    "found.filter, found.qos, found.until_ns, messages.id, messages.topic, messages.payload, messages.head"
)
_JOIN: Final = "JOIN @messages AS messages ON messages.id = found.message"
AHEAD: Final = (
    f"SELECT {_CONTENT} FROM @session_rows AS found {_JOIN} WHERE found.session = :session AND found.writer = :writer"
    f" AND (found.epoch, found.number) > (:epoch, :number) AND found.tag = {UNDELIVERED}"
    " AND found.filter >= :first AND found.filter < :last ORDER BY found.epoch, found.number"
)
QUEUED: Final = (
    f"SELECT {_CONTENT} FROM @queued AS found {_JOIN} WHERE found.session = :session"
    " AND found.filter >= :first AND found.filter < :last ORDER BY found.place"
)
IN_FLIGHT: Final = (
    f"SELECT found.status, {_CONTENT} FROM @packets AS found {_JOIN} WHERE found.session = :session"
    " AND found.filter >= :first AND found.filter < :last ORDER BY found.place"
)
UNACKNOWLEDGED: Final = frozenset(STATUS[status] for status in (TAKEN, SENT))
RELEASING: Final = frozenset(STATUS[status] for status in (RECEIVED, RELEASED))


# -- what is a session's ----------------------------------------------------------------------------------------------


def settle_origins(
    sql: Sql, asked: PutRows, origins: Mapping[str, Origin], payloads: Mapping[str, Payload]
) -> frozenset[str]:
    """Which messages of these rows, that are about to be stored, some session has already: each is deleted, so that its
    row brings nothing.  The streams are noted as read up to the others.  Where the session is gone its messages come
    back to the group."""
    place = one(sql, PLACE, session=asked.session.encode(), writer=asked.writer.encode())
    if place is not None and (place[0] != asked.epoch or place[1] >= asked.first_number):
        return frozenset()  # refused, or there already
    had = set()
    for part, row in enumerate(asked.rows):
        origin = origins.get(row.message)
        if origin is None:
            continue
        if not _take(sql, origin):
            had.add(row.message)
            sql.run("DELETE FROM @messages WHERE id = :id", id=row.message.encode())
        elif place is None:
            terms = SharedTerms(row.qos, row.until_ns)
            _put_returned(sql, origin.group.encode(), row.message, payloads[row.message], terms, part)
    return frozenset(had)


def _take(sql: Sql, origin: Origin) -> bool:
    """Whether no session has had the message yet; it counts as had from now on."""
    group = origin.group.encode()
    if not origin.stream:
        return bool(sql.run(TAKE_RETURNED, message=origin.message.encode(), filter=group))
    stream = origin.stream.encode()
    found = one(sql, NEXT, filter=group, stream=stream)
    if found is not None and found[0] > origin.offset:
        return False
    sql.run(PUT_NEXT, filter=group, stream=stream, next=origin.offset + 1)
    return True


# -- what comes back --------------------------------------------------------------------------------------------------


def return_messages(sql: Sql, session: bytes) -> None:
    """The session ends: its messages of groups that its client did not acknowledge go back to them."""
    bounds = {"session": session, "first": b"$", "last": b"%"}
    found: list[tuple[str, str, Payload, SharedTerms]] = []
    dropped = 0
    for status, *in_flight in sql.all(IN_FLIGHT, **bounds):
        is_qos_2 = in_flight[1] == 2
        if is_qos_2 and bytes(status) in UNACKNOWLEDGED | RELEASING:
            dropped += 1
        elif bytes(status) in UNACKNOWLEDGED:
            found += _read_shared(in_flight)
    for row in sql.all(QUEUED, **bounds):
        found += _read_shared(row)
    for writer, epoch, number in sql.all(WRITERS, session=session):
        for row in sql.all(AHEAD, **bounds, writer=writer, epoch=epoch, number=number):
            found += _read_shared(row)
    for part, (group, message, payload, terms) in enumerate(found):
        _put_returned(sql, group.encode(), message, payload, terms, part)
    if found or dropped:
        what = "session %s has ended: %d messages of groups go back to them; %d of QoS 2 were in flight and are dropped"
        logger.warning(what, session.decode(), len(found), dropped)


def _read_shared(row: Sequence[object]) -> list[tuple[str, str, Payload, SharedTerms]]:
    """Group, id, message and terms; nothing where the filter is none of a group."""
    topic_filter, qos, until_ns, message, *content = row
    assert isinstance(topic_filter, bytes)
    assert isinstance(message, bytes)
    try:
        group = name_group(topic_filter.decode())
    except ConfigurationError:
        return []
    return [(group, message.decode(), to_payload(content), SharedTerms(int(str(qos)), int(str(until_ns))))]


def _put_returned(sql: Sql, group: bytes, message: str, payload: Payload, terms: SharedTerms, part: int) -> None:
    kept = add_terms(payload, terms)
    sql.run(
        PUT_RETURNED,
        filter=group, time_ns=sql.now_ns, part=part, message=message.encode(), topic=kept.topic.encode(),
        payload=kept.data, head=kept.head,
    )  # fmt: skip


def read_returned(sql: Sql, groups: Sequence[str]) -> dict[str, list[tuple[str, Payload]]]:
    """Group -> its messages that came back, as (id, message), the oldest first."""
    if one(sql, "SELECT 1 FROM @returned LIMIT 1") is None:
        return {}
    found: dict[str, list[tuple[str, Payload]]] = {}
    for group in groups:
        rows = sql.all(FIND_RETURNED, filter=group.encode())
        if rows:
            found[group] = [(message.decode(), to_payload(content)) for message, *content in rows]
    return found
