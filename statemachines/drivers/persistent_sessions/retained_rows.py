"""Retained rows: the last retained message of each topic, and which of them a filter brings."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from statemachines.drivers.message_head import MessageHead, decode_head, encode_head
from statemachines.drivers.persistent_sessions.front_message import FROM_STORE
from statemachines.drivers.persistent_sessions.host_request import PutMessage, RetainedMessage
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie, has_wildcard
from statemachines.drivers.persistent_sessions.sql import Sql, all_of, one
from statemachines.persistent_sessions.times import MS

RETAINED_MAX: Final = 100_000
"""Topics that have a retained message; a message of one more topic is not retained."""

FOUND_MAX: Final = 10_000
FOUND_BYTES_MAX: Final = 32 * 2**20
"""Retained messages that one subscription brings, and their bytes; the rest is left out."""

PUT: Final = (
    "INSERT INTO @retained VALUES (:topic, :payload, :qos, :until_ns, :head) ON CONFLICT (topic) DO UPDATE SET"
    " payload = excluded.payload, qos = excluded.qos, until_ns = excluded.until_ns, head = excluded.head"
)
TOPICS: Final = (
    "SELECT topic FROM @retained WHERE topic >= :first AND topic < :last AND (until_ns = 0 OR until_ns > :now_ns)"
    " ORDER BY topic"
)
MESSAGES: Final = (
    "SELECT topic, payload, head, qos, until_ns FROM @retained WHERE topic IN ({keys})"
    " AND (until_ns = 0 OR until_ns > :now_ns) ORDER BY topic"
)
PIECE: Final = 100
"""Messages that are read at once; their bytes are counted only then."""


def put_retained(sql: Sql, asked: PutMessage) -> None:
    """Keep the message as that of its topic; one without payload deletes that."""
    topic = asked.topic.encode()
    there = one(sql, "SELECT 1 FROM @retained WHERE topic = :topic", topic=topic) is not None
    if not asked.payload:
        if there:
            sql.run("DELETE FROM @retained WHERE topic = :topic", topic=topic)
            sql.run("UPDATE @store SET retained = retained - 1")
        return
    if not there and not _has_room(sql):
        return
    until_ns = 0 if asked.expiry_ms is None else sql.now_ns + asked.expiry_ms * MS
    sql.run(PUT, topic=topic, payload=asked.payload, qos=asked.qos, until_ns=until_ns, head=asked.head)
    if not there:
        sql.run("UPDATE @store SET retained = retained + 1")


def _has_room(sql: Sql) -> bool:
    """Whether one more topic may have a message; messages that are over make room."""
    if _count(sql) < RETAINED_MAX:
        return True
    gone = sql.count("DELETE FROM @retained WHERE until_ns > 0 AND until_ns <= :now_ns", now_ns=sql.now_ns)
    sql.run("UPDATE @store SET retained = retained - :gone", gone=gone)
    return _count(sql) < RETAINED_MAX


def _count(sql: Sql) -> int:
    found = one(sql, "SELECT retained FROM @store")
    assert found is not None
    return int(found[0])


def find_retained(sql: Sql, topic_filter: str) -> list[RetainedMessage]:
    """The retained messages that the filter matches, by topic."""
    trie = RouteTrie()
    trie.put("", topic_filter, 0)
    first, last = _range_of(topic_filter)
    topics = [
        bytes(topic)
        for (topic,) in sql.all(TOPICS, first=first, last=last, now_ns=sql.now_ns)
        if trie.match(bytes(topic).decode())
    ]
    found: list[RetainedMessage] = []
    size = 0
    for begin in range(0, min(len(topics), FOUND_MAX), PIECE):
        for topic, payload, head, qos, until_ns in all_of(
            sql, MESSAGES, topics[begin : begin + PIECE], now_ns=sql.now_ns
        ):
            marked = mark_head(None if head is None else bytes(head))
            found.append(RetainedMessage(Payload(topic.decode(), bytes(payload), marked), qos, until_ns))
            size += len(payload)
        if size >= FOUND_BYTES_MAX:
            break
    return found


def mark_head(head: bytes | None) -> bytes | None:
    """The head with the mark that the message was retained."""
    known = decode_head(head)
    headers = (*known.headers, (FROM_STORE, b""))
    return encode_head(replace(known, headers=headers) if head else MessageHead(headers))


def _range_of(topic_filter: str) -> tuple[bytes, bytes]:
    """Topics from the first to before the second can match."""
    if not has_wildcard(topic_filter):
        return topic_filter.encode(), topic_filter.encode() + b"\0"
    prefix = min(topic_filter.partition("+")[0], topic_filter.partition("#")[0], key=len)
    start = prefix.removesuffix("/").encode()  # "a/#" matches "a", too
    return start, start + b"\xff"
