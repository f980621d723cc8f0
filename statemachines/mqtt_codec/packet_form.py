"""Packets out of bytes, and bytes out of packets (section 3).

A form names the fields of a packet in the order in which they are sent.  CONNECT and PUBLISH, whose flags say what
follows, have functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as struct_error
from typing import Any, Final

from statemachines.mqtt_codec import byte_field as b
from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_codec.byte_field import VARINT_MAX, ByteReader
from statemachines.mqtt_codec.codec_error import MalformedPacket, ProtocolViolation, ReasonCode
from statemachines.mqtt_codec.packet_property import (
    BYTE,
    NO_PROPERTIES,
    U16,
    PacketProperties,
    read_properties,
    write_properties,
)
from statemachines.mqtt_codec.packet_property import PacketType as T
from statemachines.mqtt_codec.packet_rule import CLASSES, TYPES, check_packet
from statemachines.mqtt_codec.plain_packet import write_plain_packet

V3: Final = p.MqttVersion.V3_1_1
FORMS: Final = {
    T.CONNACK: ("session_present", "reason_code", "properties"),
    **dict.fromkeys((T.PUBACK, T.PUBREC, T.PUBREL, T.PUBCOMP), ("packet_id", "reason_code", "properties")),
    T.SUBSCRIBE: ("packet_id", "properties", "subscriptions"),
    T.UNSUBSCRIBE: ("packet_id", "properties", "filters"),
    **dict.fromkeys((T.SUBACK, T.UNSUBACK), ("packet_id", "properties", "reason_codes")),
    **dict.fromkeys((T.PINGREQ, T.PINGRESP), ()),
    **dict.fromkeys((T.DISCONNECT, T.AUTH), ("reason_code", "properties")),
}
SHORT: Final = (T.PUBACK, T.PUBREC, T.PUBREL, T.PUBCOMP, T.DISCONNECT, T.AUTH)
"""Packets whose reason code and properties may be left out (3.4.2.1); 3.1.1 has neither."""
KINDS: Final = tuple(T)
FLAGS: Final = {kind: 2 if kind in (T.PUBREL, T.SUBSCRIBE, T.UNSUBSCRIBE) else 0 for kind in T}


def _read_flag(reader: ByteReader) -> bool:
    flags = reader.read_byte()
    if flags > 1:
        raise MalformedPacket("reserved flags of CONNACK are set", "MQTT-3.2.2-1")
    return bool(flags)


def _read_subscription(reader: ByteReader) -> p.TopicSubscription:
    topic_filter, bits = reader.read_text(), reader.read_byte()
    if bits & 0xC0:
        raise MalformedPacket("reserved bits of subscription options are set", "MQTT-3.8.3-5")
    return p.TopicSubscription(topic_filter, bits & 3, bool(bits & 4), bool(bits & 8), bits >> 4)


def _write_subscription(one: p.TopicSubscription) -> bytes:
    options = one.qos | one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
    return b.write_text(one.filter) + b.write_byte(options)


def _read_all(read: Callable[[ByteReader], Any]) -> Callable[[ByteReader], tuple[Any, ...]]:
    """Reads values to the end of the packet."""

    def read_all(reader: ByteReader) -> tuple[Any, ...]:
        found = []
        while reader.at < reader.end:
            found.append(read(reader))
        return tuple(found)

    return read_all


FIELDS: Final[dict[str, tuple[Callable[[ByteReader], Any], Callable[[Any], bytes]]]] = {
    "packet_id": U16,
    "reason_code": BYTE,
    "reason_codes": (lambda reader: tuple(reader.read_rest()), bytes),
    "session_present": (_read_flag, b.write_byte),
    "filters": (_read_all(ByteReader.read_text), lambda filters: b"".join(map(b.write_text, filters))),
    "subscriptions": (_read_all(_read_subscription), lambda many: b"".join(map(_write_subscription, many))),
}


def check_header(first: int, version: p.MqttVersion | None) -> T:
    """The type of the packet that begins with this byte; raises `PacketError`.  Before a version is known, CONNECT
    alone is allowed."""
    packet_type = KINDS[first >> 4]
    if packet_type is T.WILL or (packet_type is T.AUTH and version is V3):
        raise MalformedPacket(f"packet type {first >> 4} is forbidden", "2.1.2")
    if version is None and packet_type is not T.CONNECT:
        raise ProtocolViolation("the first packet is no CONNECT", "MQTT-3.1.0-1")
    if packet_type is T.PUBLISH:
        if first & 0x06 == 0x06:
            raise MalformedPacket("PUBLISH has QoS 3", "MQTT-3.3.1-4")
    elif first & 0x0F != FLAGS[packet_type]:
        raise MalformedPacket(f"{packet_type.name} has other flags than it must", "MQTT-2.1.3-1")
    return packet_type


def check_length(packet_type: T, length: int, version: p.MqttVersion | None) -> None:
    """Raises `MalformedPacket` where no packet of this type has so many bytes after its header."""
    is_empty = packet_type is T.DISCONNECT and version is V3
    if length and (is_empty or packet_type in (T.PINGREQ, T.PINGRESP)):
        raise MalformedPacket(f"{packet_type.name} has {length} bytes", f"3.{packet_type:d}.2")


def read_packet(first: int, body: bytes, version: p.MqttVersion | None) -> p.PacketValue:
    """The packet of this first byte and body; raises `PacketError`."""
    packet_type, reader = KINDS[first >> 4], ByteReader(body)
    packet: p.PacketValue
    if packet_type is T.CONNECT:
        packet = _read_connect(reader)
        version = packet.version
    elif version is None:
        raise ProtocolViolation("the first packet is no CONNECT", "MQTT-3.1.0-1")
    elif packet_type is T.PUBLISH:
        packet = _read_publish(reader, first, version)
    else:
        packet = _read_form(reader, packet_type, version)
    if reader.at != reader.end:
        raise MalformedPacket(f"{reader.end - reader.at} bytes follow the last field", "2.1.4")
    check_packet(packet, version)
    return packet


def _read_connect(reader: ByteReader) -> p.ConnectPacket:
    name, level = reader.read_text(), reader.read_byte()
    if name != "MQTT" or level not in (4, 5):
        text = f"protocol {name[:10]!r} of level {level} is not MQTT 3.1.1 or 5"
        raise ProtocolViolation(text, "MQTT-3.1.2-2", ReasonCode.UNSUPPORTED_VERSION, level)
    version = p.MqttVersion(level)
    flags = reader.read_byte()
    if flags & 0x01:
        raise MalformedPacket("the reserved flag of CONNECT is set", "MQTT-3.1.2-3")
    if not flags & 0x04 and flags & 0x38:
        raise MalformedPacket("there is QoS or retain of a will, and no will", "MQTT-3.1.2-11")
    keep_alive = reader.read_u16()
    properties = _read_properties(reader, T.CONNECT, version)
    client_id = reader.read_text()
    will = None
    if flags & 0x04:
        will_properties = _read_properties(reader, T.WILL, version)
        topic, payload = reader.read_text(), reader.read_binary()
        will = p.WillMessage(topic, payload, flags >> 3 & 3, bool(flags & 0x20), will_properties)
    user_name = reader.read_text() if flags & 0x80 else None
    password = reader.read_binary() if flags & 0x40 else None
    return p.ConnectPacket(client_id, version, bool(flags & 0x02), keep_alive, will, user_name, password, properties)


def _read_publish(reader: ByteReader, first: int, version: p.MqttVersion) -> p.PublishPacket:
    topic, qos = reader.read_text(), first >> 1 & 3
    packet_id = reader.read_u16() if qos else 0
    properties = _read_properties(reader, T.PUBLISH, version)
    return p.PublishPacket(topic, reader.read_rest(), qos, bool(first & 1), bool(first & 8), packet_id, properties)


def _read_form(reader: ByteReader, packet_type: T, version: p.MqttVersion) -> p.PacketValue:
    fields: dict[str, Any] = {}
    for name in FORMS[packet_type]:
        if packet_type in SHORT and name != "packet_id" and (version is V3 or reader.at == reader.end):
            break
        is_property = name == "properties"
        fields[name] = _read_properties(reader, packet_type, version) if is_property else FIELDS[name][0](reader)
    packet: p.PacketValue = CLASSES[packet_type](**fields)
    return packet


def _read_properties(reader: ByteReader, packet_type: T, version: p.MqttVersion) -> PacketProperties:
    return read_properties(reader, packet_type) if version is not V3 else NO_PROPERTIES


def encode(packet: p.PacketValue, version: int) -> bytes:
    """The bytes of a packet, whose fields have the types that its class names; `version` is 4 (MQTT 3.1.1) or 5.

    Raises:
        PacketError: the standard forbids this packet, or one of its fields does not fit.
    """
    if type(version) is not p.MqttVersion:
        version = p.MqttVersion(version)
    plain = write_plain_packet(packet, version)
    if plain is not None:
        return plain
    packet_type = TYPES[type(packet)]
    check_packet(packet, version)
    first = packet_type << 4 | FLAGS[packet_type]
    try:
        if isinstance(packet, p.PublishPacket):
            first |= packet.dup << 3 | packet.qos << 1 | packet.retain
            body = b.write_text(packet.topic) + (U16[1](packet.packet_id) if packet.qos else b"")
            body += _write_properties(packet.properties, packet_type, version) + packet.payload
        elif isinstance(packet, p.ConnectPacket):
            body = _write_connect(packet, version)
        else:
            body = _write_form(packet, packet_type, version)
    except UnicodeEncodeError:
        raise MalformedPacket("a text has half of a surrogate pair", "MQTT-1.5.4-1") from None
    except struct_error as error:
        raise MalformedPacket(f"a field does not fit: {error}", "1.5") from None
    if len(body) > VARINT_MAX:
        raise ProtocolViolation(f"the packet has {len(body)} bytes", "2.1.4", ReasonCode.PACKET_TOO_LARGE)
    return b.write_byte(first) + b.write_varint(len(body)) + body


def _write_connect(packet: p.ConnectPacket, version: p.MqttVersion) -> bytes:
    will = packet.will
    flags = packet.clean_start << 1 | (packet.user_name is not None) << 7 | (packet.password is not None) << 6
    body = _write_properties(packet.properties, T.CONNECT, version) + b.write_text(packet.client_id)
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        body += _write_properties(will.properties, T.WILL, version)
        body += b.write_text(will.topic) + b.write_binary(will.payload)
    if packet.user_name is not None:
        body += b.write_text(packet.user_name)
    if packet.password is not None:
        body += b.write_binary(packet.password)
    return b.write_text("MQTT") + bytes((version, flags)) + U16[1](packet.keep_alive) + body


def _write_form(packet: p.PacketValue, packet_type: T, version: p.MqttVersion) -> bytes:
    parts = []
    can_end = packet_type in SHORT and getattr(packet, "properties", None) == NO_PROPERTIES
    for name in FORMS[packet_type]:
        value = getattr(packet, name)
        if can_end and value in (0, NO_PROPERTIES):
            break
        is_property = name == "properties"
        parts.append(_write_properties(value, packet_type, version) if is_property else FIELDS[name][1](value))
    return b"".join(parts)


def _write_properties(properties: PacketProperties, packet_type: T, version: p.MqttVersion) -> bytes:
    return write_properties(properties, packet_type) if version is p.MqttVersion.V5 else b""
