"""Message properties: what an MQTT message has beside topic and payload, as the head of a stored message.

User properties are headers, so other clients of the store read them, and headers of other publishers are user
properties.  The rest stands in headers whose names begin with `mqtt.`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from statemachines.drivers.message_head import (
    HEADERS_MAX,
    NAME_MAX,
    Header,
    MessageHead,
    decode_head,
    encode_head,
)
from statemachines.drivers.persistent_sessions.node_messages import FROM_STORE, PUBLISHER
from statemachines.kernel import ConfigurationError
from statemachines.mqtt_codec import PacketError, PublishPacket
from statemachines.mqtt_codec.byte_field import ByteReader
from statemachines.mqtt_codec.packet import WillMessage
from statemachines.mqtt_codec.packet_property import (
    NO_PROPERTIES,
    PacketProperties,
    PacketType,
    check_properties,
    read_properties,
    write_properties,
)
from statemachines.persistent_sessions.message import Delivered

PROPERTIES: Final = "mqtt.properties"
"""The header of all properties that are no headers."""
RETAIN: Final = "mqtt.retain"
"""The header of a message that was published to be retained."""
OURS: Final = frozenset((PROPERTIES, RETAIN, FROM_STORE, PUBLISHER))


class SubscriptionOptions(NamedTuple):
    """What a subscription has beside its QoS."""

    no_local: bool = False
    retain_as_published: bool = False
    subscription_id: int = 0
    """0: it has none."""

    @property
    def number(self) -> int:
        """As the store keeps it."""
        return self.no_local | self.retain_as_published << 1 | self.subscription_id << 2

    @classmethod
    def of(cls, number: int) -> SubscriptionOptions:
        """What the store has kept."""
        return cls(bool(number & 1), bool(number & 2), number >> 2)


NO_OPTIONS: Final = SubscriptionOptions()


def write_head(packet: PublishPacket) -> bytes:
    """The head of a message of a client; empty: it has none.

    Raises:
        ConfigurationError: for more properties than a head takes.
    """
    properties = packet.properties
    if properties is NO_PROPERTIES and not packet.retain:
        return b""
    headers: list[Header] = []
    if properties is not NO_PROPERTIES:
        properties = replace(properties, message_expiry=None, topic_alias=None, subscription_ids=())
        if _are_headers(properties.user_properties):
            headers += [(name, value.encode()) for name, value in properties.user_properties]
            properties = replace(properties, user_properties=())
        if properties != NO_PROPERTIES:
            headers.append((PROPERTIES, write_properties(properties, PacketType.PUBLISH)))
    if packet.retain:
        headers.append((RETAIN, b""))
    return encode_head(MessageHead(tuple(headers))) or b""


def write_will_head(will: WillMessage) -> bytes:
    """The head of a will; properties that a head does not take are left out."""
    properties = replace(will.properties, will_delay=None)
    packet = PublishPacket(will.topic, will.payload, will.qos, will.retain, properties=properties)
    try:
        return write_head(packet)
    except ConfigurationError:
        return write_head(replace(packet, properties=NO_PROPERTIES))


def _are_headers(pairs: tuple[tuple[str, str], ...]) -> bool:
    """Whether these user properties can be headers."""
    return len(pairs) <= HEADERS_MAX - len(OURS) and all(
        name and name not in OURS and len(name.encode()) <= NAME_MAX for name, _ in pairs
    )


def read_message(
    message: Delivered, options: SubscriptionOptions, subscription_ids: tuple[int, ...] = ()
) -> PublishPacket:
    """The packet for the client.

    Args:
        message: of its session.
        options: of the subscription that it came by.
        subscription_ids: of all that its topic matches; a retained message has that of the one that brings it.
    """
    properties, retain = NO_PROPERTIES, False
    if message.head is not None:
        headers = decode_head(message.head).headers
        ours = {name: value for name, value in headers if name in OURS}
        if FROM_STORE in ours:
            subscription_ids = (options.subscription_id,) if options.subscription_id else ()
        retain = FROM_STORE in ours or (options.retain_as_published and RETAIN in ours)
        properties = _read_properties(ours.get(PROPERTIES, b""), headers)
    if subscription_ids or message.expiry_ms is not None:
        properties = replace(
            properties,
            message_expiry=None if message.expiry_ms is None else -(-message.expiry_ms // 1_000),
            subscription_ids=subscription_ids,
        )
    qos = message.qos if message.packet else 0
    return PublishPacket(message.topic, message.payload, qos, retain, message.dup, message.packet, properties)


def _read_properties(encoded: bytes, headers: tuple[Header, ...]) -> PacketProperties:
    """Properties as a client published them; what another publisher put in their place is left out."""
    properties = NO_PROPERTIES
    if encoded:
        try:
            properties = read_properties(ByteReader(encoded), PacketType.PUBLISH)
            check_properties(properties, PacketType.PUBLISH)
        except PacketError:
            properties = NO_PROPERTIES
    pairs = []
    for name, value in headers:
        if name not in OURS and "\0" not in name:
            try:
                text = value.decode()
            except UnicodeDecodeError:
                continue
            if "\0" not in text:
                pairs.append((name, text))
    return replace(properties, user_properties=(*properties.user_properties, *pairs)) if pairs else properties
