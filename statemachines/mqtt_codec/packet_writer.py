"""Bytes out of packets (section 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from statemachines.mqtt_codec.byte_field import (
    VARINT_MAX,
    write_binary,
    write_byte,
    write_text,
    write_u16,
    write_varint,
)
from statemachines.mqtt_codec.codec_error import MalformedPacket, ProtocolViolation
from statemachines.mqtt_codec.packet import (
    NO_PROPERTIES,
    ConnackPacket,
    ConnectPacket,
    MqttVersion,
    PacketProperties,
    PacketType,
    PacketValue,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    UnsubackPacket,
    UnsubscribePacket,
)
from statemachines.mqtt_codec.packet_rule import TYPES, check_packet
from statemachines.mqtt_codec.property_format import write_properties
from statemachines.mqtt_codec.reason_code import ReasonCode

V5: Final = MqttVersion.V5


def encode(packet: PacketValue, version: int) -> bytes:
    """The bytes of a packet.

    Args:
        packet: whose fields have the types that its class names.
        version: 4 (MQTT 3.1.1) or 5.

    Raises:
        PacketError: the standard forbids this packet, or one of its fields does not fit its format.
    """
    version = MqttVersion(version)
    check_packet(packet, version)
    packet_type = TYPES[type(packet)]
    first = packet_type << 4
    try:
        if type(packet) is PublishPacket:
            first |= packet.dup << 3 | packet.qos << 1 | packet.retain
            body = _write_publish(packet, version)
        else:
            if packet_type in (PacketType.PUBREL, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
                first |= 2
            body = _WRITERS[packet_type](packet, version)
    except UnicodeEncodeError:
        raise MalformedPacket("a text has half of a surrogate pair", "MQTT-1.5.4-1") from None
    except OverflowError as error:
        raise MalformedPacket(f"a field does not fit: {error}", "1.5") from None
    if len(body) > VARINT_MAX:
        raise ProtocolViolation(f"the packet has {len(body)} bytes", "2.1.4", ReasonCode.PACKET_TOO_LARGE)
    return bytes((first,)) + write_varint(len(body)) + body


def _write_connect(packet: ConnectPacket, version: MqttVersion) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1 | (packet.user_name is not None) << 7 | (packet.password is not None) << 6
    parts = [_write_properties(packet.properties, PacketType.CONNECT, version), write_text(packet.client_id)]
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        parts.append(_write_properties(will.properties, PacketType.WILL, version))
        parts += (write_text(will.topic), write_binary(will.payload))
    if packet.user_name is not None:
        parts.append(write_text(packet.user_name))
    if packet.password is not None:
        parts.append(write_binary(packet.password))
    return b"\0\x04MQTT" + bytes((version, flags)) + write_u16(packet.keep_alive) + b"".join(parts)


def _write_connack(packet: ConnackPacket, version: MqttVersion) -> bytes:
    properties = _write_properties(packet.properties, PacketType.CONNACK, version)
    return bytes((packet.session_present, packet.reason_code)) + properties


def _write_publish(packet: PublishPacket, version: MqttVersion) -> bytes:
    head = write_text(packet.topic)
    if packet.qos:
        head += write_u16(packet.packet_id)
    if version is V5:
        head += write_properties(packet.properties, PacketType.PUBLISH)
    return head + packet.payload


def _write_ack(packet: Any, version: MqttVersion) -> bytes:
    return write_u16(packet.packet_id) + _write_code(packet, version)


def _write_subscribe(packet: SubscribePacket, version: MqttVersion) -> bytes:
    parts = [write_u16(packet.packet_id), _write_properties(packet.properties, PacketType.SUBSCRIBE, version)]
    for one in packet.subscriptions:
        options = one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
        parts += (write_text(one.filter), write_byte(options))
    return b"".join(parts)


def _write_suback(packet: SubackPacket | UnsubackPacket, version: MqttVersion) -> bytes:
    properties = _write_properties(packet.properties, TYPES[type(packet)], version)
    return write_u16(packet.packet_id) + properties + bytes(packet.reason_codes)


def _write_unsubscribe(packet: UnsubscribePacket, version: MqttVersion) -> bytes:
    properties = _write_properties(packet.properties, PacketType.UNSUBSCRIBE, version)
    return write_u16(packet.packet_id) + properties + b"".join(map(write_text, packet.filters))


def _write_code(packet: Any, version: MqttVersion) -> bytes:
    """Reason code and properties, as short as the standard allows (3.4.2.1)."""
    if packet.properties == NO_PROPERTIES:
        return write_byte(packet.reason_code) if packet.reason_code else b""
    return write_byte(packet.reason_code) + _write_properties(packet.properties, TYPES[type(packet)], version)


def _write_properties(properties: PacketProperties, packet_type: PacketType, version: MqttVersion) -> bytes:
    return write_properties(properties, packet_type) if version is V5 else b""


def _write_nothing(packet: PacketValue, version: MqttVersion) -> bytes:
    return b""


_WRITERS: Final[dict[PacketType, Callable[[Any, MqttVersion], bytes]]] = {
    PacketType.CONNECT: _write_connect,
    PacketType.CONNACK: _write_connack,
    PacketType.PUBACK: _write_ack,
    PacketType.PUBREC: _write_ack,
    PacketType.PUBREL: _write_ack,
    PacketType.PUBCOMP: _write_ack,
    PacketType.SUBSCRIBE: _write_subscribe,
    PacketType.SUBACK: _write_suback,
    PacketType.UNSUBSCRIBE: _write_unsubscribe,
    PacketType.UNSUBACK: _write_suback,
    PacketType.PINGREQ: _write_nothing,
    PacketType.PINGRESP: _write_nothing,
    PacketType.DISCONNECT: _write_code,
    PacketType.AUTH: _write_code,
}
