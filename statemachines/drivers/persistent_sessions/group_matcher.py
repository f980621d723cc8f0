"""GroupMatcher: which declared groups a topic is for, as of the transaction that stores a message."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.persistent_sessions.host_request import PutMessage, Routes
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_trie import TOPIC_MAX, Route, RouteTrie
from statemachines.drivers.persistent_sessions.shared_message_codec import SharedTerms, add_terms
from statemachines.drivers.persistent_sessions.sql import Sql
from statemachines.drivers.rate_limited_log import RateLimitedLog
from statemachines.drivers.shared_subscriptions.guest_streams import Version, check_storable
from statemachines.drivers.shared_subscriptions.record_codec import RecordCodec
from statemachines.drivers.shared_subscriptions.store import StoredPayload
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.shared_group import PublishWay, choose_way, ends_at
from statemachines.shared_subscriptions.group_store import Properties
from statemachines.shared_subscriptions.names import record_name
from statemachines.shared_subscriptions.stream_store import parse_filter
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

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

    def _to_members(self, message: PutMessage, filters: Sequence[str]) -> list[Route]:
        return [member for one in filters for member in self._choose_member(one)]

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

    def _to_stream(self, message: PutMessage, filters: Sequence[str]) -> list[Route]:
        terms = SharedTerms(message.qos, ends_at(self._sql.now_ns, message.expiry_ms))
        is_added = self._batch.add(Payload(message.topic, message.payload, message.head), terms)
        return [Route("", one, message.qos) for one in filters] if is_added else []
