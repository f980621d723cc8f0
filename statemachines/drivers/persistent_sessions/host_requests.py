"""Host requests: what a node asks of its store beside its machines, and the routes by which its messages are stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from statemachines.drivers.persistent_sessions.group_rows import (
    MESSAGES,
    GroupMatcher,
    GroupSharing,
)
from statemachines.drivers.persistent_sessions.life_requests import (
    has_ended,
    take_will,
)
from statemachines.drivers.persistent_sessions.machine_requests import decode_more
from statemachines.drivers.persistent_sessions.payloads import Payload, to_payload
from statemachines.drivers.persistent_sessions.route_rows import (
    FRONT,
    PUT_OPEN_ROWS,
    PutMessage,
    RetainedFull,
    Routes,
    has_room_retained,
    put_messages,
    put_retained,
)
from statemachines.drivers.persistent_sessions.route_trie import Route, RouteTrie, is_for_session, of_sessions
from statemachines.drivers.persistent_sessions.session_row import is_current
from statemachines.drivers.persistent_sessions.sql import UNDELIVERED, Sql, StoreRequest, all_of, read_one
from statemachines.kernel import life_of
from statemachines.persistent_sessions.message import Queued, choose_routes, find_volatile, leave_out_absent
from statemachines.persistent_sessions.times import MS

LOOK: Final = 1_000
"""Rows of one writer that are followed at once."""

READ: Final = 100
"""Messages that are read at once; their payloads are counted only then."""


class ReadStoreTime(StoreRequest[int], frozen=True):
    """What time is it, by the store's time?  Later than every commit before; answered with nanoseconds."""

    def answer(self, sql: Sql, routes: Any) -> int:
        return sql.now_ns


class PutCarried(StoreRequest["int | None"], frozen=True):
    """Store messages of a group's stream for this session alone, as (id, payload), if it still subscribes the filter
    and no higher token has been here; answered with the quality of the subscription, or None: it does not."""

    session: str
    token: int
    filter: str
    messages: tuple[tuple[str, Payload], ...]

    def answer(self, sql: Sql, routes: Any) -> int | None:
        """No topic leads to it: what was published under the same name is for others."""
        if not is_current(sql, self):
            return None
        statement = "SELECT qos FROM @routes WHERE session = :session AND filter = :filter AND gone = 0"
        found = read_one(sql, statement, session=self.session, filter=self.filter)
        if found is None:
            return None
        put_messages(sql, [(*message, found[0]) for message in self.messages])
        return int(found[0])


class DropRows(StoreRequest[int], frozen=True):
    """Rows `first` to `last` of this writer and epoch have no message any more, for this session, unless it has taken
    them; answered with how many had one."""

    session: str
    writer: str
    epoch: int
    first: int
    last: int

    def answer(self, sql: Sql, routes: Any) -> int:
        return sql.count(
            "UPDATE @session_rows SET message = :none WHERE session = :session AND writer = :writer AND epoch = :epoch"
            f" AND number BETWEEN :first AND :last AND tag = {UNDELIVERED} AND message <> :none AND NOT EXISTS"
            " (SELECT 1 FROM @taken AS taken WHERE taken.session = @session_rows.session"
            " AND taken.writer = @session_rows.writer AND (taken.epoch, taken.number)"
            " >= (@session_rows.epoch, @session_rows.number))",
            none=b"",
            **asdict(self),
        )


class ReadPayloads(StoreRequest["dict[str, Payload | None]"], frozen=True):
    """Answered with id -> payload, or None for one that is not there: of the first of them, as many as have
    `bytes_max` bytes of payload, and a few more; those behind are to be asked for again."""

    ids: tuple[str, ...]
    bytes_max: int

    def answer(self, sql: Sql, routes: Any) -> dict[str, Payload | None]:
        read: dict[str, Payload | None] = {}
        size = 0
        for begin in range(0, len(self.ids), READ):
            piece = self.ids[begin : begin + READ]
            found = all_of(sql, MESSAGES, [one.encode() for one in piece])
            read.update(dict.fromkeys(piece))
            read |= {message.decode(): to_payload(row) for message, *row in found}
            size += sum(len(one.data) for one in map(read.get, piece) if one is not None)
            if size >= self.bytes_max:
                break
        return read


class Beat(StoreRequest[None], frozen=True):
    """The node lives for `lease_ms` from now on."""

    node: str
    lease_ms: int

    def answer(self, sql: Sql, routes: Any) -> None:
        statement = "UPDATE @nodes SET until_ns = :until_ns WHERE name = :name"
        sql.run(statement, name=self.node, until_ns=sql.now_ns + self.lease_ms * MS)


class ReadNodes(StoreRequest[tuple[str, ...]], frozen=True):
    """Answered with a tuple of the names of nodes that live, by the clock of the database."""

    def answer(self, sql: Sql, routes: Any) -> tuple[str, ...]:
        found = sql.all("SELECT name FROM @nodes WHERE until_ns > :now_ns", now_ns=sql.now_ns)
        return tuple(sorted(name.decode() for (name,) in found))


class WatchedSession(msgspec.Struct, frozen=True):
    """A session that is live here: what is followed of each writer of other nodes, as (writer, epoch, number)."""

    session: str
    token: int
    followed: tuple[tuple[str, int, int], ...]


class LagAnswer(msgspec.Struct, frozen=True):
    """`superseded`: a higher token has been there, or the session is gone; `writers` of other nodes that have begun;
    `rows` behind what is followed, as (writer, epoch, row)."""

    session: str
    superseded: bool
    writers: tuple[str, ...] = ()
    rows: tuple[tuple[str, int, Queued], ...] = ()


class Look(StoreRequest[tuple[LagAnswer, ...]], frozen=True):
    """What have others done?  `node` is ours; answered with a `LagAnswer` for each."""

    node: str
    watched: tuple[WatchedSession, ...]

    def answer(self, sql: Sql, routes: Any) -> tuple[LagAnswer, ...]:
        return tuple(self._look_at(sql, each) for each in self.watched)

    def _look_at(self, sql: Sql, watched: WatchedSession) -> LagAnswer:
        if not is_current(sql, watched):
            return LagAnswer(watched.session, True)
        writers = sql.all(
            "SELECT DISTINCT writer FROM @epochs WHERE session = :session AND writer <> :node ORDER BY 1",
            session=watched.session, node=self.node,
        )  # fmt: skip
        rows = tuple(
            (writer, row[0], Queued(row[1], row[2].decode(), row[3].decode(), row[4], row[5], 0, decode_more(row[6])))
            for writer, epoch, number in watched.followed
            for row in sql.all(
                "SELECT epoch, number, message, filter, qos, until_ns, more FROM @session_rows WHERE session = :session"
                f" AND writer = :writer AND tag = {UNDELIVERED} AND (epoch, number) > (:epoch, :number)"
                f" ORDER BY epoch, number LIMIT {LOOK}",
                session=watched.session, writer=writer, epoch=epoch, number=number,
            )
        )  # fmt: skip
        return LagAnswer(watched.session, False, tuple(writer.decode() for (writer,) in writers), rows)


ROUTES: Final = "SELECT routes, forgotten FROM @store"


KnownRoutes = dict[tuple[int, bool], tuple[Routes, Routes, Routes]]
"""Of one transaction: routes, by their identity and whether the message has QoS 0 -> the routes, those of them by which
it is stored, and those to owners."""


class HostRequests:
    """It knows the routes as of the last transaction that asked for them."""

    def __init__(self, where: str = "") -> None:
        self._where = where
        self.trie = RouteTrie()
        self.matcher: GroupMatcher | None = None
        """What finds the groups of a message; None: their streams are not in this database."""
        self._caught_up = False
        """In the transaction that is open."""

    def settle(self) -> None:
        """The transaction is committed."""
        self._caught_up = False

    def forget(self) -> None:
        """It is not, or nobody knows: what was read within it may never have been."""
        if self._caught_up:
            self.trie = RouteTrie()
        if self.matcher is not None:
            self.matcher.forget()
        self._caught_up = False

    def share_streams(self) -> None:
        """From now on messages are appended to the streams of groups in this database."""
        self.matcher = GroupMatcher(self._where)

    # -- routes ---------------------------------------------------------------------------------------------------

    def catch_up(self, sql: Sql) -> None:
        """The routes as this transaction finds them."""
        ((version, forgotten),) = sql.all(ROUTES)
        if self.trie.version > version or self.trie.version < forgotten:
            self.trie = RouteTrie()  # of another store, or too far behind
        if self.trie.version == version:
            return
        self._caught_up = True
        changed = sql.all(
            "SELECT session, filter, qos, gone, options FROM @routes WHERE version > :known ORDER BY version",
            known=self.trie.version,
        )
        for session, topic_filter, qos, gone, options in changed:
            if gone:
                self.trie.remove(session.decode(), topic_filter.decode())
            else:
                self.trie.put(session.decode(), topic_filter.decode(), qos, options >= FRONT)
        self.trie.version = version

    # -- messages -------------------------------------------------------------------------------------------------

    def put_messages(self, sql: Sql, messages: Sequence[PutMessage]) -> list[Routes | RetainedFull | None]:
        """Store those that some session has subscribed; the routes of each, or why it may not be stored."""
        self.catch_up(sql)
        sharing = self._begin_sharing(sql, messages)
        found: list[tuple[PutMessage, Routes | RetainedFull | None]] = []
        known: KnownRoutes = {}
        for asked in messages:
            its = self._find_routes(sql, asked, sharing, known)
            found.append((asked, its))
            if asked.retain and isinstance(its, tuple):  # before there is a look for room for the next one
                put_retained(sql, asked)
        stored = [(one, its) for one, its in found if isinstance(its, tuple) and is_for_session(its)]
        put_messages(sql, [(one.id, Payload(one.topic, one.payload, one.head), one.qos) for one, _ in stored])
        now_ns = sql.now_ns
        rows = [
            (one.id.encode(), to.session.encode(), to.filter.encode(), min(to.qos, one.qos), to.until_ns, now_ns, None)
            for one, its in stored
            for to in (of_sessions(its) if one.is_once else ())
        ]
        sql.put_many(PUT_OPEN_ROWS, rows)
        if sharing is not None:
            sharing.write()
        return [its for _, its in found]

    def find_routes(self, sql: Sql, messages: Sequence[PutMessage]) -> list[Routes]:
        """The routes of messages of which nothing is to be stored here."""
        self.catch_up(sql)
        sharing = self._begin_sharing(sql, messages)
        known: KnownRoutes = {}
        return [self._match_all(sql, one, sharing, known) for one in messages]

    def _match_all(
        self,
        sql: Sql,
        asked: PutMessage,
        sharing: GroupSharing | None,
        known: KnownRoutes,
    ) -> Routes:
        """The routes to sessions, behind them those to groups, and those to owners of sessions that get QoS 0."""
        routes = self.match(asked)
        shared = () if sharing is None else sharing.find_routes(asked)
        key = id(routes), asked.qos == 0
        found = known.get(key)
        if found is None or found[0] is not routes:
            volatile = find_volatile(routes, asked.qos)
            stored = leave_out_absent(routes, {one.session for one in volatile}) if volatile else routes
            found = known[key] = routes, stored, self._find_owners(sql, volatile)
        _, stored, owners = found
        return (*stored, *shared, *owners) if shared or owners else stored

    def _begin_sharing(self, sql: Sql, messages: Sequence[PutMessage]) -> GroupSharing | None:
        """What becomes of those that groups want; None: no group is declared."""
        if self.matcher is None:
            return None
        sharing = GroupSharing(sql, self.matcher, self.trie, partial(self._find_owners, sql))
        return sharing if self.matcher.has_groups or any(one.is_appended for one in messages) else None

    def _find_owners(self, sql: Sql, volatile: Sequence[Route]) -> Routes:
        """These subscriptions as routes to the owners of their sessions; an absent client has none (MQ-191)."""
        if not volatile:
            return ()
        keys = [one.session.encode() for one in volatile]
        found = {
            bytes(session).decode(): bytes(connection)
            for session, connection in all_of(
                sql,
                "SELECT session, connection FROM @sessions WHERE session IN ({keys}) AND connection <> :nobody",
                keys,
                nobody=b"",
            )
        }
        lives = {life_of(connection.decode()): connection for connection in found.values()}
        ended = {life for life, connection in lives.items() if has_ended(sql, connection)}
        owners = {session: owner.decode() for session, owner in found.items() if life_of(owner.decode()) not in ended}
        return tuple(Route("", one.filter, 0, owner=owners[one.session]) for one in volatile if one.session in owners)

    def find_known(self, requests: Sequence[object]) -> list[Routes] | None:
        """Routes of messages, where no route has changed since they were looked up last; None: that is not enough."""
        if self.matcher is not None and self.matcher.has_groups:
            return None
        found: list[Routes] = []
        before: tuple[Routes, int] | None = None
        for asked in requests:
            if not isinstance(asked, PutMessage) or asked.is_appended:
                return None
            routes = self.match(asked)
            if before is None or before[0] is not routes or before[1] != asked.qos:  # else as the one before
                if find_volatile(routes, asked.qos):
                    return None  # who is connected is another question
                before = routes, asked.qos
            found.append(routes)
        return found

    def match(self, asked: PutMessage) -> Routes:
        """The routes of a message, as far as they are known."""
        if not asked.without:
            return self.trie.find_routes(asked.topic)
        found = self.trie.match(asked.topic)
        return choose_routes([one for one in found if (one.session, one.filter) not in asked.without])

    def _find_routes(
        self,
        sql: Sql,
        asked: PutMessage,
        sharing: GroupSharing | None,
        known: KnownRoutes,
    ) -> Routes | RetainedFull | None:
        """With the moment from which on the message is over; a packet id is kept with it."""
        if asked.needs_room and not has_room_retained(sql, asked):
            return RetainedFull()
        if asked.will and not take_will(sql, asked.will):
            return None
        publisher = asked.packet
        if publisher is not None:
            session, _, packet = publisher
            if not is_current(sql, publisher):
                return None
            statement = "INSERT INTO @received VALUES (:session, :packet, :message) ON CONFLICT DO NOTHING"
            if not sql.count(statement, session=session, packet=packet, message=asked.id):
                return ()  # it is stored
        routes = self._match_all(sql, asked, sharing, known)
        if asked.expiry_ms is None:
            return routes
        until_ns = over_at(sql.clock_ns, asked.expiry_ms)
        return tuple(route._replace(until_ns=until_ns) for route in routes)


def over_at(now_ns: int, expiry_ms: int) -> int:
    """When a message that is stored now is over."""
    return now_ns + expiry_ms * MS


def begin_life(sql: Sql, node: str, lease_ms: int) -> int:
    """The next life of a node."""
    found = read_one(sql, "SELECT life FROM @nodes WHERE name = :name", name=node)
    life = 1 if found is None else found[0] + 1
    sql.run(
        "INSERT INTO @nodes VALUES (:name, :life, :until_ns, 0) ON CONFLICT (name) DO UPDATE SET"
        " life = excluded.life, until_ns = excluded.until_ns, batch = 0",
        name=node, life=life, until_ns=sql.now_ns + lease_ms * MS,
    )  # fmt: skip
    return int(life)
