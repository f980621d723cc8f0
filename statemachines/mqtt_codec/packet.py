"""Packets of MQTT 3.1.1 and 5 (section 3) as frozen values.

One class serves both versions.  In a packet of 3.1.1 `properties` is `NO_PROPERTIES`, and so are other fields of
MQTT 5 at their defaults.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec


class MqttVersion(IntEnum):
    """The protocol level in CONNECT (section 3.1.2.2)."""

    V3_1_1 = 4
    V5 = 5


class PacketType(IntEnum):
    """The first four bits of a packet (section 2.1.2)."""

    WILL = 0
    """No packet (the number is reserved): the will within CONNECT, which has properties of its own."""
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class PacketProperties(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The properties of a packet (section 2.2.2); None: it is absent.  Times are in seconds, sizes in bytes."""

    payload_format: int | None = None
    message_expiry: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_ids: tuple[int, ...] = ()
    session_expiry: int | None = None
    assigned_client_id: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcards_available: int | None = None
    subscription_ids_available: int | None = None
    shared_available: int | None = None


NO_PROPERTIES: Final = PacketProperties()


class WillMessage(msgspec.Struct, frozen=True, gc=False):
    """The message that the server publishes when the client is lost."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: PacketProperties = NO_PROPERTIES


class ConnectPacket(msgspec.Struct, frozen=True, gc=False):
    """CONNECT (3.1).  `keep_alive` is in seconds, 0: none."""

    client_id: str
    version: MqttVersion = MqttVersion.V5
    clean_start: bool = True
    """Clean Session in 3.1.1."""
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


class PubackPacket(msgspec.Struct, frozen=True, gc=False):
    """PUBACK (3.4): the answer to a PUBLISH of QoS 1."""

    packet_id: int
    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


class PubrecPacket(msgspec.Struct, frozen=True, gc=False):
    """PUBREC (3.5): the first answer to a PUBLISH of QoS 2."""

    packet_id: int
    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


class PubrelPacket(msgspec.Struct, frozen=True, gc=False):
    """PUBREL (3.6): the answer to PUBREC."""

    packet_id: int
    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


class PubcompPacket(msgspec.Struct, frozen=True, gc=False):
    """PUBCOMP (3.7): the answer to PUBREL, which ends QoS 2."""

    packet_id: int
    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


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


class AuthPacket(msgspec.Struct, frozen=True, gc=False):
    """AUTH (3.15), of MQTT 5 alone."""

    reason_code: int = 0
    properties: PacketProperties = NO_PROPERTIES


AckPacket = PubackPacket | PubrecPacket | PubrelPacket | PubcompPacket
PacketValue = (
    ConnectPacket
    | ConnackPacket
    | PublishPacket
    | AckPacket
    | SubscribePacket
    | SubackPacket
    | UnsubscribePacket
    | UnsubackPacket
    | PingreqPacket
    | PingrespPacket
    | DisconnectPacket
    | AuthPacket
)
"""Any packet."""
