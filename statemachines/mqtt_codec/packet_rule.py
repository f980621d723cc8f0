"""What the standard says of one packet beyond its format; asked of each that is read, and of each that is written."""

from __future__ import annotations

from typing import Any, Final

from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_codec.codec_error import MalformedPacket, ProtocolViolation, ReasonCode
from statemachines.mqtt_codec.packet_property import NO_PROPERTIES, PacketProperties, PacketType, check_properties
from statemachines.mqtt_codec.topic_rule import check_filter, check_topic, is_shared_filter

CLASSES: Final[dict[PacketType, type[Any]]] = {
    kind: getattr(p, f"{kind.name.capitalize()}Packet") for kind in PacketType if kind is not PacketType.WILL
}
TYPES: Final = {one: kind for kind, one in CLASSES.items()}
V3: Final = p.MqttVersion.V3_1_1

# fmt: off
CODES: Final[dict[type[Any], tuple[str, set[int], set[int]]]] = {
    p.ConnackPacket: ("MQTT-3.2.2-8",
                      {0, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F}, set(range(6))),
    p.PubackPacket: ("MQTT-3.4.2-1", {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}, {0}),
    p.PubrecPacket: ("MQTT-3.5.2-1", {0, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}, {0}),
    p.PubrelPacket: ("MQTT-3.6.2-1", {0, 0x92}, {0}),
    p.PubcompPacket: ("MQTT-3.7.2-1", {0, 0x92}, {0}),
    p.SubackPacket: ("MQTT-3.9.3-2",
                     {0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2}, {0, 1, 2, 0x80}),
    p.UnsubackPacket: ("MQTT-3.11.3-2", {0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91}, set()),
    p.DisconnectPacket: ("MQTT-3.14.2-1",
                         {0, 4, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3)}, {0}),
    p.AuthPacket: ("MQTT-3.15.2-1", {0, 0x18, 0x19}, set()),
}
# fmt: on
"""The statement that names the reason codes of a packet, those of MQTT 5, and those of 3.1.1."""


def check_packet(packet: p.PacketValue, version: p.MqttVersion) -> None:
    """Raises `PacketError` for a packet that this version of MQTT forbids."""
    if isinstance(packet, p.PublishPacket):
        _check_publish(packet, version)
        return _check_properties(packet.properties, PacketType.PUBLISH, version)
    if hasattr(packet, "packet_id"):
        _check_packet_id(packet.packet_id)
    if type(packet) in CODES:
        statement, codes, codes_3 = CODES[type(packet)]
        allowed = codes_3 if version is V3 else codes
        one_code: int | None = getattr(packet, "reason_code", None)
        for code in getattr(packet, "reason_codes", ()) if one_code is None else (one_code,):
            if code not in allowed:
                raise ProtocolViolation(f"{code:#04x} is no reason code of this packet", statement)
    match packet:
        case p.ConnectPacket():
            _check_connect(packet, version)
        case p.ConnackPacket() if packet.session_present and packet.reason_code:
            raise ProtocolViolation("a session is present, and the connection is refused", "MQTT-3.2.2-6")
        case p.SubscribePacket():
            _check_subscribe(packet, version)
        case p.SubackPacket(reason_codes=()):
            raise ProtocolViolation("SUBACK has no reason code", "MQTT-3.8.4-6")
        case p.UnsubscribePacket(filters=()):
            raise ProtocolViolation("UNSUBSCRIBE has no filter", "MQTT-3.10.3-2")
        case p.UnsubscribePacket():
            for one in packet.filters:
                check_filter(one)
        case p.UnsubackPacket() if bool(packet.reason_codes) is (version is V3):
            raise ProtocolViolation("UNSUBACK has a code for each filter in MQTT 5, none in 3.1.1", "3.11.3")
        case p.AuthPacket() if packet.properties.authentication_method is None and packet != p.AuthPacket():
            raise ProtocolViolation("AUTH has no authentication method", "3.15.2.2.2")
    return _check_properties(getattr(packet, "properties", NO_PROPERTIES), TYPES[type(packet)], version)


def _check_publish(packet: p.PublishPacket, version: p.MqttVersion) -> None:
    _check_qos(packet.qos, "MQTT-3.3.1-4")
    if packet.qos:
        _check_packet_id(packet.packet_id)
    elif packet.packet_id:
        raise MalformedPacket("a PUBLISH of QoS 0 has a packet id", "MQTT-2.2.1-2")
    elif packet.dup:
        raise MalformedPacket("a PUBLISH of QoS 0 has DUP", "MQTT-3.3.1-2")
    if packet.topic or version is V3:
        check_topic(packet.topic)
    elif packet.properties.topic_alias is None:
        raise ProtocolViolation("the topic is empty, and there is no topic alias", "3.3.2.1")


def _check_connect(packet: p.ConnectPacket, version: p.MqttVersion) -> None:
    if packet.version != version:
        raise ProtocolViolation("CONNECT is of another version", "MQTT-3.1.2-2", ReasonCode.UNSUPPORTED_VERSION)
    if version is V3 and packet.password is not None and packet.user_name is None:
        raise MalformedPacket("there is a password and no user name", "3.1.1: MQTT-3.1.2-22")
    if version is V3 and not packet.client_id and not packet.clean_start:
        text = "the client id is empty, and clean session is 0"
        raise ProtocolViolation(text, "3.1.1: MQTT-3.1.3-8", ReasonCode.CLIENT_ID_INVALID)
    if packet.will is not None:
        _check_qos(packet.will.qos, "MQTT-3.1.2-12")
        check_topic(packet.will.topic)
        _check_properties(packet.will.properties, PacketType.WILL, version)


def _check_subscribe(packet: p.SubscribePacket, version: p.MqttVersion) -> None:
    if not packet.subscriptions:
        raise ProtocolViolation("SUBSCRIBE has no filter", "MQTT-3.8.3-2")
    for one in packet.subscriptions:
        check_filter(one.filter)
        if not 0 <= one.qos <= 2 or not 0 <= one.retain_handling <= 2:
            raise ProtocolViolation("QoS or retain handling is 3", "3.8.3.1")
        if one.no_local and is_shared_filter(one.filter):
            raise ProtocolViolation("a shared subscription has No Local", "MQTT-3.8.3-4")
        if version is V3 and (one.no_local or one.retain_as_published or one.retain_handling):
            raise MalformedPacket("a subscription of 3.1.1 has QoS alone", "MQTT-3.8.3-5")


def _check_properties(properties: PacketProperties, packet_type: PacketType, version: p.MqttVersion) -> None:
    if version is V3 and properties != NO_PROPERTIES:
        raise MalformedPacket("a packet of 3.1.1 has no properties", "2.2.2")
    check_properties(properties, packet_type)


def _check_packet_id(packet_id: int) -> None:
    if not 0 < packet_id <= 0xFFFF:
        raise ProtocolViolation(f"{packet_id} is no packet id", "MQTT-2.2.1-3")


def _check_qos(qos: int, statement: str) -> None:
    if not 0 <= qos <= 2:
        raise MalformedPacket(f"{qos} is no QoS", statement)
