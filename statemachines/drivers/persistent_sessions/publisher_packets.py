"""Publisher packets: packet ids of QoS 2 that clients have published and not released, and rows that are still to be
stored of their messages.

A row that is to be stored once stands in `fan_out` until a node stores it, in one transaction.  So a node that takes
the session of a publisher finishes what the node before it began, and neither of them stores a row of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from statemachines.drivers.persistent_sessions.host_request import (
    PacketsFound,
    PublisherPacket,
    PutMessage,
    RetainedMessage,
    Routes,
    SubscribeFront,
    UnfinishedMessage,
)
from statemachines.drivers.persistent_sessions.payloads import to_payload
from statemachines.drivers.persistent_sessions.route_trie import Route
from statemachines.drivers.persistent_sessions.sql import Sql, all_of
from statemachines.persistent_sessions.fan_out import OpenRow
from statemachines.persistent_sessions.message import Queued, unfold_row
from statemachines.persistent_sessions.times import MS

UNFINISHED_MAX: Final = 100
"""Rows whose messages are read at once to be finished."""

KEEP: Final = "INSERT INTO @received VALUES (:session, :packet, :message) ON CONFLICT DO NOTHING"
RELEASE: Final = "DELETE FROM @received WHERE session = :session AND packet = :packet"
PACKETS: Final = "SELECT packet, message FROM @received WHERE session = :session ORDER BY packet"
PUT_OPEN_ROWS: Final = (
    "INSERT INTO @fan_out VALUES (:message, :session, :filter, :qos, :until_ns, :time_ns, :topic)"
    " ON CONFLICT DO NOTHING"
)
TO_STORE: Final = "SELECT message, filter FROM @fan_out WHERE message IN ({keys}) AND session = :session"
STORED: Final = "DELETE FROM @fan_out WHERE message = :message AND session = :session AND filter = :filter"
UNFINISHED: Final = (
    "SELECT fan_out.message, fan_out.session, fan_out.filter, fan_out.qos, fan_out.until_ns, messages.topic,"
    " messages.payload, messages.head, fan_out.time_ns FROM @fan_out AS fan_out JOIN @messages AS messages"
    " ON messages.id = fan_out.message WHERE fan_out.message IN ({keys})"
    " ORDER BY fan_out.message, fan_out.session, fan_out.filter"
)
OLD: Final = f"SELECT message FROM @fan_out WHERE time_ns <= :time_ns ORDER BY time_ns, message LIMIT {UNFINISHED_MAX}"


def keep_packet(sql: Sql, packet: PublisherPacket, message: str) -> bool:
    """Keep the id; whether it was not kept yet."""
    values = {"session": packet.session.encode(), "packet": packet.packet, "message": message.encode()}
    return bool(sql.count(KEEP, **values))


def release_packet(sql: Sql, packet: PublisherPacket) -> None:
    """Keep the id no more."""
    sql.run(RELEASE, session=packet.session.encode(), packet=packet.packet)


def put_fan_out(sql: Sql, messages: Iterable[tuple[PutMessage, Routes]]) -> None:
    """The rows of these messages are still to be stored."""
    rows = [
        (asked.id.encode(), one.session.encode(), one.filter.encode(), min(one.qos, asked.qos), one.until_ns)
        for asked, routes in messages
        for one in routes
    ]
    sql.put_many(PUT_OPEN_ROWS, [(*row, sql.now_ns, None) for row in rows])


def put_retained_rows(sql: Sql, asked: SubscribeFront, found: Iterable[RetainedMessage]) -> None:
    """The rows of retained messages that a subscription brings are still to be stored."""
    values = (asked.session.encode(), asked.filter.encode())
    rows = [
        (one.message.encode(), *values, one.qos, one.until_ns, sql.now_ns, one.payload.topic.encode()) for one in found
    ]
    sql.put_many(PUT_OPEN_ROWS, rows)


def drop_retained_rows(sql: Sql, topic: bytes) -> None:
    """A newer message of the topic is retained: the row of an older one is not stored behind it."""
    sql.run("DELETE FROM @fan_out WHERE topic = :topic", topic=topic)


def read_open_rows(sql: Sql, session: bytes, rows: Sequence[Queued]) -> set[OpenRow]:
    """Those that are still to be stored for the session of the messages of these rows."""
    found = all_of(sql, TO_STORE, [row.message.encode() for row in rows], session=session)
    return {(message.decode(), topic_filter.decode()) for message, topic_filter in found}


def note_stored(sql: Sql, session: bytes, rows: Iterable[Queued]) -> None:
    """These rows are stored in this transaction."""
    for row in rows:
        for one in unfold_row(row):
            sql.run(STORED, message=one.message.encode(), session=session, filter=one.filter.encode())


def read_packets(sql: Sql, session: bytes) -> PacketsFound:
    """What the client of the session has not released, and what of it is unfinished."""
    found = sql.all(PACKETS, session=session)
    return PacketsFound(tuple(packet for packet, _ in found), _read(sql, [bytes(message) for _, message in found]))


def read_unfinished(sql: Sql, age_ms: int) -> tuple[UnfinishedMessage, ...]:
    """Messages that nobody has finished for so long."""
    found = sql.all(OLD, time_ns=sql.now_ns - age_ms * MS)
    return _read(sql, list({bytes(message): None for (message,) in found}))


def _read(sql: Sql, messages: Sequence[bytes]) -> tuple[UnfinishedMessage, ...]:
    """In the order in which they were published: of one transaction ids of one node count up."""
    found: dict[str, UnfinishedMessage] = {}
    places: dict[str, tuple[int, int, str]] = {}
    for message, session, topic_filter, qos, until_ns, *payload, time_ns in all_of(sql, UNFINISHED, messages):
        name, route = message.decode(), Route(session.decode(), topic_filter.decode(), qos, until_ns)
        known = found.get(name) or UnfinishedMessage(name, to_payload(payload), ())
        found[name] = known._replace(routes=(*known.routes, route))
        places[name] = (time_ns, len(name), name)
    return tuple(found[name] for name in sorted(found, key=places.__getitem__))
