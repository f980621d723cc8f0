"""Packets out of bytes: one function for each form of a packet (section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from statemachines.mqtt_codec.byte_field import ByteReader
from statemachines.mqtt_codec.codec_error import MalformedPacket, ProtocolViolation
from statemachines.mqtt_codec.packet import (
    NO_PROPERTIES,
    AuthPacket,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    MqttVersion,
    PacketProperties,
    PacketType,
    PacketValue,
    PingreqPacket,
    PingrespPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubackPacket,
    UnsubscribePacket,
    WillMessage,
)
from statemachines.mqtt_codec.packet_rule import TYPES, check_packet
from statemachines.mqtt_codec.property_format import read_properties
from statemachines.mqtt_codec.reason_code import ReasonCode

_CLASSES: Final = {packet_type: kind for kind, packet_type in TYPES.items()}
_EMPTY: Final = (PacketType.PINGREQ, PacketType.PINGRESP)
_FLAGS: Final = {
    packet_type: 2 if packet_type in (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE) else 0
    for packet_type in TYPES.values()
    if packet_type is not PacketType.PUBLISH
}


def check_header(first: int, version: MqttVersion | None) -> PacketType:
    """The type of the packet that begins with this byte; raises `PacketError`.  Before a version is known, CONNECT alone
    is allowed."""
    packet_type = PacketType(first >> 4)
    if packet_type is PacketType.WILL or (packet_type is PacketType.AUTH and version is MqttVersion.V3_1_1):
        raise MalformedPacket(f"packet type {first >> 4} is forbidden", "2.1.2")
    if version is None and packet_type is not PacketType.CONNECT:
        raise ProtocolViolation("the first packet is no CONNECT", "MQTT-3.1.0-1")
    if packet_type is PacketType.PUBLISH:
        if first & 0x06 == 0x06:
            raise MalformedPacket("PUBLISH has QoS 3", "MQTT-3.3.1-4")
    elif first & 0x0F != _FLAGS[packet_type]:
        raise MalformedPacket(f"{packet_type.name} has reserved flags set otherwise", "MQTT-2.1.3-1")
    return packet_type


def check_length(packet_type: PacketType, length: int, version: MqttVersion | None) -> None:
    """Raises `MalformedPacket` where no packet of this type has so many bytes after its header."""
    if length and (packet_type in _EMPTY or (packet_type is PacketType.DISCONNECT and version is MqttVersion.V3_1_1)):
        raise MalformedPacket(f"{packet_type.name} has {length} bytes", f"3.{int(packet_type)}.2")


def read_packet(first: int, body: bytes, version: MqttVersion | None) -> PacketValue:
    """The packet of this first byte and body; raises `PacketError`."""
    packet_type = PacketType(first >> 4)
    reader = ByteReader(body)
    if packet_type is PacketType.CONNECT:
        packet: PacketValue = _read_connect(reader)
        version = packet.version  # type: ignore[union-attr]
    else:
        assert version is not None  # the header was checked
        packet = _READERS[packet_type](reader, first, version)
    reader.check_end()
    check_packet(packet, version)
    return packet


def _read_connect(reader: ByteReader) -> ConnectPacket:
    name, level = reader.read_text(), reader.read_byte()
    if name != "MQTT" or level not in (4, 5):
        text = f"protocol {name[:10]!r} of level {level} is not MQTT 3.1.1 or 5"
        raise ProtocolViolation(text, "MQTT-3.1.2-2", ReasonCode.UNSUPPORTED_VERSION, level)
    version = MqttVersion(level)
    flags = reader.read_byte()
    if flags & 0x01:
        raise MalformedPacket("the reserved flag of CONNECT is set", "MQTT-3.1.2-3")
    if not flags & 0x04 and flags & 0x38:
        raise MalformedPacket("there is QoS or retain of a will, and no will", "MQTT-3.1.2-11")
    keep_alive = reader.read_u16()
    properties = _read_properties(reader, PacketType.CONNECT, version)
    client_id = reader.read_text()
    will = None
    if flags & 0x04:
        will_properties = _read_properties(reader, PacketType.WILL, version)
        topic, payload = reader.read_text(), reader.read_binary()
        will = WillMessage(topic, payload, flags >> 3 & 3, bool(flags & 0x20), will_properties)
    user_name = reader.read_text() if flags & 0x80 else None
    password = reader.read_binary() if flags & 0x40 else None
    return ConnectPacket(client_id, version, bool(flags & 0x02), keep_alive, will, user_name, password, properties)


def _read_connack(reader: ByteReader, first: int, version: MqttVersion) -> ConnackPacket:
    flags, code = reader.read_byte(), reader.read_byte()
    if flags > 1:
        raise MalformedPacket("reserved flags of CONNACK are set", "MQTT-3.2.2-1")
    return ConnackPacket(bool(flags), code, _read_properties(reader, PacketType.CONNACK, version))


def _read_publish(reader: ByteReader, first: int, version: MqttVersion) -> PublishPacket:
    topic, qos = reader.read_text(), first >> 1 & 3
    packet_id = reader.read_u16() if qos else 0
    if qos and not packet_id:
        raise ProtocolViolation("the packet id is 0", "MQTT-2.2.1-3")
    properties = read_properties(reader, PacketType.PUBLISH) if version is MqttVersion.V5 else NO_PROPERTIES
    return PublishPacket(topic, reader.read_rest(), qos, bool(first & 1), bool(first & 8), packet_id, properties)


def _read_ack(reader: ByteReader, first: int, version: MqttVersion) -> PacketValue:
    packet_id = reader.read_u16()
    code, properties = _read_code(reader, PacketType(first >> 4), version)
    packet: PacketValue = _CLASSES[PacketType(first >> 4)](packet_id, code, properties)
    return packet


def _read_subscribe(reader: ByteReader, first: int, version: MqttVersion) -> SubscribePacket:
    packet_id = reader.read_u16()
    properties = _read_properties(reader, PacketType.SUBSCRIBE, version)
    reserved = 0xC0 if version is MqttVersion.V5 else 0xFC
    subscriptions = []
    while reader.at < reader.end:
        topic_filter, options = reader.read_text(), reader.read_byte()
        if options & reserved:
            raise MalformedPacket("reserved bits of subscription options are set", "MQTT-3.8.3-5")
        subscriptions.append(
            TopicSubscription(topic_filter, options & 3, bool(options & 4), bool(options & 8), options >> 4 & 3)
        )
    return SubscribePacket(packet_id, tuple(subscriptions), properties)


def _read_suback(reader: ByteReader, first: int, version: MqttVersion) -> SubackPacket:
    packet_id = reader.read_u16()
    properties = _read_properties(reader, PacketType.SUBACK, version)
    return SubackPacket(packet_id, tuple(reader.read_rest()), properties)


def _read_unsubscribe(reader: ByteReader, first: int, version: MqttVersion) -> UnsubscribePacket:
    packet_id = reader.read_u16()
    properties = _read_properties(reader, PacketType.UNSUBSCRIBE, version)
    filters = []
    while reader.at < reader.end:
        filters.append(reader.read_text())
    return UnsubscribePacket(packet_id, tuple(filters), properties)


def _read_unsuback(reader: ByteReader, first: int, version: MqttVersion) -> UnsubackPacket:
    packet_id = reader.read_u16()
    properties = _read_properties(reader, PacketType.UNSUBACK, version)
    return UnsubackPacket(packet_id, tuple(reader.read_rest()), properties)


def _read_disconnect(reader: ByteReader, first: int, version: MqttVersion) -> DisconnectPacket:
    return DisconnectPacket(*_read_code(reader, PacketType.DISCONNECT, version))


def _read_auth(reader: ByteReader, first: int, version: MqttVersion) -> AuthPacket:
    return AuthPacket(*_read_code(reader, PacketType.AUTH, version))


def _read_code(reader: ByteReader, packet_type: PacketType, version: MqttVersion) -> tuple[int, PacketProperties]:
    """Reason code and properties, each of which may be left out (3.4.2.1)."""
    if version is MqttVersion.V3_1_1 or reader.at == reader.end:
        return 0, NO_PROPERTIES
    code = reader.read_byte()
    return code, NO_PROPERTIES if reader.at == reader.end else read_properties(reader, packet_type)


def _read_properties(reader: ByteReader, packet_type: PacketType, version: MqttVersion) -> PacketProperties:
    return read_properties(reader, packet_type) if version is MqttVersion.V5 else NO_PROPERTIES


_READERS: Final[dict[PacketType, Callable[[ByteReader, int, MqttVersion], Any]]] = {
    PacketType.CONNACK: _read_connack,
    PacketType.PUBLISH: _read_publish,
    PacketType.PUBACK: _read_ack,
    PacketType.PUBREC: _read_ack,
    PacketType.PUBREL: _read_ack,
    PacketType.PUBCOMP: _read_ack,
    PacketType.SUBSCRIBE: _read_subscribe,
    PacketType.SUBACK: _read_suback,
    PacketType.UNSUBSCRIBE: _read_unsubscribe,
    PacketType.UNSUBACK: _read_unsuback,
    PacketType.PINGREQ: lambda reader, first, version: PingreqPacket(),
    PacketType.PINGRESP: lambda reader, first, version: PingrespPacket(),
    PacketType.DISCONNECT: _read_disconnect,
    PacketType.AUTH: _read_auth,
}
