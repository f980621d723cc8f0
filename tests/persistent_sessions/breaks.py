"""How the clauses of persistent sessions that are no rows are broken (tools/clauses.py)."""

from unittest.mock import AsyncMock, patch

from msgspec import structs
from mutants import swap, wrap

from statemachines import wire
from statemachines.drivers import complaint_log, metrics_endpoint, tcp, topic
from statemachines.drivers.authority import Authority
from statemachines.drivers.loop_watchdog import LoopWatchdog
from statemachines.drivers.message_head import EMPTY
from statemachines.drivers.password_file import PasswordHash
from statemachines.drivers.permission_file import PermissionFile
from statemachines.drivers.persistent_sessions import (
    client_requests,
    collector_requests,
    group_membership,
    group_rows,
    host_requests,
    life_requests,
    machine_requests,
    node_link,
    operator_requests,
    outbox,
    persistent_session,
    postgres,
    request_batch,
    request_queue,
    route_rows,
    route_trie,
    session_node,
    session_publisher,
    session_row,
    session_server,
    sqlite,
    store,
    upkeep,
)
from statemachines.drivers.persistent_sessions.client_requests import ClientRights
from statemachines.drivers.persistent_sessions.group_membership import GroupMembership
from statemachines.drivers.persistent_sessions.group_rows import GroupMatcher
from statemachines.drivers.persistent_sessions.machine_requests import PayloadBound
from statemachines.drivers.persistent_sessions.node_link import NodeGuide
from statemachines.drivers.persistent_sessions.node_messages import NODE
from statemachines.drivers.persistent_sessions.outbox import UnstoredMessages
from statemachines.drivers.persistent_sessions.postgres import PostgresSessions
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_trie import RouteTrie
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.persistent_sessions.session_row import SessionRow
from statemachines.drivers.persistent_sessions.session_server import SessionServer
from statemachines.drivers.persistent_sessions.sql import TimeWatch
from statemachines.drivers.persistent_sessions.store import SessionStore
from statemachines.drivers.shared_subscriptions.shared_session import Deliveries, SharedSession
from statemachines.drivers.sql import loop_connection, postgres_address, store_version
from statemachines.drivers.sql import postgres as sql_postgres
from statemachines.drivers.sql.loop_connection import LoopConnection
from statemachines.drivers.sql.silent_server import ServerConnections
from statemachines.drivers.sql.sqlite import QuickWork
from statemachines.drivers.tcp import Connection, TcpTransport
from statemachines.kernel import Ask
from statemachines.kernel.process import begin_nothing
from statemachines.persistent_sessions import (
    collector,
    delivery,
    group_member_record,
    in_flight,
    life_times,
    resume,
    resume_actions,
    resume_record,
    session_host_record,
    session_life,
    takeover,
    takeover_record,
    times,
    writer_actions,
)
from statemachines.persistent_sessions.collector import CollectorRecord, Graces
from statemachines.persistent_sessions.group_member_record import TimeRead
from statemachines.persistent_sessions.in_flight_record import RECEIVED
from statemachines.persistent_sessions.life_request import LockClient, UnlockClient
from statemachines.persistent_sessions.message import Subscribed, unfold_row
from statemachines.persistent_sessions.request import DATABASE, MarkDelivered
from statemachines.persistent_sessions.session_host_process import SESSION_HOST
from statemachines.persistent_sessions.session_host_record import ClockState, MatchedMessage, StoreTime


def as_if_it_were_direct(dialect, record, given, arguments):
    """Whoever answers."""
    record.info["pooled"] = False
    return dialect.loaded_dbapi.connect(*given, **{**arguments, "options": ""})


def hand_unbound(hand):
    """Rows wait for nothing."""
    return lambda messages, message, unstored, handed, since_ns=0: hand(messages, message, unstored, handed)


def without_ended(change_of):
    """Packets that are done are not said."""
    return lambda *given: structs.replace(change_of(*given), ended=())


def acknowledged_first(store):
    """The group hears of it before the database."""

    async def acknowledge(self, carrying, some):
        await some.ack()
        return await store(self, carrying, some)

    return acknowledge


def stored_twice(stack):
    """Everything of a group, and nobody notes what was stored."""
    store = GroupMembership._store

    async def store_twice(self, carrying, some):
        return await store(self, carrying, some) and await store(self, carrying, some)

    swap(GroupMembership, "_store", store_twice)(stack)
    swap(group_rows, "_take", lambda sql, origin: True)(stack)


def refuses_longer(decode):
    """A message with fields behind those that are known is refused."""

    def decode_exactly(codec, body):
        packet = decode(codec, body)
        if len(codec.encode(packet)) < wire.LENGTH_SIZE + len(body):
            raise wire.FrameError("there are fields that are not known here")
        return packet

    return decode_exactly


def bring_each(self, now_ns=0):
    brought, self._brought = self._brought, []
    for one in brought:
        self.reception.bring([one])
    return []


def each_alone(reception, visitor):
    """What was acknowledged is not folded."""
    asked, visitor.acknowledged = visitor.acknowledged, []
    for one in asked:
        reception._feed(visitor.owner, [one])


def the_first_alone(record, event):
    """However many packets it is about."""
    one = record.state.packets.get(event.packet)
    return [] if one is None else [one]


def goes_on_after(failure):
    """A batch that failed is not given again."""

    async def wrong(self, requests):
        self._batch += 1
        try:
            return await self._store.carry_out(self._life, self._batch, requests)
        except Exception:
            return [() for _ in requests]

    return wrong


def as_if_nothing_expired(garbage):
    """A message is not looked at for its age."""
    return lambda one, graces: garbage(structs.replace(one, over=False), collector)


def of_what_it_has_heard(record):
    """A lock of which a connection does not know stays."""
    return (Ask(DATABASE, UnlockClient(record.client, record.id)),) if record.token else ()


def one_place(init):
    """There is no next node."""
    return lambda self, places, **given: init(self, places[:1], **given)


def tells_of_the_first(send):
    """Of a range the publisher of the first row alone is answered."""

    def changed(*given):
        after, effects = send(*given)
        return after, effects[:1]

    return changed


def stores_the_first(put):
    """Of each range the first row alone is stored."""
    return lambda sql, ranges, where: put(sql, [structs.replace(one, rows=one.rows[:1]) for one in ranges], where)


def without_choice(clause, name):
    """The relation of a role says nothing by the clause."""

    def apply(stack):
        from statemachines.testing.persistent_sessions import conformance  # it needs Hypothesis, as few others do

        role = conformance.ROLES[name]
        kinds = ("before", "unordered", "repeated", "ranged")
        left = {kind: tuple(one for one in getattr(role.relation, kind) if one.clause != clause) for kind in kinds}
        mutant = structs.replace(role, relation=structs.replace(role.relation, **left))
        stack.enter_context(patch.dict(conformance.ROLES, {name: mutant}))

    return apply


BREAKS = {
    "PS-341": without_choice("PS-341", "writer"),
    **{clause: without_choice(clause, "session") for clause in ("PS-343", "PS-344", "PS-345", "PS-346")},
    "PS-75": swap(times, "ConfigurationError", KeyError),
    "PS-89": swap(collector, "ConfigurationError", KeyError),
    "PS-187": swap(times, "ConfigurationError", KeyError),
    "PS-115": swap(life_times, "ConfigurationError", KeyError),
    "PS-116": swap(
        session_life, "LockClient", lambda client, owner, lease_ms, aged, *which: LockClient(client, owner, lease_ms)
    ),
    "PS-280": swap(life_requests, "LAST", life_requests.LAST.replace("attempt", "0")),
    "PS-420": swap(life_requests, "LAST", life_requests.LAST.replace("instance", "NULL")),
    "PS-421": swap(life_requests, "has_ended", lambda sql, owner: False),
    "PS-422": swap(takeover, "begin_patience_ms", lambda record: record.times.begin_ms),
    "PS-424": swap(operator_requests, "has_ended", lambda sql, owner: True),
    "PS-425": swap(operator_requests, "next_token", lambda sql: 0),
    "PS-426": swap(operator_requests, "abandon", lambda sql, session: None),
    "PS-423": swap(resume, "node_of", lambda party: ""),
    "PS-122": swap(collector_requests, "_is_over", lambda sql, row, dead_ms: True),
    "PS-123": swap(life_requests, "_is_superseded", lambda sql, client, token: False),
    "PS-195": swap(resume_actions, "has_room_for_page", lambda record: True),
    "PS-201": swap(session_node, "retry_while_unavailable", lambda attempt, **given: attempt()),
    "PS-210": swap(in_flight, "time_left", lambda queued, now_ns: None),
    "PS-430": swap(persistent_session, "decode_head", lambda encoded: EMPTY),
    "PS-431": swap(client_requests, "decode_head", lambda encoded: EMPTY),
    "PS-432": swap(session_publisher, "PublishWanted", lambda *given: session_publisher.PublishWithHead(*given, b"")),
    "PS-434": swap(persistent_session, "size_of", lambda message: 0),
    "PS-211": swap(host_requests, "over_at", lambda now_ns, expiry_ms: 0),
    "PS-240": wrap(collector, "message_garbage", as_if_nothing_expired),
    "PS-241": swap(machine_requests, "without_message", lambda queued, now_ns: structs.replace(queued, message="")),
    "PS-242": swap(SessionServer, "_miss", lambda self, owner, message: None),
    "PS-200": swap(resume_actions, "is_crowded", lambda record: False),
    "PS-197": swap(
        delivery,
        "MarkDelivered",
        lambda session, writer, epoch, first, last: MarkDelivered(session, writer, epoch, first),
    ),
    # A node together.
    "PS-149": swap(SESSION_HOST, "begin", begin_nothing),
    # A node and its clients.
    "PS-550": swap(delivery, "unfold_row", lambda row: unfold_row(row)[:1]),
    "PS-551": swap(machine_requests, "limit_copies", lambda rows, most: rows),
    "PS-150": wrap(RequestQueue, "_carry_out", goes_on_after),
    "PS-151": swap(client_requests, "check_topic_text", lambda topic: topic),
    "PS-167": swap(SessionServer, "_take_acknowledged", each_alone),
    "PS-168": swap(session_row, "STATUS", dict.fromkeys(session_row.STATUS, RECEIVED.value.encode())),
    "PS-169": swap(host_requests, "READ", 10**9),
    "PS-490": wrap(delivery, "change_of", without_ended),
    "PS-191": swap(delivery, "packets_of", the_first_alone),
    "PS-198": swap(PayloadBound, "share", lambda self, rows: 2**60),
    "PS-192": swap(request_queue, "joins", lambda one, other: False),
    "PS-620": swap(SessionNode, "_bring", bring_each),
    "PS-152": swap(outbox, "UNACKNOWLEDGED_MAX", 2**60),
    "PS-154": swap(SessionStore, "_check", lambda self, sql, life: self._tried[0]),
    "PS-155": wrap(NodeGuide, "__init__", one_place),
    "PS-158": swap(SessionNode, "_is_node", lambda self, party: True),
    "PS-159": swap(SessionServer, "_forget", lambda self, life: None),
    "PS-190": swap(SessionServer, "_give_up", SessionServer._forget),
    "PS-162": swap(UnstoredMessages, "with_message", lambda self, request: request),
    "PS-164": swap(takeover_record, "is_true", lambda said, found: True),
    "PS-680": swap(takeover_record, "is_older", lambda said, held: False),
    "PS-630": swap(takeover_record.Claims, "without", lambda self, found: takeover_record.Claims()),
    "PS-166": swap(LoopWatchdog, "note_turn", lambda self: None),
    "PS-165": swap(session_node, "NODE", structs.replace(NODE, proved=())),
    "PS-202": swap(session_life, "unlock", of_what_it_has_heard),
    "PS-204": swap(machine_requests, "LEAVE_EPOCHS", f"{machine_requests.LEAVE_EPOCHS} AND 1 = 0"),
    "PS-205": wrap(Connection, "_cut", lambda cut: lambda self, why: cut(self, "no")),
    "PS-206": swap(session_server, "check_name", lambda key, name: name),
    "PS-220": swap(topic, "GROUP_PREFIXES", ()),
    "PS-260": swap(
        group_membership, "MatchedMessage", lambda session, _, *rest: MatchedMessage(session, "jobs/#", *rest)
    ),
    "PS-261": wrap(GroupMembership, "_store", acknowledged_first),
    "PS-262": wrap(
        GroupMembership, "_store", lambda store: lambda self, to, some: store(self, to, Deliveries(some[::-1]))
    ),
    "PS-263": swap(group_membership, "CARRIED_MAX", 1_000),
    "PS-264": stored_twice,
    "PS-265": swap(life_requests, "return_messages", lambda sql, session: None),
    "PS-470": swap(group_rows, "_take", lambda sql, origin: True),
    "PS-471": swap(life_requests, "return_messages", lambda sql, session: None),
    "PS-472": swap(group_rows.DeclareGroup, "answer", lambda self, sql, routes: ""),
    "PS-266": swap(host_requests, "is_current", lambda sql, asked: True),
    "PS-675": swap(store, "FrontSubscribed", str),
    "PS-267": swap(client_requests, "Refused", lambda n, why: Subscribed(n)),
    "PS-268": swap(GroupMembership, "_without_large", lambda self, some: some[:1] + some[2:]),
    "PS-269": swap(SharedSession, "is_taken_back", lambda self, subscription: False),
    "PS-287": swap(group_member_record, "TimeRead", lambda time_ns: TimeRead(1)),
    "PS-288": swap(group_rows, "_look_ahead", lambda sql, session, topic_filter, most: (0, True)),
    "PS-285": swap(SessionServer, "refuse_group", lambda self, owner, topic_filter, why: None),
    "PS-500": swap(machine_requests, "cut_pieces", lambda values, most: [values[:most]]),
    "PS-501": swap(RouteTrie, "_forget", lambda self: None),
    "PS-601": swap(route_trie, "TOPIC_MAX", 2**30),
    "PS-600": swap(collector_requests, "ALONE", collector_requests.ALONE.replace("session IS NULL AND ", "")),
    "PS-289": swap(machine_requests, "MARKERS", machine_requests.MARKERS.replace("AND tag =", "AND 0 + tag =")),
    "PS-291": swap(session_host_record, "SLACK_NS", 10**18),
    "PS-292": swap(StoreTime, "age_limit_ns", lambda self, now_ns: now_ns),
    "PS-293": swap(session_host_record, "has_come_back", lambda known, clock_ns, expected_ns: False),
    "PS-290": swap(postgres_address, "_connect", as_if_it_were_direct),
    "PS-773": swap(ServerConnections, "is_working", AsyncMock(return_value=False)),
    "PS-701": swap(store, "StoreDamaged", IndexError),
    "PS-702": swap(session_host_record, "APART_NS", 10**20),
    "PS-331": swap(SessionServer, "watch_store", lambda self: False),
    "PS-332": swap(GroupMembership, "give_up", lambda self: None),
    "PS-333": swap(node_link, "Farewell", Subscribed),
    "PS-440": swap(SessionRow, "ends_for_front", False),
    "PS-441": swap(host_requests, "put_retained", lambda sql, asked: None),
    "PS-442": swap(route_rows, "find_retained", lambda sql, topic_filter: []),
    "PS-443": swap(route_rows, "put_options", lambda sql, session, topic_filter, options: None),
    "PS-450": swap(PermissionFile, "is_allowed", lambda self, identity, action, client_id, topic: True),
    "PS-451": swap(Authority, "_take", lambda self, is_allowed, asked, take: take(True)),
    "PS-452": swap(topic, "_contains_levels", lambda outer, inner: True),
    "PS-453": swap(Authority, "_is_certified", staticmethod(lambda identity, action, client_id: True)),
    "PS-454": swap(PermissionFile, "reload", lambda self: True),
    "PS-774": swap(ClientRights, "is_stranger", False),
    "PS-455": swap(SessionServer, "_withhold", lambda self, life, visitor, message: visitor.say(message)),
    "PS-456": swap(ClientRights, "close", lambda self: None),
    "PS-457": swap(complaint_log, "SAY_NS", 0),
    "PS-458": swap(PasswordHash, "is_of", lambda self, password: True),
    "PS-460": swap(upkeep, "CollectorRecord", lambda graces: CollectorRecord(Graces(retention_ms=3_600_000))),
    "PS-690": swap(sql_postgres, "OPENINGS", 1),
    "PS-711": swap(sql_postgres.PostgresDatabase, "_end_silent", lambda self: None),
    "PS-691": swap(collector_requests._RowWalk, "_pass_run", lambda self, row: row),
    "PS-692": swap(collector_requests, "MESSAGES", collector_requests.MESSAGES.replace(" AND time_ns <= :last_ns", "")),
    "PS-710": swap(collector_requests, "_are_there", lambda sql, firsts: True),
    "PS-730": swap(operator_requests, "list_spans", lambda sql, session: iter(())),
    "PS-733": swap(collector_requests.Backlog, "include", lambda self, rows, size_bytes: self),
    "PS-734": swap(upkeep, "read_collector_metrics", lambda store, counts: []),
    "PS-732": swap(TimeWatch, "describe_clock", lambda self: ClockState(0, 0, 0)),
    "PS-731": swap(operator_requests, "_count_dropped", lambda sql, numbers, where: 0),
    "PS-461": swap(collector_requests, "choose_dropped", lambda pieces, rows_max, size_bytes_max: []),
    "PS-462": swap(NodeGuide, "_is_ping_due", lambda self: True),
    "PS-562": swap(node_link.PlaceOutcome, "__lt__", lambda self, other: False),
    "PS-563": swap(NodeGuide, "_note_refusal", lambda self, place: None),
    "PS-463": swap(tcp, "TOO_MANY", "there is no room for {}"),
    "PS-735": swap(complaint_log, "REPEAT_S", 0.0),
    "PS-464": swap(TimeWatch, "_say_unused", lambda self, *_: None),
    "PS-476": swap(host_requests, "is_current", lambda sql, asked: True),
    "PS-477": swap(route_rows.ReadUnfinished, "answer", lambda self, sql, routes: ()),
    "PS-478": swap(life_requests, "settle_wills", lambda sql, session: None),
    "PS-525": swap(life_requests, "is_connected", lambda sql, found: True),
    "PS-526": swap(SessionServer, "_is_revoked", lambda self, message: False),
    "PS-521": wrap(UnstoredMessages, "hand", hand_unbound),
    "PS-524": swap(sqlite, "read_lead", lambda connection, watch: None),
    "PS-523": swap(metrics_endpoint, "CONNECTIONS_MAX", 2**20),
    "PS-522": swap(life_requests, "end_superseded", lambda sql, client: None),
    "PS-479": swap(host_requests, "take_will", lambda sql, connection: True),
    "PS-401": wrap(writer_actions, "send_stored", tells_of_the_first),
    "PS-402": wrap(writer_actions, "number_rows", lambda number: lambda *given: number(*given)[:1]),
    "PS-403": wrap(store, "put_ranges", stores_the_first),
    "PS-404": swap(route_rows, "COUNT_OTHERS", route_rows.COUNT_OTHERS.replace("count(*)", "0 * count(*)")),
    "PS-481": wrap(
        resume_record, "_bound", lambda bound: lambda row, since_ns: bound(row, since_ns) if since_ns is None else 0
    ),
    "PS-510": swap(postgres, "PASS_ON", "SELECT 1"),
    "PS-511": swap(postgres, "SHARED", postgres.ALONE),
    "PS-512": swap(PostgresSessions, "store_batch", AsyncMock(return_value=None)),
    "PS-591": swap(sqlite.SqliteSessions, "count_changes", lambda self: None),
    "PS-625": swap(loop_connection, "discard", lambda opened: None),
    "PS-590": swap(LoopConnection, "_read_answer", lambda self: None),
    "PS-513": swap(request_queue, "AHEAD_MAX", 10**9),
    "PS-514": swap(PostgresSessions, "_await_turns", lambda self: 0),
    "PS-541": swap(store_version.StoreVersion, "find_fault", lambda self, ours, upgrades: ""),
    "PS-542": swap(sqlite, "_plain", lambda statement: statement.replace("@", "")),
    "PS-543": swap(store_version.StoreVersion, "needs_stop", lambda self, ours, upgrades: False),
    "PS-720": swap(wire, "list_fields", lambda hello: structs.astuple(hello)[1:-1]),
    "PS-721": wrap(wire.PacketCodec, "decode", refuses_longer),
    "PS-722": swap(wire, "choose_version", lambda peer: peer.version),
    "PS-540": swap(request_batch.BatchReader, "_multiply", lambda self: ([], [])),
    "PS-515": swap(QuickWork, "can_run", lambda self: False),
    "PS-660": swap(machine_requests, "DELETE_TAKEN", "SELECT 1"),
    "PS-530": swap(RequestQueue, "_give_late", RequestQueue.give),
    "PS-571": swap(GroupMatcher, "match", lambda self, topic: []),
    "PS-531": swap(SessionStore, "_look_ahead", lambda self, life, asked: self._store_ahead_in_turn(life, 1, asked)),
    "PS-207": swap(node_link, "DIAL_MAX_S", node_link.DIAL_S),
    "PS-163": swap(TcpTransport, "is_peer_of", lambda self, role, party: True),
}
