"""How the clauses of MQTT connections that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

from mutants import swap

from statemachines.drivers.mqtt_connections import mqtt_session
from statemachines.drivers.persistent_sessions import host_requests, life_requests
from statemachines.drivers.persistent_sessions.host_request import PacketsFound
from statemachines.mqtt_connections.takeover_limit import TakeoverLimit

BREAKS = {
    "MQ-120": swap(host_requests, "read_packets", lambda sql, session: PacketsFound((), ())),
    "MQ-121": swap(mqtt_session, "build_will", lambda will, identity: None),
    "MQ-122": swap(life_requests, "settle_wills", lambda sql, session, expiry_ms, ended_ns: None),
    "MQ-123": swap(host_requests, "choose_routes", tuple),
    "MQ-124": swap(TakeoverLimit, "is_reached", lambda self, client_id, now_ns: False),
    "MQ-125": swap(host_requests, "has_room_retained", lambda sql, asked: True),
}
