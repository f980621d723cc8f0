"""Route rows: which filters a session subscribes.  Every change has a number, so that a node reads what it does not
know yet.

Retained rows: the last retained message of each topic, and which of them a filter brings.

Publisher packets: packet ids of QoS 2 that clients have published and not released, and rows that are still to be
stored of their messages.

A row that is to be stored once stands in `fan_out` until a node stores it, in one transaction.  So a node that takes
the session of a publisher finishes what the node before it began, and neither of them stores a row of the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, cast

import msgspec

from statemachines.drivers.message_head import add_headers
from statemachines.drivers.persistent_sessions.node_messages import (
    FROM_STORE,
    PUBLISHER,
    PUBLISHER_BYTES_MAX,
    RetainHandling,
)
from statemachines.drivers.persistent_sessions.payloads import Payload, to_payload
from statemachines.drivers.persistent_sessions.route_trie import Route, has_wildcard
from statemachines.drivers.persistent_sessions.session_row import is_current
from statemachines.drivers.persistent_sessions.sql import Sql, StoreRequest, Text, all_of, read_number, read_one
from statemachines.persistent_sessions.message import OpenRow, Queued, unfold_row
from statemachines.persistent_sessions.times import MS

Routes = tuple[Route, ...]

COUNT_OTHERS: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM @routes WHERE session = :session AND filter <> :filter AND gone = 0"
    " LIMIT :most) AS others"
)


class Subscribe(StoreRequest[Any], frozen=True):
    """Answered with True; False: a higher token has been here; None: the session has as many filters as it may."""

    session: str
    token: int
    filter: str
    qos: int

    def answer(self, sql: Sql, routes: Any) -> Any:
        """A subscription that is there has this `qos` from now on."""
        if not is_current(sql, self):
            return False
        others = read_number(
            sql,
            COUNT_OTHERS,
            session=self.session, filter=self.filter, most=FILTERS_MAX,
        )  # fmt: skip
        if others >= FILTERS_MAX:
            return None
        sql.run(
            "INSERT INTO @routes (session, filter, qos, version, gone) VALUES (:session, :filter, :qos, :version, 0)"
            " ON CONFLICT (session, filter) DO UPDATE SET"
            " qos = excluded.qos, version = excluded.version, gone = 0, options = 0",
            session=self.session, filter=self.filter, qos=self.qos, version=_next_version(sql),
        )  # fmt: skip
        return True


class SubscribeFront(Subscribe, frozen=True):
    """As `Subscribe`, of a front: `options` stay with the filter; ids of retained messages that it brings begin with
    `message`.  Answered with `FrontSubscribed`."""

    options: int
    handling: RetainHandling
    message: str = "-"

    def answer(self, sql: Sql, routes: Any) -> FrontSubscribed:
        is_wanted = self.handling is RetainHandling.ALWAYS or (
            self.handling is RetainHandling.IF_NEW and not has_route(sql, self.session, self.filter)
        )
        done = Subscribe.answer(self, sql, routes)
        if not done:
            return FrontSubscribed(done)
        put_options(sql, self.session, self.filter, self.options)
        return FrontSubscribed(True, tuple(self._copy_retained(sql)) if is_wanted else ())

    def _copy_retained(self, sql: Sql) -> list[RetainedMessage]:
        """The retained messages for the subscription, each of the lower quality of both; a newer one of its topic
        takes its place until its row is stored.  Those of QoS 0 are not stored."""
        found = [
            one._replace(qos=min(one.qos, self.qos), message=f"{self.message}.{number}")
            for number, one in enumerate(find_retained(sql, self.filter))
        ]
        stored = [one for one in found if one.qos]
        put_messages(sql, [(one.message, one.payload, one.qos) for one in stored])
        rows = [
            (
                one.message.encode(), self.session.encode(), self.filter.encode(), one.qos, one.until_ns, sql.now_ns,
                one.payload.topic.encode(),
            )
            for one in stored
        ]  # fmt: skip
        sql.put_many(PUT_OPEN_ROWS, rows)
        return found


class RetainedMessage(NamedTuple):
    """A retained message; `until_ns`: from when on it is over (0: it does not expire)."""

    payload: Payload
    qos: int
    until_ns: int
    message: str = ""
    """Its id, as a message for the subscription."""
    expiry_ms: int | None = None
    """What is left of its time (None: it does not expire)."""


class FrontSubscribed(NamedTuple):
    """`done`, as `Subscribe` is answered; the retained messages that the subscription brings."""

    done: bool | None
    retained: tuple[RetainedMessage, ...] = ()


class ReadOptions(StoreRequest[dict[str, int]], frozen=True):
    """Which filters does the session subscribe?  Answered with filter -> its options."""

    session: str

    def answer(self, sql: Sql, routes: Any) -> dict[str, int]:
        statement = "SELECT filter, options FROM @routes WHERE session = :session AND gone = 0"
        found = sql.all(statement, session=self.session)
        return {topic_filter.decode(): options & ~FRONT for topic_filter, options in found}


class ReadFilters(StoreRequest[tuple[str, ...]], frozen=True):
    """Which filters does the session subscribe?  Answered with a tuple of them."""

    session: str

    def answer(self, sql: Sql, routes: Any) -> tuple[str, ...]:
        return list_filters(sql, self.session)


class Unsubscribe(StoreRequest[bool], frozen=True):
    """As `Subscribe`."""

    session: str
    token: int
    filter: str

    def answer(self, sql: Sql, routes: Any) -> bool:
        is_ours = is_current(sql, self)
        if is_ours:
            remove_route(sql, self.session, self.filter)
        return is_ours


class PublisherPacket(NamedTuple):
    """A packet id of QoS 2 of the client that publishes, and the token of its session."""

    session: str
    token: int
    packet: int


class PutMessage(StoreRequest["Routes | RetainedFull | None"], frozen=True):
    """Store a message, if any session subscribes it; answered with the routes that it matches, a tuple of `Route`,
    which say from when on it is over: `expiry_ms` from now, by the clock of the database (None: never).  A route
    without a session is a group to whose stream the message was appended, or the owner of a session that gets the
    message directly, with QoS 0."""

    id: str
    topic: str
    payload: bytes
    qos: int
    expiry_ms: int | None = None
    head: bytes | None = None
    retain: bool = False
    """Keep it as the retained message of its topic.  Answered with `RetainedFull` where there is no room for that, and
    nothing was done; a will is stored nevertheless."""
    packet: PublisherPacket | None = None
    """Keep the packet id, and store each row of the message once, whichever node does.  Answered with None: a higher
    token has been here, and nothing was done."""

    without: frozenset[tuple[str, str]] = frozenset()
    """(session, filter): subscriptions that do not get it."""
    will: str = ""
    """It is the will of this connection, which is deleted ("": none).  Answered with None: somebody has sent it."""
    publisher: bytes = b""
    """Of a message to be retained: who publishes it, as JSON of `RetainedPublisher` (empty: anybody may)."""
    is_appended: bool = False
    """Append it to the stream of its topic, whether or not a group is there for it."""

    @property
    def needs_room(self) -> bool:
        """It is stored if there is room for it among the retained messages, and else not."""
        return self.retain and bool(self.payload) and not self.will

    @property
    def is_once(self) -> bool:
        """It comes to each subscription once."""
        return self.packet is not None or bool(self.will)

    @property
    def has_rows_alone(self) -> bool:
        """Where there are no groups, nothing is kept of it but rows of sessions, which come in a later request."""
        return not (self.retain or self.will or self.is_appended) and self.packet is None

    @property
    def is_read(self) -> bool:
        """Its routes are looked up, and rows bring the message where some session is to have it."""
        return self.qos == 0 and self.has_rows_alone and self.expiry_ms is None

    def answer(self, sql: Sql, routes: Any) -> Routes | RetainedFull | None:
        (its,) = routes.put_messages(sql, (self,))
        return cast("Routes | RetainedFull | None", its)


class RetainedFull(msgspec.Struct, frozen=True):
    """As many messages are retained as may be, or bytes of them."""


class ReleasePacket(StoreRequest[bool], frozen=True):
    """The client has released the packet id.  Answered with True; False: a higher token has been here."""

    packet: PublisherPacket

    def answer(self, sql: Sql, routes: Any) -> bool:
        session, _, packet = self.packet
        is_ours = is_current(sql, self.packet)
        if is_ours:
            sql.run(
                "DELETE FROM @received WHERE session = :session AND packet = :packet", session=session, packet=packet
            )
        return is_ours


class UnfinishedMessage(NamedTuple):
    """A message that comes to each subscription once, and the rows of it that are still to be stored."""

    message: str
    payload: Payload
    routes: tuple[Route, ...]


class PacketsFound(NamedTuple):
    """Packet ids of QoS 2 that a client has not released, and what is unfinished of their messages."""

    packets: tuple[int, ...]
    unfinished: tuple[UnfinishedMessage, ...]


class ReadPackets(StoreRequest[PacketsFound], frozen=True):
    """Which packet ids has the client of the session published and not released?  Answered with `PacketsFound`."""

    session: str

    def answer(self, sql: Sql, routes: Any) -> PacketsFound:
        statement = "SELECT packet, message FROM @received WHERE session = :session ORDER BY packet"
        found = sql.all(statement, session=self.session)
        return PacketsFound(tuple(packet for packet, _ in found), _read(sql, [bytes(message) for _, message in found]))


class ReadUnfinished(StoreRequest[tuple[UnfinishedMessage, ...]], frozen=True):
    """Answered with `UnfinishedMessage` of those messages that are unfinished for `age_ms` and more, some of them."""

    age_ms: int

    def answer(self, sql: Sql, routes: Any) -> tuple[UnfinishedMessage, ...]:
        found = sql.all(
            f"SELECT message FROM @fan_out WHERE time_ns <= :time_ns ORDER BY time_ns, message LIMIT {UNFINISHED_MAX}",
            time_ns=sql.now_ns - self.age_ms * MS,
        )
        return _read(sql, list({bytes(message): None for (message,) in found}))


FORGET: Final = 10_000
"""So many changes a route that was removed is kept at least; a node that is farther behind reads all routes anew."""

FILTERS_MAX: Final = 1_000
"""Filters that a session subscribes: each of them that matches is a row for each message."""

FRONT: Final = 1 << 40
"""In the options of a subscription: a front has made it."""


def has_route(sql: Sql, session: Text, topic_filter: Text) -> bool:
    """Whether the session subscribes this filter."""
    values = {"session": session, "filter": topic_filter}
    found = read_one(sql, "SELECT 1 FROM @routes WHERE session = :session AND filter = :filter AND gone = 0", **values)
    return found is not None


def put_options(sql: Sql, session: str, topic_filter: str, options: int) -> None:
    """What a front wants to know of the subscription again; a front's subscriptions are single."""
    sql.run(
        "UPDATE @routes SET options = :options WHERE session = :session AND filter = :filter",
        session=session, filter=topic_filter, options=options | FRONT,
    )  # fmt: skip


def remove_route(sql: Sql, session: Text, topic_filter: str) -> None:
    """It is kept as gone for nodes that know it; for so long that no node that works is behind."""
    if not has_route(sql, session, topic_filter):
        return
    values = {"session": session, "filter": topic_filter}
    version = _next_version(sql)
    sql.run(
        "UPDATE @routes SET gone = 1, version = :version WHERE session = :session AND filter = :filter",
        version=version, **values,
    )  # fmt: skip
    if version - read_number(sql, "SELECT forgotten FROM @store") >= 2 * FORGET:
        sql.run("DELETE FROM @routes WHERE gone = 1 AND version <= :version", version=version - FORGET)
        sql.run("UPDATE @store SET forgotten = :version", version=version - FORGET)


def list_filters(sql: Sql, session: Text) -> tuple[str, ...]:
    """All that the session subscribes."""
    found = sql.all("SELECT filter FROM @routes WHERE session = :session AND gone = 0 ORDER BY filter", session=session)
    return tuple(topic_filter.decode() for (topic_filter,) in found)


def _next_version(sql: Sql) -> int:
    sql.run("UPDATE @store SET routes = routes + 1")
    return read_number(sql, "SELECT routes FROM @store")


RETAINED_MAX: Final = 100_000
RETAINED_BYTES_MAX: Final = 256 * 2**20
"""Topics that have a retained message, and bytes of these: topic, payload and properties; one beyond is refused."""

FOUND_MAX: Final = 10_000
FOUND_BYTES_MAX: Final = 32 * 2**20
"""Retained messages that one subscription brings, and their bytes; the rest is left out."""

COUNT: Final = "UPDATE @store SET retained = retained + :number, retained_bytes = retained_bytes + :size"
BYTES: Final = "length(topic) + length(payload) + coalesce(length(head), 0)"
TOPICS_MAX: Final = 1_000
"""Topics that are looked at at once: each may have 64 KiB."""

PIECE: Final = 100
"""Messages that are read at once; their bytes are counted only then."""


def put_retained(sql: Sql, asked: PutMessage) -> None:
    """Keep the message as that of its topic, where there is room; one without payload deletes that.  The row of an
    older one is not stored behind it."""
    topic = asked.topic
    sql.run("DELETE FROM @fan_out WHERE topic = :topic", topic=topic)
    known = _size_of(sql, topic)
    if not asked.payload:
        if known is not None:
            sql.run("DELETE FROM @retained WHERE topic = :topic", topic=topic)
            sql.run(COUNT, number=-1, size=-known)
        return
    if not has_room_retained(sql, asked):
        return
    until_ns = 0 if asked.expiry_ms is None else sql.now_ns + asked.expiry_ms * MS
    sql.run(
        "INSERT INTO @retained VALUES (:topic, :payload, :qos, :until_ns, :head) ON CONFLICT (topic) DO UPDATE SET"
        " payload = excluded.payload, qos = excluded.qos, until_ns = excluded.until_ns, head = excluded.head",
        topic=topic,
        payload=asked.payload,
        qos=asked.qos,
        until_ns=until_ns,
        head=_head_of(asked),
    )
    sql.run(COUNT, number=int(known is None), size=_count_bytes(asked) - (known or 0))


def _head_of(asked: PutMessage) -> bytes | None:
    return add_headers(asked.head, {PUBLISHER: asked.publisher}) if asked.publisher else asked.head


def _count_bytes(asked: PutMessage) -> int:
    return len(asked.topic.encode()) + len(asked.payload) + len(_head_of(asked) or b"")


def has_room_retained(sql: Sql, asked: PutMessage) -> bool:
    """Whether the message may be that of its topic; messages that are over make room."""
    if _fits(sql, asked):
        return True
    ((number, size),) = sql.all(
        f"SELECT count(*), coalesce(sum({BYTES}), 0) FROM @retained WHERE until_ns > 0 AND until_ns <= :now_ns",
        now_ns=sql.now_ns,
    )
    if not number:
        return False
    sql.run("DELETE FROM @retained WHERE until_ns > 0 AND until_ns <= :now_ns", now_ns=sql.now_ns)
    sql.run(COUNT, number=-number, size=-size)
    return _fits(sql, asked)


def _fits(sql: Sql, asked: PutMessage) -> bool:
    if len(asked.publisher) > PUBLISHER_BYTES_MAX:
        return False
    ((number, size),) = sql.all("SELECT retained, retained_bytes FROM @store")
    known = _size_of(sql, asked.topic)
    grows = _count_bytes(asked) - (known or 0)
    return (known is not None or number < RETAINED_MAX) and (grows <= 0 or size + grows <= RETAINED_BYTES_MAX)


def _size_of(sql: Sql, topic: str) -> int | None:
    """Bytes of the message of the topic; None: it has none."""
    found = read_one(sql, f"SELECT {BYTES} FROM @retained WHERE topic = :topic", topic=topic)
    return None if found is None else int(found[0])


def find_retained(sql: Sql, topic_filter: str) -> list[RetainedMessage]:
    """The retained messages that the filter matches, by topic."""
    topics = list(islice(_find_topics(sql, topic_filter), FOUND_MAX))
    found: list[RetainedMessage] = []
    size = 0
    for begin in range(0, len(topics), PIECE):
        for topic, payload, head, qos, until_ns in all_of(
            sql,
            "SELECT topic, payload, head, qos, until_ns FROM @retained WHERE topic IN ({keys})"
            " AND (until_ns = 0 OR until_ns > :now_ns) ORDER BY topic",
            topics[begin : begin + PIECE],
            now_ns=sql.now_ns,
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
        found = sql.all(
            "SELECT topic FROM @retained WHERE topic >= :first AND topic < :last AND (until_ns = 0 OR until_ns"
            " > :now_ns)"
            " ORDER BY topic LIMIT :most",
            first=first,
            last=last,
            now_ns=sql.now_ns,
            most=TOPICS_MAX,
        )
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


UNFINISHED_MAX: Final = 100
"""Rows whose messages are read at once to be finished."""

PUT_OPEN_ROWS: Final = (
    "INSERT INTO @fan_out VALUES (:message, :session, :filter, :qos, :until_ns, :time_ns, :topic)"
    " ON CONFLICT DO NOTHING"
)


def read_open_rows(sql: Sql, session: bytes, rows: Sequence[Queued]) -> set[OpenRow]:
    """Those that are still to be stored for the session of the messages of these rows."""
    found = all_of(
        sql,
        "SELECT message, filter FROM @fan_out WHERE message IN ({keys}) AND session = :session",
        [row.message.encode() for row in rows],
        session=session,
    )
    return {(message.decode(), topic_filter.decode()) for message, topic_filter in found}


def note_stored(sql: Sql, session: bytes, rows: Iterable[Queued]) -> None:
    """These rows are stored in this transaction."""
    for row in rows:
        for one in unfold_row(row):
            sql.run(
                "DELETE FROM @fan_out WHERE message = :message AND session = :session AND filter = :filter",
                message=one.message,
                session=session,
                filter=one.filter,
            )


def _read(sql: Sql, messages: Sequence[bytes]) -> tuple[UnfinishedMessage, ...]:
    """In the order in which they were published: of one transaction ids of one node count up."""
    found: dict[str, UnfinishedMessage] = {}
    places: dict[str, tuple[int, int, str]] = {}
    for message, session, topic_filter, qos, until_ns, *payload, time_ns in all_of(
        sql,
        "SELECT fan_out.message, fan_out.session, fan_out.filter, fan_out.qos, fan_out.until_ns, messages.topic,"
        " messages.payload, messages.head, fan_out.time_ns FROM @fan_out AS fan_out JOIN @messages AS messages"
        " ON messages.id = fan_out.message WHERE fan_out.message IN ({keys})"
        " ORDER BY fan_out.message, fan_out.session, fan_out.filter",
        messages,
    ):
        name, route = message.decode(), Route(session.decode(), topic_filter.decode(), qos, until_ns)
        known = found.get(name) or UnfinishedMessage(name, to_payload(payload), ())
        found[name] = known._replace(routes=(*known.routes, route))
        places[name] = (time_ns, len(name), name)
    return tuple(found[name] for name in sorted(found, key=places.__getitem__))


THERE: Final = "SELECT id FROM @messages WHERE id IN ({keys})"


def put_messages(sql: Sql, messages: Sequence[tuple[str, Payload, int]]) -> None:
    """Store messages, as (id, payload, qos), that are not there."""
    sql.put_many(
        "INSERT INTO @messages VALUES (:id, :topic, :payload, :qos, :time_ns, :head) ON CONFLICT DO NOTHING",
        [(message.encode(), one.topic.encode(), one.data, qos, sql.now_ns, one.head) for message, one, qos in messages],
    )
