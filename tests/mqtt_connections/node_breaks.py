"""How the clauses of the listener for MQTT that are no rows are broken (tools/clauses.py)."""

from __future__ import annotations

from mutants import swap, wrap

from statemachines.drivers.mqtt_connections import mqtt_node, web_socket
from statemachines.drivers.mqtt_connections.mqtt_node import MqttNode
from statemachines.drivers.mqtt_connections.mqtt_session import MqttSession
from statemachines.drivers.mqtt_connections.web_socket import WebSocketPipe
from statemachines.drivers.persistent_sessions import life_requests
from statemachines.drivers.unfinished_frames import UnfinishedFrames


async def read_any_frame(self, size):
    """A text is taken as bytes."""
    data = await self._connection.recv()
    return data.encode() if isinstance(data, str) else data


BREAKS = {
    "MQ-140": swap(WebSocketPipe, "read", read_any_frame),
    "MQ-141": swap(web_socket, "is_own_origin", lambda origin, host: True),
    "MQ-142": swap(web_socket, "FIRST_MAX", 2**30),
    "MQ-143": swap(mqtt_node, "is_loopback", lambda host: True),
    "MQ-245": swap(life_requests, "sessions_kept", lambda sql: 0),
    "MQ-243": wrap(MqttSession, "_publish", lambda plain: lambda self, packet: plain(self, packet) or True),
    "MQ-246": swap(UnfinishedFrames, "note", lambda self, one, size, is_new: None),
    "MQ-144": wrap(MqttNode, "read_counters", lambda plain: lambda self: plain(self) | {"version": "none"}),
}
