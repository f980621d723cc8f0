"""Retained rows: the last retained message of each topic, and which of them a filter brings."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.message_head import add_headers
from statemachines.drivers.persistent_sessions.front_message import FROM_STORE, PUBLISHER, PUBLISHER_BYTES_MAX
from statemachines.drivers.persistent_sessions.host_request import PutMessage, RetainedMessage
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie, has_wildcard
from statemachines.drivers.persistent_sessions.sql import Sql, all_of, one
from statemachines.persistent_sessions.times import MS

RETAINED_MAX: Final = 100_000
RETAINED_BYTES_MAX: Final = 256 * 2**20
"""Topics that have a retained message, and bytes of payload of these messages; one beyond is refused."""

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
COUNT: Final = "UPDATE @store SET retained = retained + :number, retained_bytes = retained_bytes + :size"
OVER: Final = (
    "SELECT count(*), coalesce(sum(length(payload)), 0) FROM @retained WHERE until_ns > 0 AND until_ns <= :now_ns"
)
PIECE: Final = 100
"""Messages that are read at once; their bytes are counted only then."""


def put_retained(sql: Sql, asked: PutMessage) -> None:
    """Keep the message as that of its topic, where there is room; one without payload deletes that."""
    topic = asked.topic.encode()
    known = _size_of(sql, topic)
    if not asked.payload:
        if known is not None:
            sql.run("DELETE FROM @retained WHERE topic = :topic", topic=topic)
            sql.run(COUNT, number=-1, size=-known)
        return
    if not has_room(sql, asked):
        return
    until_ns = 0 if asked.expiry_ms is None else sql.now_ns + asked.expiry_ms * MS
    head = add_headers(asked.head, {PUBLISHER: asked.publisher}) if asked.publisher else asked.head
    sql.run(PUT, topic=topic, payload=asked.payload, qos=asked.qos, until_ns=until_ns, head=head)
    sql.run(COUNT, number=int(known is None), size=len(asked.payload) - (known or 0))


def has_room(sql: Sql, asked: PutMessage) -> bool:
    """Whether the message may be that of its topic; messages that are over make room."""
    if _fits(sql, asked):
        return True
    ((number, size),) = sql.all(OVER, now_ns=sql.now_ns)
    if not number:
        return False
    sql.run("DELETE FROM @retained WHERE until_ns > 0 AND until_ns <= :now_ns", now_ns=sql.now_ns)
    sql.run(COUNT, number=-number, size=-size)
    return _fits(sql, asked)


def _fits(sql: Sql, asked: PutMessage) -> bool:
    if len(asked.publisher) > PUBLISHER_BYTES_MAX:
        return False
    ((number, size),) = sql.all("SELECT retained, retained_bytes FROM @store")
    known = _size_of(sql, asked.topic.encode())
    grows = len(asked.payload) - (known or 0)
    return (known is not None or number < RETAINED_MAX) and (grows <= 0 or size + grows <= RETAINED_BYTES_MAX)


def _size_of(sql: Sql, topic: bytes) -> int | None:
    """Bytes of the message of the topic; None: it has none."""
    found = one(sql, "SELECT length(payload) FROM @retained WHERE topic = :topic", topic=topic)
    return None if found is None else int(found[0])


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
            marked = add_headers(None if head is None else bytes(head), {FROM_STORE: b""})
            left_ms = -(-(until_ns - sql.now_ns) // MS) if until_ns else None
            kept = Payload(topic.decode(), bytes(payload), marked)
            found.append(RetainedMessage(kept, qos, until_ns, expiry_ms=left_ms))
            size += len(payload)
        if size >= FOUND_BYTES_MAX:
            break
    return found


def _range_of(topic_filter: str) -> tuple[bytes, bytes]:
    """Topics from the first to before the second can match."""
    if not has_wildcard(topic_filter):
        return topic_filter.encode(), topic_filter.encode() + b"\0"
    prefix = min(topic_filter.partition("+")[0], topic_filter.partition("#")[0], key=len)
    start = prefix.removesuffix("/").encode()  # "a/#" matches "a", too
    return start, start + b"\xff"
