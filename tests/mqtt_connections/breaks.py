"""How the clauses of MQTT connections that are no rows are broken (tools/clauses.py).

How the clauses of the listener for MQTT that are no rows are broken (tools/clauses.py).
"""

from mutants import swap, wrap

from statemachines.drivers import password_file
from statemachines.drivers.mqtt_connections import client_stream, mqtt_node, mqtt_session, web_socket
from statemachines.drivers.mqtt_connections.dead_letters import DeadLetters
from statemachines.drivers.mqtt_connections.mqtt_node import MqttNode
from statemachines.drivers.mqtt_connections.mqtt_session import MqttSession
from statemachines.drivers.mqtt_connections.tls_gate import TlsGate
from statemachines.drivers.mqtt_connections.web_socket import ConnectionPool, WebSocketPipe
from statemachines.drivers.password_file import PasswordFile
from statemachines.drivers.payload_buffer import UnfinishedFrames
from statemachines.drivers.persistent_sessions import (
    group_membership,
    group_rows,
    host_requests,
    life_requests,
    session_server,
)
from statemachines.drivers.persistent_sessions.group_membership import GroupMembership
from statemachines.drivers.persistent_sessions.group_rows import GroupMatcher, GroupSharing
from statemachines.drivers.persistent_sessions.host_requests import HostRequests
from statemachines.drivers.persistent_sessions.route_rows import PacketsFound, ReadPackets
from statemachines.mqtt_codec import byte_field, packet_rule, topic_rule
from statemachines.mqtt_connections import connection_actions
from statemachines.mqtt_connections.takeover_limit import TakeoverLimit
from statemachines.persistent_sessions import session_host_peers

BREAKS = {
    "MQ-100": swap(GroupMatcher, "match", lambda self, topic: []),
    "MQ-101": swap(GroupMembership, "begin", lambda self, owner, session, token: None),
    "MQ-102": swap(group_rows, "_take", lambda sql, origin: True),
    "MQ-103": swap(life_requests, "return_messages", lambda sql, session: None),
    "MQ-104": swap(MqttSession, "_refuse", lambda self, packet_id, answer: None),
    "MQ-105": swap(packet_rule, "is_shared_filter", lambda topic_filter: False),
    "MQ-106": swap(topic_rule, "_find_broken_statement", lambda topic_filter: ""),
    "MQ-107": swap(mqtt_session, "is_shared", lambda topic_filter: False),
    "MQ-108": swap(group_rows.DeclareGroup, "answer", lambda self, sql, routes: ""),
    "MQ-109": swap(group_rows, "age_group", lambda idle_ns, is_subscribed, now_ns, expiry_ms: idle_ns),
    "MQ-110": swap(group_membership, "split_terms", lambda payload: (payload, group_membership.SharedTerms())),
    "MQ-111": swap(GroupSharing, "_choose_member", lambda self, topic_filter: []),
    "MQ-112": swap(DeadLetters, "note_delivery", lambda self, message: None),
    "MQ-120": swap(ReadPackets, "answer", lambda self, sql, routes: PacketsFound((), ())),
    "MQ-121": swap(mqtt_session, "build_will", lambda will, identity: None),
    "MQ-122": swap(life_requests, "settle_wills", lambda sql, session: None),
    "MQ-123": swap(host_requests, "choose_routes", tuple),
    "MQ-124": swap(TakeoverLimit, "is_reached", lambda self, client_id, now_ns: False),
    "MQ-173": swap(connection_actions, "RETURN_CODES", dict.fromkeys(range(256), 3)),
    "MQ-174": swap(PasswordFile, "is_busy", lambda self, user, address: False),
    "MQ-194": swap(PasswordFile, "is_known", lambda self, user, password: False),
    "MQ-195": swap(password_file, "USER_SHARE", 1),
    "MQ-175": swap(mqtt_session, "NO_CLIENT_ID", dict.fromkeys((4, 5), 0x87)),
    "MQ-176": swap(mqtt_session, "is_server_topic", lambda topic: False),
    "MQ-190": swap(MqttNode, "_log_violation", lambda self, stream: None),
    "MQ-191": swap(host_requests, "find_volatile", lambda routes, qos: []),
    "MQ-192": swap(HostRequests, "_find_owners", lambda self, sql, volatile: ()),
    "MQ-193": swap(session_server, "HELD_MAX", 0),
    "MQ-196": swap(client_stream, "PACKETS_MAX", 2**30),
    "MQ-210": swap(MqttSession, "_answer_all", lambda self, packet_ids: None),
    "MQ-220": swap(client_stream, "ALIASED_MAX", 2**30),
    "MQ-223": swap(PasswordFile, "is_kept", lambda self, user: True),
    "MQ-221": swap(mqtt_session, "FILTER_BYTES_MAX", 2**30),
    "MQ-222": swap(mqtt_session, "is_shared", lambda topic_filter: False),
    "MQ-235": swap(MqttSession, "_publish_all", lambda self, packets: self._publish(packets[0])),
    "MQ-244": swap(MqttSession, "_note_retained", lambda self, message: None),
    "MQ-236": swap(MqttSession, "_note_stored", lambda self, message: self._take_published(message.n)),
    "MQ-212": swap(mqtt_session, "IN_FLIGHT_MAX", 65_535),
    "MQ-211": swap(connection_actions, "is_packet_too_large", lambda record, packet: True),
    "MQ-202": swap(web_socket, "TURN_BYTES", 2**30),
    "MQ-203": swap(web_socket, "HEAD_MAX", 2**30),
    "MQ-204": swap(ConnectionPool, "enter", lambda self, one: None),
    "MQ-205": swap(mqtt_node, "TlsGate", lambda tls, limit_s, most: TlsGate(tls, 3_600, 10**6)),
    "MQ-180": swap(byte_field, "TEXTS_MAX", 2**30),
    "MQ-181": swap(mqtt_node, "ACCEPTED_MAX", 1_024),
    "MQ-182": swap(session_host_peers, "discard", lambda owner: ()),
    "MQ-200": swap(GroupSharing, "_find_connected", lambda self, topic_filter: ()),
    "MQ-201": swap(session_host_peers, "discard", lambda owner: ()),
    "MQ-172": swap(mqtt_node, "TURNS_TO_READ", 0),
    "MQ-125": swap(host_requests, "has_room_retained", lambda sql, asked: True),
}


async def read_any_frame(self, size):
    """A text is taken as bytes."""
    data = await self._connection.recv()
    return data.encode() if isinstance(data, str) else data


BREAKS |= {
    "MQ-140": swap(WebSocketPipe, "read", read_any_frame),
    "MQ-141": swap(web_socket, "is_own_origin", lambda origin, host: True),
    "MQ-142": swap(web_socket, "FIRST_MAX", 2**30),
    "MQ-143": swap(mqtt_node, "is_loopback", lambda host: True),
    "MQ-245": swap(life_requests, "sessions_kept", lambda sql: 0),
    "MQ-243": wrap(MqttSession, "_publish", lambda plain: lambda self, packet: plain(self, packet) or True),
    "MQ-246": swap(UnfinishedFrames, "note", lambda self, one, size, is_new: None),
    "MQ-144": wrap(MqttNode, "read_counters", lambda plain: lambda self: plain(self) | {"version": "none"}),
}
