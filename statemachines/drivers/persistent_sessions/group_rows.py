"""Group rows: what a store of sessions keeps of groups, and which messages are for them.

The requests tell which groups sessions declared, what of their messages waits, and what comes back of sessions that
have ended.

GroupMatcher, GroupSharing: which declared groups a topic is for, as of the transaction that stores a message.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.persistent_sessions.payloads import (
    Payload,
    SharedOrigin,
    SharedTerms,
    add_terms,
    name_group,
    to_payload,
)
from statemachines.drivers.persistent_sessions.route_rows import (
    PutMessage,
    Routes,
)
from statemachines.drivers.persistent_sessions.route_trie import (
    TOPIC_MAX,
    Route,
    RouteTrie,
)
from statemachines.drivers.persistent_sessions.sql import UNDELIVERED, Sql, StoreRequest, all_of, read_number, read_one
from statemachines.drivers.shared_subscriptions.guest_streams import Version, check_storable
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.store import StoredPayload
from statemachines.drivers.topic import GROUP_PREFIXES, is_shared
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.group_member_actions import (
    IS_ENDING,
    PublishWay,
    age_group,
    choose_way,
    ends_at,
    goes_back,
    is_first_time,
    is_kept,
    is_stored_now,
    refuse_declaration,
)
from statemachines.persistent_sessions.in_flight_record import InFlightStatus
from statemachines.persistent_sessions.request import PutRows
from statemachines.shared_subscriptions.group_store import Properties
from statemachines.shared_subscriptions.names import record_name
from statemachines.shared_subscriptions.stream_store import parse_filter
from statemachines.wire import quote_for_log

PUT_DECLARED: Final = (
    "INSERT INTO @declared_groups VALUES (:filter, :idle_ns)"
    " ON CONFLICT (filter) DO UPDATE SET idle_ns = excluded.idle_ns"
)
"""Declared groups are those that only a front's subscriptions declared, and that end when nobody subscribes them."""


class DeclareGroup(StoreRequest[str], frozen=True):
    """A session is about to subscribe the filter of a group: keep the group, which ends when nobody subscribes it for
    long, unless it is declared otherwise.  Answered with "", or why there may not be one more."""

    session: str
    filter: str

    def answer(self, sql: Sql, routes: Any) -> str:
        matcher: GroupMatcher | None = routes.matcher
        if matcher is not None:
            matcher.catch_up(sql)
        is_known = matcher is not None and matcher.is_declared(self.filter)
        group = name_group(self.filter)
        its = read_one(sql, "SELECT idle_ns FROM @declared_groups WHERE filter = :filter", filter=group)
        idle_ns = None if its is None else int(its[0])
        others = set(group_filters(sql, self.session)) - {self.filter}
        count = read_number(sql, "SELECT count(*) FROM @declared_groups")
        refusal = refuse_declaration(idle_ns, is_known, len(others), count)
        if not refusal and is_kept(idle_ns, is_known):
            sql.run(PUT_DECLARED, filter=group, idle_ns=0)
        return refusal


class ListIdleGroups(StoreRequest[tuple[str, ...]], frozen=True):
    """Which groups that only such subscriptions declared has no session subscribed for `expiry_ms`?  They count as
    being destroyed from now on.  Answered with a tuple of their filters, and of those whose end was begun."""

    expiry_ms: int

    def answer(self, sql: Sql, routes: Any) -> tuple[str, ...]:
        routes.catch_up(sql)
        ages: dict[str, int] = {}
        for group, idle_ns in sql.all("SELECT filter, idle_ns FROM @declared_groups ORDER BY filter"):
            spellings = [f"{prefix}{bytes(group).decode()}" for prefix in GROUP_PREFIXES]
            is_subscribed = any(map(routes.trie.sessions_of, spellings))
            ages[spellings[0]] = new_ns = age_group(idle_ns, is_subscribed, sql.now_ns, self.expiry_ms)
            if new_ns != idle_ns:
                sql.run(PUT_DECLARED, filter=group, idle_ns=new_ns)
        return tuple(one for one, idle_ns in ages.items() if idle_ns == IS_ENDING)


class ForgetGroup(StoreRequest[None], frozen=True):
    """The group was destroyed: what is kept of it here goes, too."""

    filter: str

    def answer(self, sql: Sql, routes: Any) -> None:
        for table in ("declared_groups", "carried", "returned"):
            sql.run(f"DELETE FROM @{table} WHERE filter = :filter", filter=name_group(self.filter))


class ReadReturned(StoreRequest[dict[str, list[tuple[str, Payload]]]], frozen=True):
    """Messages of these groups that sessions which have ended never acknowledged; answered with group -> some of them,
    as (id, message), the oldest first."""

    groups: tuple[str, ...]

    def answer(self, sql: Sql, routes: Any) -> dict[str, list[tuple[str, Payload]]]:
        if read_one(sql, "SELECT 1 FROM @returned LIMIT 1") is None:
            return {}
        statement = (
            "SELECT message, topic, payload, head FROM @returned WHERE filter = :filter"
            f" ORDER BY time_ns, part LIMIT {RETURNED_MAX}"
        )
        found = {group: sql.all(statement, filter=group) for group in self.groups}
        return {
            group: [(message.decode(), to_payload(content)) for message, *content in its]
            for group, its in found.items()
            if its
        }


class ReadGroups(StoreRequest[tuple[str, ...]], frozen=True):
    """Which filters of groups does the session subscribe?  Answered with a tuple of them."""

    session: str

    def answer(self, sql: Sql, routes: Any) -> tuple[str, ...]:
        return group_filters(sql, self.session)


class CountWaiting(StoreRequest[int], frozen=True):
    """How many messages that came by this filter wait in the database, in no client's hands yet?  Answered with a
    number, `most` at most; with that, too, where too many rows wait to be looked through."""

    session: str
    filter: str
    most: int

    def answer(self, sql: Sql, routes: Any) -> int:
        count, is_all = _look_ahead(sql, self.session, self.filter, self.most)
        return count if is_all else self.most


FILTERS: Final = (
    "SELECT filter FROM @routes WHERE session = :session AND filter >= :first AND filter < :last AND gone = 0"
    " ORDER BY filter"
)
"""All that may be of groups, by the key of the table: a session may subscribe thousands that are not."""

LOOKED_MAX: Final = 10_000
"""Rows that a session has not taken among which those of a group are looked for."""

WRITERS: Final = (
    "SELECT writer, coalesce(taken.epoch, 0), coalesce(taken.number, 0)"
    " FROM (SELECT DISTINCT writer FROM @epochs WHERE session = :session) AS writers"
    " LEFT JOIN (SELECT writer, epoch, number FROM @taken WHERE session = :session) AS taken USING (writer) ORDER BY 1"
)
"""And how far the state has the rows of each."""

AHEAD: Final = (
    "SELECT filter FROM @session_rows WHERE session = :session AND writer = :writer"
    f" AND (epoch, number) > (:epoch, :number) AND tag = {UNDELIVERED} ORDER BY epoch, number LIMIT :looked"
)


def group_filters(sql: Sql, session: str) -> tuple[str, ...]:
    """The filters of groups that it subscribes."""
    found = sql.all(FILTERS, session=session, first=b"$", last=b"%")
    return tuple(each.decode() for (each,) in found if is_shared(each.decode()))


def _look_ahead(sql: Sql, session: str, topic_filter: str, most: int) -> tuple[int, bool]:
    """How many there are, `most` at most, and whether that is all of them."""
    wanted = {"session": session, "filter": topic_filter}
    count, looked = (
        read_number(sql, "SELECT count(*) FROM @queued WHERE session = :session AND filter = :filter", **wanted),
        LOOKED_MAX,
    )
    for writer, epoch, number in sql.all(WRITERS, session=session):
        ahead = {"session": session, "writer": writer, "epoch": epoch, "number": number, "looked": looked}
        count += read_number(
            sql,
            f"SELECT count(*) FROM (SELECT 1 FROM ({AHEAD}) AS ahead WHERE filter = :filter LIMIT :most) AS ours",
            **ahead,
            filter=wanted["filter"],
            most=most,
        )
        if count >= most:
            return most, False
        looked -= read_number(sql, f"SELECT count(*) FROM ({AHEAD}) AS ahead", **ahead)
        if looked <= 0:
            return count, False
    return min(count, most), True


logger = logging.getLogger("gapless")

RETURNED_MAX: Final = 100
"""Messages of sessions that have ended that are read at once."""

ROWS_MAX: Final = 1_000
"""Rows of one writer that are read at once."""

HAD_GROUPS: Final = "SELECT 1 FROM @routes WHERE session = :session AND filter >= :first AND filter < :last LIMIT 1"
"""Also those that are gone: what came by them is the session's still."""
MESSAGES: Final = "SELECT id, topic, payload, head FROM @messages WHERE id IN ({keys})"


# -- what is a session's ----------------------------------------------------------------------------------------------


def settle_origins(
    sql: Sql, asked: PutRows, origins: Mapping[str, SharedOrigin], payloads: Mapping[str, Payload]
) -> frozenset[str]:
    """Which messages of these rows, that are about to be stored, some session has already: each is deleted, so that its
    row brings nothing.  The streams are noted as read up to the others.  Where the session is gone its messages come
    back to the group."""
    place = read_one(
        sql,
        "SELECT coalesce(max(epochs.epoch), 0), coalesce(max(epochs.last), 0) FROM @sessions AS sessions"
        " LEFT JOIN @epochs AS epochs ON epochs.session = sessions.session AND epochs.writer = :writer"
        " AND epochs.epoch = (SELECT max(epoch) FROM @epochs WHERE session = :session AND writer = :writer)"
        " WHERE sessions.session = :session GROUP BY sessions.session",
        session=asked.session.encode(),
        writer=asked.writer.encode(),
    )
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
        return bool(
            sql.count(
                "DELETE FROM @returned WHERE message = :message AND filter = :filter",
                message=origin.message.encode(),
                filter=group,
            )
        )
    stream = origin.stream.encode()
    known = read_one(
        sql, "SELECT next FROM @carried WHERE filter = :filter AND stream = :stream", filter=group, stream=stream
    )
    is_first = is_first_time(None if known is None else known[0], origin.offset)
    if is_first:
        sql.run(
            "INSERT INTO @carried VALUES (:filter, :stream, :next)"
            " ON CONFLICT (filter, stream) DO UPDATE SET next = excluded.next",
            filter=group,
            stream=stream,
            next=origin.offset + 1,
        )
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
    flying = [
        (each, goes_back(InFlightStatus(bytes(status).decode()), each.terms.qos))
        for status, *row in sql.all(
            "SELECT status, filter, qos, until_ns, message FROM @packets WHERE session = :session ORDER BY place",
            session=session,
        )
        for each in _read_shared(row)
    ]
    rows = [each for each, is_back in flying if is_back]
    dropped = len(flying) - len(rows)  # of QoS 2 the client may have them
    rows += [
        found
        for row in sql.all(
            "SELECT filter, qos, until_ns, message FROM @queued WHERE session = :session ORDER BY place",
            session=session,
        )
        for found in _read_shared(row)
    ]
    for writer, epoch, number in sql.all(WRITERS, session=session):
        rows += _list_ahead(sql, session, writer, epoch, number)
    contents = {bytes(key): to_payload(row) for key, *row in all_of(sql, MESSAGES, [each.message_id for each in rows])}
    there = [each for each in rows if each.message_id in contents]
    for part, each in enumerate(there):
        _put_returned(sql, each.group.encode(), each.message_id.decode(), contents[each.message_id], each.terms, part)
    if there or dropped:
        what = "session %s has ended: %d messages of groups go back to them; %d of QoS 2 were in flight and are dropped"
        logger.warning(what, session.decode(), len(there), dropped)


def _list_ahead(sql: Sql, session: bytes, writer: bytes, epoch: int, number: int) -> list[SharedRow]:
    """Those of one writer that the state of the session has not yet."""
    rows: list[SharedRow] = []
    while True:
        chunk = sql.all(
            "SELECT epoch, number, filter, qos, until_ns, message FROM @session_rows WHERE session = :session"
            f" AND writer = :writer AND (epoch, number) > (:epoch, :number) AND tag = {UNDELIVERED}"
            f" ORDER BY epoch, number LIMIT {ROWS_MAX}",
            session=session,
            writer=writer,
            epoch=epoch,
            number=number,
        )
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
        "INSERT INTO @returned VALUES (:filter, :time_ns, :part, :message, :topic, :payload, :head)"
        " ON CONFLICT (message) DO NOTHING",
        filter=group, time_ns=sql.now_ns, part=part, message=message.encode(), topic=kept.topic.encode(),
        payload=kept.data, head=kept.head,
    )  # fmt: skip


MEMBERS_MAX: Final = 200
"""Sessions of a group that are asked for at once: who of them is connected, to get a message of QoS 0."""

TOPICS_MAX: Final = 10_000
"""Topics that are remembered; beyond, all are forgotten."""

UNKNOWN: Final = (-1, -1)
"""No declaration was read yet."""


class GroupMatcher:
    """The groups that are declared in the database `where`, read again when a declaration has changed."""

    def __init__(self, where: str) -> None:
        self._codec = RecordCodec(where)
        self._version: Version = UNKNOWN
        self._trie = RouteTrie()
        self.shared_topics: set[str] = set()
        """Topics of messages that groups have, as far as any came since a declaration has changed."""
        self.turns: Counter[str] = Counter()
        """Filter of a group -> how many messages of QoS 0 went to its members."""
        self.left_out = RateLimitedLog(steady_ns)
        """Messages that no stream can have."""

    def catch_up(self, sql: Sql) -> None:
        """The declarations as this transaction finds them."""
        streams = sql.streams()
        version = streams.version()
        if version == self._version:
            return
        self._trie = RouteTrie()
        self.shared_topics.clear()
        self.turns.clear()
        for key, stored in self._codec.read_all([(*one,) for one in streams.read_declarations()]):
            name = record_name(key)
            if isinstance(stored.value, Properties) and not stored.value.destroyed:
                self._trie.put(name.group, name.filter, 0)
        self._version = version

    @property
    def has_groups(self) -> bool:
        """Whether any is declared."""
        return not self._trie.is_empty

    def forget(self) -> None:
        """What was read may never have been committed."""
        self._version = UNKNOWN

    def is_declared(self, topic_filter: str) -> bool:
        """Whether the group of this filter is."""
        group, filtered = parse_filter(topic_filter)
        return group in self._trie.sessions_of(filtered)

    def match(self, topic: str) -> list[tuple[str, str]]:
        """Every group whose filter matches: its name and the filter."""
        found = self._trie.find_routes(topic)
        if found and len(topic) <= TOPIC_MAX:
            if len(self.shared_topics) >= TOPICS_MAX:
                self.shared_topics.clear()
            self.shared_topics.add(topic)
        return [(one.session, one.filter) for one in found]


class StreamBatch:
    """The messages of one transaction that go to streams, by their topics, in their order; `log`: counts those that no
    stream can have."""

    def __init__(self, log: RateLimitedLog) -> None:
        self._log = log
        self._messages: dict[str, list[StoredPayload]] = {}

    def add(self, payload: Payload, terms: SharedTerms) -> bool:
        """Whether a stream can have it."""
        headed = add_terms(payload, terms)
        message = headed.data, headed.head
        try:
            check_storable(payload.topic, message)
        except ConfigurationError as error:
            self._leave_out(payload.topic, error.rule)
            return False
        self._messages.setdefault(payload.topic, []).append(message)
        return True

    def write(self, sql: Sql) -> None:
        """All of them, by topic: whoever appends to several streams locks them in one order."""
        if self._messages:
            for topic in sql.streams().append(dict(sorted(self._messages.items()))):
                self._leave_out(topic, "its stream has ended")

    def _leave_out(self, topic: str, why: str) -> None:
        if self._log.count_event():
            what = "messages of topic %s are not shared: %s (%d such messages so far)"
            logger.warning(what, quote_for_log(topic[:100]), why, self._log.count)


class GroupSharing:
    """What becomes of the messages of one transaction that groups want.

    A message of QoS 0 is not appended: it goes to the client of one session of each group directly, if one is
    connected.

    Args:
        sql: of the transaction.
        matcher: of the groups.
        trie: who subscribes which filter.
        find_owners: of these routes to sessions, those to the owners of sessions whose client is connected.
    """

    def __init__(
        self, sql: Sql, matcher: GroupMatcher, trie: RouteTrie, find_owners: Callable[[Sequence[Route]], Routes]
    ) -> None:
        matcher.catch_up(sql)
        self._sql = sql
        self._matcher = matcher
        self._trie = trie
        self._find_owners = find_owners
        self._members: dict[str, Routes] = {}
        """Filter of a group -> its members that are connected, as far as this transaction has asked."""
        self._batch = StreamBatch(matcher.left_out)
        self._ways = {PublishWay.MEMBER: self._to_members, PublishWay.STREAM: self._to_stream}

    def find_routes(self, message: PutMessage) -> Sequence[Route]:
        """Those to groups, and to members of groups; the message is appended by `write`."""
        filters = [f"$share/{group}/{topic_filter}" for group, topic_filter in self._matcher.match(message.topic)]
        way = self._ways.get(choose_way(message.qos, bool(filters), message.is_appended))
        return () if way is None else way(message, filters)

    def write(self) -> None:
        """Append all of them."""
        self._batch.write(self._sql)

    def _choose_member(self, topic_filter: str) -> Routes:
        """A member that is connected, in turn; nothing: there is none."""
        members = self._members.get(topic_filter)
        if members is None:
            members = self._members[topic_filter] = self._find_connected(topic_filter)
        turn = self._matcher.turns[topic_filter]
        self._matcher.turns[topic_filter] += 1
        return (members[turn % len(members)],) if members else ()

    def _find_connected(self, topic_filter: str) -> Routes:
        """Of the sessions that subscribe the filter the first that are connected."""
        routes = [Route(one, topic_filter, 0) for one in self._trie.sessions_of(topic_filter)]
        pieces = (routes[begin : begin + MEMBERS_MAX] for begin in range(0, len(routes), MEMBERS_MAX))
        return next(filter(None, map(self._find_owners, pieces)), ())

    def _to_members(self, message: PutMessage, filters: Sequence[str]) -> list[Route]:
        return [member for one in filters for member in self._choose_member(one)]

    def _to_stream(self, message: PutMessage, filters: Sequence[str]) -> list[Route]:
        terms = SharedTerms(message.qos, ends_at(self._sql.now_ns, message.expiry_ms))
        is_added = self._batch.add(Payload(message.topic, message.payload, message.head), terms)
        return [Route("", one, message.qos) for one in filters] if is_added else []
