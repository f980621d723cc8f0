"""Host requests: everything in `host_request`, carried out in a transaction.

Declared groups: those that only a front's subscriptions declared, and that end when nobody subscribes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from statemachines.drivers.persistent_sessions.group_rows import (
    MESSAGES,
    GroupMatcher,
    GroupSharing,
    count_waiting,
    group_filters,
    read_returned,
)
from statemachines.drivers.persistent_sessions.host_request import (
    Beat,
    CountWaiting,
    DeclareGroup,
    DropRows,
    DropWill,
    EndWills,
    FindDueWills,
    ForgetGroup,
    FrontSubscribed,
    HostRequest,
    LagAnswer,
    ListIdleGroups,
    Look,
    PutCarried,
    PutMessage,
    ReadFilters,
    ReadGroups,
    ReadNodes,
    ReadOptions,
    ReadPackets,
    ReadPayloads,
    ReadReturned,
    ReadStoreTime,
    ReadUnfinished,
    ReleasePacket,
    RetainedFull,
    RetainedMessage,
    Routes,
    ShowMarker,
    ShownMarker,
    Subscribe,
    SubscribeFront,
    Unsubscribe,
    WatchedSession,
)
from statemachines.drivers.persistent_sessions.life_requests import (
    drop_will,
    end_wills_of_nodes,
    find_due,
    has_ended,
    take_will,
)
from statemachines.drivers.persistent_sessions.machine_requests import (
    epoch_of,
    is_current,
    is_there,
    put_marker,
    to_queued,
)
from statemachines.drivers.persistent_sessions.node_messages import RetainHandling
from statemachines.drivers.persistent_sessions.payloads import Payload, name_group, spell_group, to_payload
from statemachines.drivers.persistent_sessions.route_rows import (
    FRONT,
    drop_retained_rows,
    find_retained,
    has_room,
    has_room_retained,
    has_route,
    keep_packet,
    list_filters,
    put_fan_out,
    put_options,
    put_retained,
    put_retained_rows,
    put_route,
    read_options,
    read_packets,
    read_unfinished,
    release_packet,
    remove_route,
)
from statemachines.drivers.persistent_sessions.route_trie import Route, RouteTrie, is_for_session, of_sessions
from statemachines.drivers.persistent_sessions.sql import MARKER, UNDELIVERED, Sql, all_of, read_one
from statemachines.kernel import life_of
from statemachines.persistent_sessions.fan_out import choose_routes, find_volatile, leave_out_absent
from statemachines.persistent_sessions.shared_group import IS_ENDING, age_group, is_kept, refuse_declaration
from statemachines.persistent_sessions.times import MS

PUT: Final = (
    "INSERT INTO @declared_groups VALUES (:filter, :idle_ns)"
    " ON CONFLICT (filter) DO UPDATE SET idle_ns = excluded.idle_ns"
)


def declare_group(sql: Sql, asked: DeclareGroup, is_known: bool) -> str:
    """Why the group may not be declared; "": it may.  `is_known`: it is declared, by whomever."""
    group = name_group(asked.filter).encode()
    its = read_one(sql, "SELECT idle_ns FROM @declared_groups WHERE filter = :filter", filter=group)
    idle_ns = None if its is None else int(its[0])
    others = set(group_filters(sql, asked.session.encode())) - {asked.filter}
    ((count,),) = sql.all("SELECT count(*) FROM @declared_groups")
    refusal = refuse_declaration(idle_ns, is_known, len(others), count)
    if not refusal and is_kept(idle_ns, is_known):
        sql.run(PUT, filter=group, idle_ns=0)
    return refusal


def list_idle_groups(sql: Sql, asked: ListIdleGroups, trie: RouteTrie) -> tuple[str, ...]:
    """The filters of groups that end now, and of those whose end was begun."""
    ages: dict[str, int] = {}
    for group, idle_ns in sql.all("SELECT filter, idle_ns FROM @declared_groups ORDER BY filter"):
        spellings = spell_group(bytes(group).decode())
        is_subscribed = any(map(trie.sessions_of, spellings))
        ages[spellings[0]] = new_ns = age_group(idle_ns, is_subscribed, sql.now_ns, asked.expiry_ms)
        if new_ns != idle_ns:
            sql.run(PUT, filter=group, idle_ns=new_ns)
    return tuple(one for one, idle_ns in ages.items() if idle_ns == IS_ENDING)


def forget_group(sql: Sql, topic_filter: str) -> None:
    """What is kept of a group that was destroyed."""
    group = name_group(topic_filter).encode()
    for table in ("declared_groups", "carried", "returned"):
        sql.run(f"DELETE FROM @{table} WHERE filter = :filter", filter=group)


LOOK: Final = 1_000
"""Rows of one writer that are followed at once."""

READ: Final = 100
"""Messages that are read at once; their payloads are counted only then."""

READS: Final = (
    ReadPayloads, ReadOptions, ReadPackets, ReadUnfinished, FindDueWills, ReadNodes, ReadFilters, ReadGroups,
    ReadReturned, CountWaiting, Look,
)  # fmt: skip
"""What changes nothing."""

THERE: Final = "SELECT id FROM @messages WHERE id IN ({keys})"
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
        self._kinds: dict[type[HostRequest], Callable[[Sql, Any], Any]] = {
            Subscribe: self._subscribe,
            SubscribeFront: self._subscribe_front,
            ReadOptions: lambda sql, asked: read_options(sql, asked.session.encode()),
            Unsubscribe: self._unsubscribe,
            PutMessage: lambda sql, asked: self.put_messages(sql, (asked,))[0],
            ReleasePacket: self._release_packet,
            DropWill: lambda sql, asked: drop_will(sql, asked.connection.encode()),
            FindDueWills: lambda sql, asked: find_due(sql),
            EndWills: lambda sql, asked: end_wills_of_nodes(sql),
            ReadPackets: lambda sql, asked: read_packets(sql, asked.session.encode()),
            ReadUnfinished: lambda sql, asked: read_unfinished(sql, asked.age_ms),
            PutCarried: self._put_carried,
            ReadStoreTime: lambda sql, _: sql.now_ns,
            ReadFilters: lambda sql, asked: list_filters(sql, asked.session.encode()),
            ReadGroups: lambda sql, asked: group_filters(sql, asked.session.encode()),
            DeclareGroup: self._declare_group,
            ListIdleGroups: self._list_idle_groups,
            ForgetGroup: lambda sql, asked: forget_group(sql, asked.filter),
            ReadReturned: lambda sql, asked: read_returned(sql, asked.groups),
            CountWaiting: lambda sql, asked: count_waiting(sql, asked.session.encode(), asked.filter, asked.most),
            DropRows: self._drop_rows,
            ReadPayloads: self._read_messages,
            Beat: self._beat,
            ReadNodes: self._read_nodes,
            ShowMarker: self._show_marker,
            Look: self._look,
        }

    def answer(self, sql: Sql, request: HostRequest) -> Any:
        """What it is answered with."""
        return self._kinds[type(request)](sql, request)

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

    def _subscribe(self, sql: Sql, asked: Subscribe) -> bool | None:
        session = asked.session.encode()
        if not is_current(sql, asked):
            return False
        if not has_room(sql, session, asked.filter.encode()):
            return None
        put_route(sql, session, asked.filter.encode(), asked.qos)
        return True

    def _subscribe_front(self, sql: Sql, asked: SubscribeFront) -> FrontSubscribed:
        session, topic_filter = asked.session.encode(), asked.filter.encode()
        is_wanted = asked.handling is RetainHandling.ALWAYS or (
            asked.handling is RetainHandling.IF_NEW and not has_route(sql, session, topic_filter)
        )
        done = self._subscribe(sql, asked)
        if not done:
            return FrontSubscribed(done)
        put_options(sql, session, topic_filter, asked.options)
        return FrontSubscribed(True, tuple(self._copy_retained(sql, asked)) if is_wanted else ())

    def _copy_retained(self, sql: Sql, asked: SubscribeFront) -> list[RetainedMessage]:
        """The retained messages for the subscription, each of the lower quality of both; a newer one of its topic
        takes its place until its row is stored.  Those of QoS 0 are not stored."""
        found = [
            one._replace(qos=min(one.qos, asked.qos), message=f"{asked.message}.{number}")
            for number, one in enumerate(find_retained(sql, asked.filter))
        ]
        stored = [one for one in found if one.qos]
        put_messages(sql, [(one.message, one.payload, one.qos) for one in stored])
        put_retained_rows(sql, asked, stored)
        return found

    def _unsubscribe(self, sql: Sql, asked: Unsubscribe) -> bool:
        session = asked.session.encode()
        if not is_current(sql, asked):
            return False
        remove_route(sql, session, asked.filter.encode())
        return True

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
                drop_retained_rows(sql, asked.topic.encode())
                put_retained(sql, asked)
        stored = [(one, its) for one, its in found if isinstance(its, tuple) and is_for_session(its)]
        store_messages(sql, [one for one, _ in stored])
        put_fan_out(sql, [(one, of_sessions(its)) for one, its in stored if one.is_once])
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
        if asked.will and not take_will(sql, asked.will.encode()):
            return None
        publisher = asked.packet
        if publisher is not None:
            if not is_current(sql, publisher):
                return None
            if not keep_packet(sql, publisher, asked.id):
                return ()  # it is stored
        routes = self._match_all(sql, asked, sharing, known)
        if asked.expiry_ms is None:
            return routes
        until_ns = over_at(sql.clock_ns, asked.expiry_ms)
        return tuple(route._replace(until_ns=until_ns) for route in routes)

    def _release_packet(self, sql: Sql, asked: ReleasePacket) -> bool:
        if not is_current(sql, asked.packet):
            return False
        release_packet(sql, asked.packet)
        return True

    def _put_carried(self, sql: Sql, asked: PutCarried) -> int | None:
        """No topic leads to it: what was published under the same name is for others."""
        session = asked.session.encode()
        if not is_current(sql, asked):
            return None
        found = read_one(
            sql,
            "SELECT qos FROM @routes WHERE session = :session AND filter = :filter AND gone = 0",
            session=session,
            filter=asked.filter.encode(),
        )
        if found is None:
            return None
        put_messages(sql, [(*message, found[0]) for message in asked.messages])
        return int(found[0])

    def _declare_group(self, sql: Sql, asked: DeclareGroup) -> str:
        if self.matcher is not None:
            self.matcher.catch_up(sql)
        is_known = self.matcher is not None and self.matcher.is_declared(asked.filter)
        return declare_group(sql, asked, is_known)

    def _list_idle_groups(self, sql: Sql, asked: ListIdleGroups) -> tuple[str, ...]:
        self.catch_up(sql)
        return list_idle_groups(sql, asked, self.trie)

    def _drop_rows(self, sql: Sql, asked: DropRows) -> int:
        return sql.count(
            "UPDATE @session_rows SET message = :none WHERE session = :session AND writer = :writer AND epoch = :epoch"
            f" AND number BETWEEN :first AND :last AND tag = {UNDELIVERED} AND message <> :none AND NOT EXISTS"
            " (SELECT 1 FROM @taken AS taken WHERE taken.session = @session_rows.session"
            " AND taken.writer = @session_rows.writer AND (taken.epoch, taken.number)"
            " >= (@session_rows.epoch, @session_rows.number))",
            session=asked.session.encode(), writer=asked.writer.encode(), epoch=asked.epoch,
            first=asked.first, last=asked.last, none=b"",
        )  # fmt: skip

    def _read_messages(self, sql: Sql, asked: ReadPayloads) -> dict[str, Payload | None]:
        read: dict[str, Payload | None] = {}
        size = 0
        for begin in range(0, len(asked.ids), READ):
            piece = asked.ids[begin : begin + READ]
            found = all_of(sql, MESSAGES, [one.encode() for one in piece])
            read.update(dict.fromkeys(piece))
            read |= {message.decode(): to_payload(row) for message, *row in found}
            size += sum(len(one.data) for one in map(read.get, piece) if one is not None)
            if size >= asked.bytes_max:
                break
        return read

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _beat(self, sql: Sql, asked: Beat) -> None:
        sql.run(
            "UPDATE @nodes SET until_ns = :until_ns WHERE name = :name",
            name=asked.node.encode(), until_ns=sql.now_ns + asked.lease_ms * MS,
        )  # fmt: skip

    def _read_nodes(self, sql: Sql, asked: ReadNodes) -> tuple[str, ...]:
        found = sql.all("SELECT name FROM @nodes WHERE until_ns > :now_ns", now_ns=sql.now_ns)
        return tuple(sorted(name.decode() for (name,) in found))

    def _show_marker(self, sql: Sql, asked: ShowMarker) -> ShownMarker | None:
        """All of it is one transaction, so it is a step of the writer's order as if the writer had taken it."""
        session, writer = asked.session.encode(), asked.writer.encode()
        epoch, last = epoch_of(sql, session, writer)
        if not epoch or not is_there(sql, session):
            return None
        put_marker(sql, session, writer, epoch, last + 1, (asked.token, asked.n))
        found = read_one(
            sql,
            "SELECT k FROM @session_rows WHERE session = :session AND writer = :writer AND epoch = :epoch"
            f" AND number = 0 AND tag = {MARKER} AND token = :token AND n = :n",
            session=session, writer=writer, epoch=epoch, token=asked.token, n=asked.n,
        )  # fmt: skip
        return None if found is None else ShownMarker(epoch, found[0])

    def _look(self, sql: Sql, asked: Look) -> tuple[LagAnswer, ...]:
        return tuple(self._look_at(sql, asked.node.encode(), each) for each in asked.watched)

    def _look_at(self, sql: Sql, node: bytes, watched: WatchedSession) -> LagAnswer:
        session = watched.session.encode()
        if not is_current(sql, watched):
            return LagAnswer(watched.session, True)
        writers = sql.all(
            "SELECT DISTINCT writer FROM @epochs WHERE session = :session AND writer <> :node ORDER BY 1",
            session=session, node=node,
        )  # fmt: skip
        rows = tuple(
            (writer, row[0], to_queued(row, more=row[6]))
            for writer, epoch, number in watched.followed
            for row in sql.all(
                "SELECT epoch, number, message, filter, qos, until_ns, more FROM @session_rows"
                f" WHERE session = :session AND writer = :writer AND tag = {UNDELIVERED} AND (epoch, number) >"
                " (:epoch, :number)"
                f" ORDER BY epoch, number LIMIT {LOOK}",
                session=session,
                writer=writer.encode(),
                epoch=epoch,
                number=number,
            )
        )
        return LagAnswer(watched.session, False, tuple(writer.decode() for (writer,) in writers), rows)


def over_at(now_ns: int, expiry_ms: int) -> int:
    """When a message that is stored now is over."""
    return now_ns + expiry_ms * MS


def begin_life(sql: Sql, node: str, lease_ms: int) -> int:
    """The next life of a node."""
    name = node.encode()
    found = read_one(sql, "SELECT life FROM @nodes WHERE name = :name", name=name)
    life = 1 if found is None else found[0] + 1
    sql.run(
        "INSERT INTO @nodes VALUES (:name, :life, :until_ns, 0) ON CONFLICT (name) DO UPDATE SET"
        " life = excluded.life, until_ns = excluded.until_ns, batch = 0",
        name=name, life=life, until_ns=sql.now_ns + lease_ms * MS,
    )  # fmt: skip
    return int(life)


def put_missing(sql: Sql, payloads: Mapping[str, Payload], qos: Mapping[str, int]) -> None:
    """Store those of these messages that are not there; the others are not sent to the database again."""
    there = {message.decode() for (message,) in all_of(sql, THERE, [one.encode() for one in payloads])}
    put_messages(sql, [(one, payload, qos[one]) for one, payload in payloads.items() if one not in there])


def store_messages(sql: Sql, messages: Sequence[PutMessage]) -> None:
    """Those that are not there."""
    put_messages(sql, [(one.id, Payload(one.topic, one.payload, one.head), one.qos) for one in messages])


def put_messages(sql: Sql, messages: Sequence[tuple[str, Payload, int]]) -> None:
    """Store messages, as (id, payload, qos), that are not there."""
    sql.put_many(
        "INSERT INTO @messages VALUES (:id, :topic, :payload, :qos, :time_ns, :head) ON CONFLICT DO NOTHING",
        [(message.encode(), one.topic.encode(), one.data, qos, sql.now_ns, one.head) for message, one, qos in messages],
    )
