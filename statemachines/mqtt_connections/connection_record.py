"""The record of a connection: what it knows of its client, and its settings."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError, Status
from statemachines.kernel.pmap import Map
from statemachines.mqtt_codec.packet import MqttVersion

S: Final = 1_000_000_000


class MqttConnectionStatus(Status):
    """How far a connection is."""

    AWAITING = "awaiting"
    """CONNECT has not come."""
    OPENING = "opening"
    """The session is asked for; no packet is taken meanwhile."""
    CONNECTED = "connected"
    CLOSED = "closed"


AWAITING, OPENING, CONNECTED, CLOSED = MqttConnectionStatus


class IncomingStage(IntEnum):
    """What is done with a packet id of the client."""

    STORING_1 = 1
    """A message of QoS 1 is being stored."""
    STORING_2 = 2
    """One of QoS 2 is."""
    RECEIVED = 3
    """It is stored; PUBREC was sent."""
    RELEASING = 4
    """PUBREL has come, and the id is being forgotten."""
    RECEIVED_BEFORE = 5
    """As `RECEIVED`, on an earlier connection of the session."""
    RELEASING_BEFORE = 6
    """As `RELEASING`, of one that was `RECEIVED_BEFORE`."""


BOUNDS: Final = {
    "receive_maximum": (1, 65_535),
    "topic_alias_maximum": (0, 65_535),
    "max_packet": (2, 268_435_460),
    "max_payload": (0, 268_435_455),
    "keep_alive_max_s": (1, 65_535),
    "expiry_max_s": (0, 2**32 - 1),
    "expiry_3_s": (0, 2**32 - 1),
    "connect_timeout_s": (1, 3_600),
}
"""Of the numbers in `MqttSettings`."""


class MqttSettings(msgspec.Struct, frozen=True, gc=False):
    """The limits of a server.  Times are in seconds."""

    receive_maximum: int = 1_000
    """Messages of QoS 1 and 2 of a client that are unacknowledged."""
    topic_alias_maximum: int = 100
    max_packet: int = 1_048_576
    """Bytes, as the decoder's."""
    max_payload: int = 0
    """Bytes of the longest payload of a message; 0: any that a packet holds."""
    keep_alive_max_s: int = 600
    """The longest keep alive of MQTT 5; a longer one, or none, is answered by this one."""
    expiry_max_s: int = 86_400
    expiry_3_s: int = 86_400
    """The expiry of a session of 3.1.1 without Clean Session."""
    connect_timeout_s: int = 10
    """From the first byte to CONNACK."""
    retain_available: bool = True
    shared_available: bool = True
    assigns_client_ids: bool = True
    """A client with an empty id gets one; else it is refused."""

    def __post_init__(self) -> None:
        for field, (least, most) in BOUNDS.items():
            value = getattr(self, field)
            if isinstance(value, bool) or not least <= value <= most:
                raise ConfigurationError(field, value, f"must be from {least} to {most}")


class MqttConnectionRecord(msgspec.Struct, frozen=True, gc=False):
    """One connection."""

    party: str
    """Whom packets are sent to."""
    settings: MqttSettings = MqttSettings()
    status: MqttConnectionStatus = AWAITING
    version: MqttVersion = MqttVersion.V5
    client_id: str = ""
    keep_alive_s: int = 0
    """0: none."""
    asked_keep_alive_s: int = 0
    """As CONNECT says."""
    expiry_s: int = 0
    """How long the session outlives the connection."""
    asked_expiry_s: int = 0
    """As CONNECT says."""
    max_packet: int = 0
    """Bytes that the client takes; 0: any."""
    aliases: Map[int, str] = Map()
    """Topic aliases of the client."""
    incoming: Map[int, IncomingStage] = Map()
    """Packet ids of the client that are in use."""
    received_before: int = 0
    """Packet ids that the session had open when the connection began."""
    releasing_before: int = 0
    """How many ids are `RELEASING_BEFORE`."""


def can_take_packets(record: MqttConnectionRecord) -> bool:
    """Whether the driver may feed the next packet; while the session is being opened it waits (MQ-10)."""
    return record.status is AWAITING or record.status is CONNECTED
