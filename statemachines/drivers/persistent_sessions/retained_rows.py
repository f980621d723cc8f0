"""Retained rows: the last retained message of each topic, and which of them a filter brings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from statemachines.drivers.message_head import add_headers
from statemachines.drivers.persistent_sessions.front_message import FROM_STORE, PUBLISHER, PUBLISHER_BYTES_MAX
from statemachines.drivers.persistent_sessions.host_request import PutMessage, RetainedMessage
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_trie import has_wildcard
from statemachines.drivers.persistent_sessions.sql import Sql, all_of, read_one
from statemachines.persistent_sessions.times import MS

RETAINED_MAX: Final = 100_000
RETAINED_BYTES_MAX: Final = 256 * 2**20
"""Topics that have a retained message, and bytes of these: topic, payload and properties; one beyond is refused."""

FOUND_MAX: Final = 10_000
FOUND_BYTES_MAX: Final = 32 * 2**20
"""Retained messages that one subscription brings, and their bytes; the rest is left out."""

PUT_RETAINED: Final = (
    "INSERT INTO @retained VALUES (:topic, :payload, :qos, :until_ns, :head) ON CONFLICT (topic) DO UPDATE SET"
    " payload = excluded.payload, qos = excluded.qos, until_ns = excluded.until_ns, head = excluded.head"
)
TOPICS: Final = (
    "SELECT topic FROM @retained WHERE topic >= :first AND topic < :last AND (until_ns = 0 OR until_ns > :now_ns)"
    " ORDER BY topic LIMIT :most"
)
MESSAGES: Final = (
    "SELECT topic, payload, head, qos, until_ns FROM @retained WHERE topic IN ({keys})"
    " AND (until_ns = 0 OR until_ns > :now_ns) ORDER BY topic"
)
COUNT: Final = "UPDATE @store SET retained = retained + :number, retained_bytes = retained_bytes + :size"
BYTES: Final = "length(topic) + length(payload) + coalesce(length(head), 0)"
OVER: Final = f"SELECT count(*), coalesce(sum({BYTES}), 0) FROM @retained WHERE until_ns > 0 AND until_ns <= :now_ns"
KNOWN: Final = f"SELECT {BYTES} FROM @retained WHERE topic = :topic"
TOPICS_MAX: Final = 1_000
"""Topics that are looked at at once: each may have 64 KiB."""

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
    if not has_room_retained(sql, asked):
        return
    until_ns = 0 if asked.expiry_ms is None else sql.now_ns + asked.expiry_ms * MS
    sql.run(PUT_RETAINED, topic=topic, payload=asked.payload, qos=asked.qos, until_ns=until_ns, head=_head_of(asked))
    sql.run(COUNT, number=int(known is None), size=_count_bytes(asked) - (known or 0))


def _head_of(asked: PutMessage) -> bytes | None:
    return add_headers(asked.head, {PUBLISHER: asked.publisher}) if asked.publisher else asked.head


def _count_bytes(asked: PutMessage) -> int:
    return len(asked.topic.encode()) + len(asked.payload) + len(_head_of(asked) or b"")


def has_room_retained(sql: Sql, asked: PutMessage) -> bool:
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
    grows = _count_bytes(asked) - (known or 0)
    return (known is not None or number < RETAINED_MAX) and (grows <= 0 or size + grows <= RETAINED_BYTES_MAX)


def _size_of(sql: Sql, topic: bytes) -> int | None:
    """Bytes of the message of the topic; None: it has none."""
    found = read_one(sql, KNOWN, topic=topic)
    return None if found is None else int(found[0])


def find_retained(sql: Sql, topic_filter: str) -> list[RetainedMessage]:
    """The retained messages that the filter matches, by topic."""
    topics = list(islice(_find_topics(sql, topic_filter), FOUND_MAX))
    found: list[RetainedMessage] = []
    size = 0
    for begin in range(0, len(topics), PIECE):
        for topic, payload, head, qos, until_ns in all_of(
            sql, MESSAGES, topics[begin : begin + PIECE], now_ns=sql.now_ns
        ):
            marked = add_headers(None if head is None else bytes(head), {FROM_STORE: b""})
            left_ms = -(-(until_ns - sql.now_ns) // MS) if until_ns else None
            kept = Payload(topic.decode(), bytes(payload), marked)
            found.append(RetainedMessage(kept, qos, until_ns, expiry_ms=left_ms))
            size += len(topic) + len(payload) + len(marked)
        if size >= FOUND_BYTES_MAX:
            break
    return found


def _find_topics(sql: Sql, topic_filter: str) -> Iterator[bytes]:
    """Those that the filter matches, in their order; none is looked at that nobody asks for."""
    matches = compile_filter(topic_filter).fullmatch
    first, last = _range_of(topic_filter)
    while True:
        found = sql.all(TOPICS, first=first, last=last, now_ns=sql.now_ns, most=TOPICS_MAX)
        topics = [bytes(topic) for (topic,) in found]
        yield from filter(matches, topics)
        if len(topics) < TOPICS_MAX:
            return
        first = topics[-1] + b"\0"


def compile_filter(topic_filter: str) -> re.Pattern[bytes]:
    """What the UTF-8 of a topic must be that the filter matches, as `RouteTrie` has it."""
    levels = [b"[^/]*" if one == "+" else re.escape(one.encode()) for one in topic_filter.split("/")]
    has_rest = topic_filter.endswith("#")
    text = b"/".join(levels[: len(levels) - has_rest])
    if has_rest:
        text = text + b"(?:/.*)?" if len(levels) > 1 else b".*"
    return re.compile((b"(?!\\$)" if topic_filter[0] in "+#" else b"") + text, re.DOTALL)


def _range_of(topic_filter: str) -> tuple[bytes, bytes]:
    """Topics from the first to before the second can match."""
    if not has_wildcard(topic_filter):
        return topic_filter.encode(), topic_filter.encode() + b"\0"
    prefix = min(topic_filter.partition("+")[0], topic_filter.partition("#")[0], key=len)
    start = prefix.removesuffix("/").encode()  # "a/#" matches "a", too
    return start, start + b"\xff"
