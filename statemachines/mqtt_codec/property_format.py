"""Properties on the wire (section 2.2.2): which packet may have which, and what their values may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from statemachines.mqtt_codec.byte_field import (
    ByteReader,
    write_binary,
    write_byte,
    write_pair,
    write_text,
    write_u16,
    write_u32,
    write_varint,
)
from statemachines.mqtt_codec.codec_error import MalformedPacket, PacketError, ProtocolViolation
from statemachines.mqtt_codec.packet import NO_PROPERTIES, PacketProperties, PacketType
from statemachines.mqtt_codec.packet import PacketType as T
from statemachines.mqtt_codec.reason_code import ReasonCode
from statemachines.mqtt_codec.topic_rule import check_topic


class PropertyFormat(NamedTuple):
    """One property: its identifier, its field, how it is read and written, and the packets that may have it."""

    identifier: int
    name: str
    read: Callable[[ByteReader], Any]
    write: Callable[[Any], bytes]
    types: tuple[PacketType, ...]


BYTE: Final = (ByteReader.read_byte, write_byte)
U16: Final = (ByteReader.read_u16, write_u16)
U32: Final = (ByteReader.read_u32, write_u32)
VARINT: Final = (ByteReader.read_varint, write_varint)
TEXT: Final = (ByteReader.read_text, write_text)
BINARY: Final = (ByteReader.read_binary, write_binary)
PAIR: Final = (ByteReader.read_pair, write_pair)

_MESSAGE: Final = (T.PUBLISH, T.WILL)
_CONNECT: Final = (T.CONNECT, T.CONNACK)
_ANSWERS: Final = (T.CONNACK, T.PUBACK, T.PUBREC, T.PUBREL, T.PUBCOMP, T.SUBACK, T.UNSUBACK, T.DISCONNECT, T.AUTH)
_ALL: Final = (*_ANSWERS, T.CONNECT, T.WILL, T.PUBLISH, T.SUBSCRIBE, T.UNSUBSCRIBE)

FORMATS: Final = (
    PropertyFormat(0x01, "payload_format", *BYTE, _MESSAGE),
    PropertyFormat(0x02, "message_expiry", *U32, _MESSAGE),
    PropertyFormat(0x03, "content_type", *TEXT, _MESSAGE),
    PropertyFormat(0x08, "response_topic", *TEXT, _MESSAGE),
    PropertyFormat(0x09, "correlation_data", *BINARY, _MESSAGE),
    PropertyFormat(0x0B, "subscription_ids", *VARINT, (T.PUBLISH, T.SUBSCRIBE)),
    PropertyFormat(0x11, "session_expiry", *U32, (*_CONNECT, T.DISCONNECT)),
    PropertyFormat(0x12, "assigned_client_id", *TEXT, (T.CONNACK,)),
    PropertyFormat(0x13, "server_keep_alive", *U16, (T.CONNACK,)),
    PropertyFormat(0x15, "authentication_method", *TEXT, (*_CONNECT, T.AUTH)),
    PropertyFormat(0x16, "authentication_data", *BINARY, (*_CONNECT, T.AUTH)),
    PropertyFormat(0x17, "request_problem_information", *BYTE, (T.CONNECT,)),
    PropertyFormat(0x18, "will_delay", *U32, (T.WILL,)),
    PropertyFormat(0x19, "request_response_information", *BYTE, (T.CONNECT,)),
    PropertyFormat(0x1A, "response_information", *TEXT, (T.CONNACK,)),
    PropertyFormat(0x1C, "server_reference", *TEXT, (T.CONNACK, T.DISCONNECT)),
    PropertyFormat(0x1F, "reason_string", *TEXT, _ANSWERS),
    PropertyFormat(0x21, "receive_maximum", *U16, _CONNECT),
    PropertyFormat(0x22, "topic_alias_maximum", *U16, _CONNECT),
    PropertyFormat(0x23, "topic_alias", *U16, (T.PUBLISH,)),
    PropertyFormat(0x24, "maximum_qos", *BYTE, (T.CONNACK,)),
    PropertyFormat(0x25, "retain_available", *BYTE, (T.CONNACK,)),
    PropertyFormat(0x26, "user_properties", *PAIR, _ALL),
    PropertyFormat(0x27, "maximum_packet_size", *U32, _CONNECT),
    PropertyFormat(0x28, "wildcards_available", *BYTE, (T.CONNACK,)),
    PropertyFormat(0x29, "subscription_ids_available", *BYTE, (T.CONNACK,)),
    PropertyFormat(0x2A, "shared_available", *BYTE, (T.CONNACK,)),
)

_BY_NAME: Final = {one.name: one for one in FORMATS}
_BY_IDENTIFIER: Final = {one.identifier: one for one in FORMATS}
_FLAGS: Final = tuple(one.name for one in FORMATS if one.read is ByteReader.read_byte)
_NOT_ZERO: Final = ("receive_maximum", "maximum_packet_size")


def read_properties(reader: ByteReader, packet_type: PacketType) -> PacketProperties:
    """The properties that stand next; raises `PacketError`."""
    length = reader.read_varint()
    if not length:
        return NO_PROPERTIES
    packet_end, end = reader.end, reader.at + length
    if end > packet_end:
        raise MalformedPacket("the properties are longer than the packet", "2.2.2.1")
    reader.end = end
    fields: dict[str, Any] = {}
    lists: dict[str, list[Any]] = {}
    while reader.at < end:
        identifier = reader.read_byte()
        found = _BY_IDENTIFIER.get(identifier)
        if found is None or packet_type not in found.types:
            raise MalformedPacket(f"property {identifier:#04x} does not belong to {packet_type.name}", "2.2.2.2")
        name = found.name
        if name == "user_properties" or (name == "subscription_ids" and packet_type is PacketType.PUBLISH):
            lists.setdefault(name, []).append(found.read(reader))
        elif name in fields:
            raise ProtocolViolation(f"{name} is there twice", "2.2.2.2")
        else:
            value = found.read(reader)
            fields[name] = (value,) if name == "subscription_ids" else value
    reader.end = packet_end
    return PacketProperties(**fields, **{name: tuple(values) for name, values in lists.items()})


def write_properties(properties: PacketProperties, packet_type: PacketType) -> bytes:
    """The properties with their length; raises `MalformedPacket` for one that the packet may not have."""
    if properties is NO_PROPERTIES:
        return b"\0"
    parts = []
    for name, one in _BY_NAME.items():
        value = getattr(properties, name)
        if value is None or value == ():
            continue
        if packet_type not in one.types:
            raise MalformedPacket(f"{name} does not belong to {packet_type.name}", "2.2.2.2")
        for each in value if isinstance(value, tuple) else (value,):
            parts += (bytes((one.identifier,)), one.write(each))
    data = b"".join(parts)
    return write_varint(len(data)) + data


def check_properties(properties: PacketProperties, packet_type: PacketType) -> None:
    """Raises `ProtocolViolation` for a value that its section forbids."""
    if properties is NO_PROPERTIES:
        return
    for name in _FLAGS:
        if getattr(properties, name) not in (None, 0, 1):
            raise ProtocolViolation(f"{name} is neither 0 nor 1", "2.2.2.2")
    for name in _NOT_ZERO:
        if getattr(properties, name) == 0:
            raise ProtocolViolation(f"{name} is 0", "3.1.2.11")
    if 0 in properties.subscription_ids:
        raise ProtocolViolation("a subscription identifier is 0", "3.8.2.1.2")
    if packet_type is PacketType.SUBSCRIBE and len(properties.subscription_ids) > 1:
        raise ProtocolViolation("subscription_ids is there twice", "3.8.2.1.2")
    if properties.topic_alias == 0:
        raise ProtocolViolation("the topic alias is 0", "MQTT-3.3.2-8", ReasonCode.TOPIC_ALIAS_INVALID)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation("authentication_data is there without authentication_method", "3.1.2.11.10")
    if properties.response_topic is not None:
        try:
            check_topic(properties.response_topic)
        except PacketError as error:
            raise ProtocolViolation("the response topic is no topic name", "MQTT-3.3.2-14", error.reason_code) from None
