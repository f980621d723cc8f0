"""Properties of packets (section 2.2.2): which packet may have which, how each is written, what it may be."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple, get_type_hints

import msgspec

from statemachines.mqtt_codec import byte_field as b
from statemachines.mqtt_codec.byte_field import ByteReader
from statemachines.mqtt_codec.codec_error import MalformedPacket, PacketError, ProtocolViolation, ReasonCode
from statemachines.mqtt_codec.topic_rule import check_topic

PacketType = IntEnum(
    "PacketType",
    "WILL CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE UNSUBACK PINGREQ PINGRESP "
    "DISCONNECT AUTH",
    start=0,
)
"""The first four bits of a packet (section 2.1.2).  0 is reserved; here it is the will within CONNECT."""


class PropertyForm(NamedTuple):
    """The identifier of a property, how it is read and written, and the packets that may have it."""

    identifier: int
    read: Callable[[ByteReader], Any]
    write: Callable[[Any], bytes]
    types: str


P = PropertyForm
BYTE: Final = (ByteReader.read_byte, b.write_byte)
U16: Final = (ByteReader.read_u16, b.write_u16)
U32: Final = (ByteReader.read_u32, b.write_u32)
VARINT: Final = (ByteReader.read_varint, b.write_varint)
TEXT: Final = (ByteReader.read_text, b.write_text)
BINARY: Final = (ByteReader.read_binary, b.write_binary)
PAIR: Final = (ByteReader.read_pair, b.write_pair)
MESSAGE: Final = "PUBLISH WILL"
HANDSHAKE: Final = "CONNECT CONNACK"
LOGIN: Final = "CONNECT CONNACK AUTH"
ANSWERS: Final = "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"
ALL: Final = f"{ANSWERS} CONNECT WILL PUBLISH SUBSCRIBE UNSUBSCRIBE"


class PacketProperties(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The properties of a packet; None: it is absent.  Times are in seconds, sizes in bytes."""

    payload_format: Annotated[int | None, P(0x01, *BYTE, MESSAGE)] = None
    message_expiry: Annotated[int | None, P(0x02, *U32, MESSAGE)] = None
    content_type: Annotated[str | None, P(0x03, *TEXT, MESSAGE)] = None
    response_topic: Annotated[str | None, P(0x08, *TEXT, MESSAGE)] = None
    correlation_data: Annotated[bytes | None, P(0x09, *BINARY, MESSAGE)] = None
    subscription_ids: Annotated[tuple[int, ...], P(0x0B, *VARINT, "PUBLISH SUBSCRIBE")] = ()
    session_expiry: Annotated[int | None, P(0x11, *U32, "CONNECT CONNACK DISCONNECT")] = None
    assigned_client_id: Annotated[str | None, P(0x12, *TEXT, "CONNACK")] = None
    server_keep_alive: Annotated[int | None, P(0x13, *U16, "CONNACK")] = None
    authentication_method: Annotated[str | None, P(0x15, *TEXT, LOGIN)] = None
    authentication_data: Annotated[bytes | None, P(0x16, *BINARY, LOGIN)] = None
    request_problem_information: Annotated[int | None, P(0x17, *BYTE, "CONNECT")] = None
    will_delay: Annotated[int | None, P(0x18, *U32, "WILL")] = None
    request_response_information: Annotated[int | None, P(0x19, *BYTE, "CONNECT")] = None
    response_information: Annotated[str | None, P(0x1A, *TEXT, "CONNACK")] = None
    server_reference: Annotated[str | None, P(0x1C, *TEXT, "CONNACK DISCONNECT")] = None
    reason_string: Annotated[str | None, P(0x1F, *TEXT, ANSWERS)] = None
    receive_maximum: Annotated[int | None, P(0x21, *U16, HANDSHAKE)] = None
    topic_alias_maximum: Annotated[int | None, P(0x22, *U16, HANDSHAKE)] = None
    topic_alias: Annotated[int | None, P(0x23, *U16, "PUBLISH")] = None
    maximum_qos: Annotated[int | None, P(0x24, *BYTE, "CONNACK")] = None
    retain_available: Annotated[int | None, P(0x25, *BYTE, "CONNACK")] = None
    user_properties: Annotated[tuple[tuple[str, str], ...], P(0x26, *PAIR, ALL)] = ()
    maximum_packet_size: Annotated[int | None, P(0x27, *U32, HANDSHAKE)] = None
    wildcards_available: Annotated[int | None, P(0x28, *BYTE, "CONNACK")] = None
    subscription_ids_available: Annotated[int | None, P(0x29, *BYTE, "CONNACK")] = None
    shared_available: Annotated[int | None, P(0x2A, *BYTE, "CONNACK")] = None


NO_PROPERTIES: Final = PacketProperties()
_FORMS: Final[dict[str, PropertyForm]] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(PacketProperties, include_extras=True).items()
}
_TYPES: Final = {name: {PacketType[one] for one in form.types.split()} for name, form in _FORMS.items()}
_NAMES: Final = {form.identifier: name for name, form in _FORMS.items()}
_FLAGS: Final = tuple(name for name, form in _FORMS.items() if form.write is b.write_byte)


def read_properties(reader: ByteReader, packet_type: PacketType) -> PacketProperties:
    """The properties that stand next; raises `PacketError`."""
    length = reader.read_varint()
    if not length:
        return NO_PROPERTIES
    packet_end, reader.end = reader.end, reader.at + length
    if reader.end > packet_end:
        raise MalformedPacket("the properties are longer than the packet", "2.2.2.1")
    fields: dict[str, Any] = {}
    while reader.at < reader.end:
        identifier = reader.read_byte()
        name = _NAMES.get(identifier, "")
        if not name or packet_type not in _TYPES[name]:
            raise MalformedPacket(f"property {identifier:#04x} does not belong to {packet_type.name}", "2.2.2.2")
        value = _FORMS[name].read(reader)
        if name == "user_properties" or (name == "subscription_ids" and packet_type is PacketType.PUBLISH):
            fields.setdefault(name, []).append(value)
        elif name in fields:
            raise ProtocolViolation(f"{name} is there twice", "2.2.2.2")
        else:
            fields[name] = [value] if name == "subscription_ids" else value
    reader.end = packet_end
    lists = {name: tuple(one) for name, one in fields.items() if type(one) is list}
    return PacketProperties(**fields | lists)


def write_properties(properties: PacketProperties, packet_type: PacketType) -> bytes:
    """The properties with their length; raises `MalformedPacket` for one that the packet may not have."""
    if properties is NO_PROPERTIES:
        return b"\0"
    parts: list[bytes] = []
    for name, form in _FORMS.items():
        value = getattr(properties, name)
        if value is None or value == ():
            continue
        if packet_type not in _TYPES[name]:
            raise MalformedPacket(f"{name} does not belong to {packet_type.name}", "2.2.2.2")
        for one in value if isinstance(value, tuple) else (value,):
            parts += (b.write_byte(form.identifier), form.write(one))
    data = b"".join(parts)
    return b.write_varint(len(data)) + data


def check_properties(properties: PacketProperties, packet_type: PacketType) -> None:
    """Raises `ProtocolViolation` for a value that its section forbids."""
    if properties is NO_PROPERTIES:
        return
    for name in _FLAGS[1:]:  # the first, a payload format, is passed on as it is (MQTT-3.3.2-4)
        if getattr(properties, name) not in (None, 0, 1):
            raise ProtocolViolation(f"{name} is neither 0 nor 1", "2.2.2.2")
    if properties.receive_maximum == 0 or properties.maximum_packet_size == 0:
        raise ProtocolViolation("receive_maximum or maximum_packet_size is 0", "3.1.2.11")
    ids = properties.subscription_ids
    if 0 in ids or (packet_type is PacketType.SUBSCRIBE and len(ids) > 1):
        raise ProtocolViolation("a subscription identifier is 0, or SUBSCRIBE has two", "3.8.2.1.2")
    if properties.topic_alias == 0:
        raise ProtocolViolation("the topic alias is 0", "MQTT-3.3.2-8", ReasonCode.TOPIC_ALIAS_INVALID)
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise ProtocolViolation("authentication_data is there without authentication_method", "3.1.2.11.10")
    if properties.response_topic is not None:
        try:
            check_topic(properties.response_topic)
        except PacketError as error:
            raise ProtocolViolation("the response topic is no topic", "MQTT-3.3.2-14", error.reason_code) from None
