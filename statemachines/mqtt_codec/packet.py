"""Packets of MQTT 3.1.1 and 5 (section 3) as frozen values.

One class serves both versions.  In a packet of 3.1.1 all that MQTT 5 has besides stands at its default.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from statemachines.mqtt_codec.packet_property import NO_PROPERTIES, PacketProperties

__all__ = [
    "AckPacket", "AuthPacket", "ConnackPacket", "ConnectPacket", "DisconnectPacket", "MqttVersion", "PacketValue",
    "PingreqPacket", "PingrespPacket", "PubackPacket", "PubcompPacket", "PublishPacket", "PubrecPacket",
    "PubrelPacket", "SubackPacket", "SubscribePacket", "TopicSubscription", "UnsubackPacket", "UnsubscribePacket",
    "WillMessage",
]  # fmt: skip


class MqttVersion(IntEnum):
    """The protocol level in CONNECT (section 3.1.2.2)."""

    V3_1_1 = 4
    V5 = 5


class WillMessage(msgspec.Struct, frozen=True, gc=False):
    """The message that the server publishes when the client is lost."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: PacketProperties = NO_PROPERTIES


class ConnectPacket(msgspec.Struct, frozen=True, gc=False):
    """CONNECT (3.1).  `clean_start` is Clean Session in 3.1.1; `keep_alive` is in seconds, 0: none."""

    client_id: str
    version: MqttVersion = MqttVersion.V5
    clean_start: bool = True
    keep_alive: int = 0
    will: WillMessage | None = None
    user_name: str | None = None
    password: bytes | None = None
    properties: PacketProperties = NO_PROPERTIES


class ConnackPacket(msgspec.Struct, frozen=True, gc=False):
    """CONNACK (3.2).  In 3.1.1 `reason_code` is the return code, 0 to 5."""

    session_present: bool = False
    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


class PublishPacket(msgspec.Struct, frozen=True, gc=False):
    """PUBLISH (3.3).  `packet_id` is 0 at QoS 0, where the packet has none."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: PacketProperties = NO_PROPERTIES


class AckPacket(msgspec.Struct, frozen=True, gc=False):
    """What the four acknowledgements of a PUBLISH are made of."""

    packet_id: int
    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


class PubackPacket(AckPacket, frozen=True, gc=False):
    """PUBACK (3.4): the answer to a PUBLISH of QoS 1."""


class PubrecPacket(AckPacket, frozen=True, gc=False):
    """PUBREC (3.5): the first answer to a PUBLISH of QoS 2."""


class PubrelPacket(AckPacket, frozen=True, gc=False):
    """PUBREL (3.6): the answer to PUBREC."""


class PubcompPacket(AckPacket, frozen=True, gc=False):
    """PUBCOMP (3.7): the answer to PUBREL, which ends QoS 2."""


class TopicSubscription(msgspec.Struct, frozen=True, gc=False):
    """One filter of a SUBSCRIBE with its options (3.8.3.1); 3.1.1 has `qos` alone."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class SubscribePacket(msgspec.Struct, frozen=True, gc=False):
    """SUBSCRIBE (3.8)."""

    packet_id: int
    subscriptions: tuple[TopicSubscription, ...]
    properties: PacketProperties = NO_PROPERTIES


class SubackPacket(msgspec.Struct, frozen=True, gc=False):
    """SUBACK (3.9): a reason code for each filter."""

    packet_id: int
    reason_codes: tuple[int, ...]
    properties: PacketProperties = NO_PROPERTIES


class UnsubscribePacket(msgspec.Struct, frozen=True, gc=False):
    """UNSUBSCRIBE (3.10)."""

    packet_id: int
    filters: tuple[str, ...]
    properties: PacketProperties = NO_PROPERTIES


class UnsubackPacket(msgspec.Struct, frozen=True, gc=False):
    """UNSUBACK (3.11): a reason code for each filter; none in 3.1.1."""

    packet_id: int
    reason_codes: tuple[int, ...] = ()
    properties: PacketProperties = NO_PROPERTIES


class PingreqPacket(msgspec.Struct, frozen=True, gc=False):
    """PINGREQ (3.12)."""


class PingrespPacket(msgspec.Struct, frozen=True, gc=False):
    """PINGRESP (3.13)."""


class DisconnectPacket(msgspec.Struct, frozen=True, gc=False):
    """DISCONNECT (3.14)."""

    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


class AuthPacket(DisconnectPacket, frozen=True, gc=False):
    """AUTH (3.15), of MQTT 5 alone."""


PacketValue = (
    ConnectPacket | ConnackPacket | PublishPacket | AckPacket | SubscribePacket | SubackPacket | UnsubscribePacket
    | UnsubackPacket | PingreqPacket | PingrespPacket | DisconnectPacket | AuthPacket
)  # fmt: skip
"""Any packet."""
