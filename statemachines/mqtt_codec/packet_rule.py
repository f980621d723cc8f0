"""What the standard says of one packet beyond its format; asked of each that is read, and of each that is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from statemachines.mqtt_codec import reason_code
from statemachines.mqtt_codec.codec_error import MalformedPacket, ProtocolViolation
from statemachines.mqtt_codec.packet import (
    NO_PROPERTIES,
    AuthPacket,
    ConnackPacket,
    ConnectPacket,
    DisconnectPacket,
    MqttVersion,
    PacketType,
    PacketValue,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubackPacket,
    SubscribePacket,
    UnsubackPacket,
    UnsubscribePacket,
)
from statemachines.mqtt_codec.property_format import check_properties
from statemachines.mqtt_codec.reason_code import ReasonCode
from statemachines.mqtt_codec.topic_rule import check_filter, check_topic

TYPES: Final[dict[type[Any], PacketType]] = {
    ConnectPacket: PacketType.CONNECT,
    ConnackPacket: PacketType.CONNACK,
    PublishPacket: PacketType.PUBLISH,
    PubackPacket: PacketType.PUBACK,
    PubrecPacket: PacketType.PUBREC,
    PubrelPacket: PacketType.PUBREL,
    PubcompPacket: PacketType.PUBCOMP,
    SubscribePacket: PacketType.SUBSCRIBE,
    SubackPacket: PacketType.SUBACK,
    UnsubscribePacket: PacketType.UNSUBSCRIBE,
    UnsubackPacket: PacketType.UNSUBACK,
    PingreqPacket: PacketType.PINGREQ,
    PingrespPacket: PacketType.PINGRESP,
    DisconnectPacket: PacketType.DISCONNECT,
    AuthPacket: PacketType.AUTH,
}


def check_packet(packet: PacketValue, version: MqttVersion) -> None:
    """Raises `PacketError` for a packet that this version of MQTT forbids."""
    if type(packet) is PublishPacket:
        _check_publish(packet, version)
    else:
        check = _CHECKS.get(type(packet))
        if check is not None:
            check(packet, version)
    properties = getattr(packet, "properties", NO_PROPERTIES)
    if properties is not NO_PROPERTIES:
        if version is MqttVersion.V3_1_1 and properties != NO_PROPERTIES:
            raise MalformedPacket("a packet of 3.1.1 has no properties", "2.2.2")
        check_properties(properties, TYPES[type(packet)])


def _check_publish(packet: PublishPacket, version: MqttVersion) -> None:
    _check_qos(packet.qos, "MQTT-3.3.1-4")
    if packet.qos:
        _check_packet_id(packet.packet_id)
    elif packet.packet_id:
        raise MalformedPacket("a PUBLISH of QoS 0 has a packet id", "MQTT-2.2.1-2")
    elif packet.dup:
        raise MalformedPacket("a PUBLISH of QoS 0 has DUP", "MQTT-3.3.1-2")
    if packet.topic or version is MqttVersion.V3_1_1:
        check_topic(packet.topic)
    elif packet.properties.topic_alias is None:
        raise ProtocolViolation("the topic is empty, and there is no topic alias", "3.3.2.1")


def _check_connect(packet: ConnectPacket, version: MqttVersion) -> None:
    if packet.version != version:
        raise ProtocolViolation("CONNECT is of another version", "MQTT-3.1.2-2", ReasonCode.UNSUPPORTED_VERSION)
    if version is MqttVersion.V3_1_1:
        if packet.password is not None and packet.user_name is None:
            raise MalformedPacket("there is a password and no user name", "3.1.1: MQTT-3.1.2-22")
        if not packet.client_id and not packet.clean_start:
            text = "the client id is empty, and clean session is 0"
            raise ProtocolViolation(text, "3.1.1: MQTT-3.1.3-8", ReasonCode.CLIENT_ID_INVALID)
    will = packet.will
    if will is not None:
        _check_qos(will.qos, "MQTT-3.1.2-12")
        check_topic(will.topic)
        if version is MqttVersion.V3_1_1 and will.properties != NO_PROPERTIES:
            raise MalformedPacket("a will of 3.1.1 has no properties", "2.2.2")
        check_properties(will.properties, PacketType.WILL)


def _check_connack(packet: ConnackPacket, version: MqttVersion) -> None:
    codes = reason_code.CONNACK if version is MqttVersion.V5 else reason_code.CONNACK_3
    _check_code(packet.reason_code, codes, "MQTT-3.2.2-8")
    if packet.session_present and packet.reason_code:
        raise ProtocolViolation("a session is present, and the connection is refused", "MQTT-3.2.2-6")


def _check_subscribe(packet: SubscribePacket, version: MqttVersion) -> None:
    _check_packet_id(packet.packet_id)
    if not packet.subscriptions:
        raise ProtocolViolation("SUBSCRIBE has no filter", "MQTT-3.8.3-2")
    for one in packet.subscriptions:
        check_filter(one.filter)
        if not 0 <= one.qos <= 2 or not 0 <= one.retain_handling <= 2:
            raise ProtocolViolation("QoS or retain handling is 3", "3.8.3.1")
        if one.no_local and one.filter.startswith("$share/"):
            raise ProtocolViolation("a shared subscription has No Local", "MQTT-3.8.3-4")
        if version is MqttVersion.V3_1_1 and (one.no_local or one.retain_as_published or one.retain_handling):
            raise MalformedPacket("a subscription of 3.1.1 has QoS alone", "3.1.1: MQTT-3-8.3-4")


def _check_unsubscribe(packet: UnsubscribePacket, version: MqttVersion) -> None:
    _check_packet_id(packet.packet_id)
    if not packet.filters:
        raise ProtocolViolation("UNSUBSCRIBE has no filter", "MQTT-3.10.3-2")
    for one in packet.filters:
        check_filter(one)


def _check_suback(packet: SubackPacket, version: MqttVersion) -> None:
    _check_packet_id(packet.packet_id)
    if not packet.reason_codes:
        raise ProtocolViolation("SUBACK has no reason code", "MQTT-3.8.4-6")
    codes = reason_code.SUBACK if version is MqttVersion.V5 else reason_code.SUBACK_3
    for one in packet.reason_codes:
        _check_code(one, codes, "MQTT-3.9.3-2")


def _check_unsuback(packet: UnsubackPacket, version: MqttVersion) -> None:
    _check_packet_id(packet.packet_id)
    if bool(packet.reason_codes) is (version is MqttVersion.V3_1_1):
        raise ProtocolViolation("UNSUBACK has a reason code for each filter in MQTT 5, none in 3.1.1", "3.11.3")
    for one in packet.reason_codes:
        _check_code(one, reason_code.UNSUBACK, "MQTT-3.11.3-2")


def _check_ack(codes: frozenset[int], statement: str) -> Callable[[Any, MqttVersion], None]:
    def check(packet: Any, version: MqttVersion) -> None:
        _check_packet_id(packet.packet_id)
        _check_code(packet.reason_code, codes if version is MqttVersion.V5 else reason_code.SUCCESS_ONLY, statement)

    return check


def _check_disconnect(packet: DisconnectPacket, version: MqttVersion) -> None:
    codes = reason_code.DISCONNECT if version is MqttVersion.V5 else reason_code.SUCCESS_ONLY
    _check_code(packet.reason_code, codes, "MQTT-3.14.2-1")


def _check_auth(packet: AuthPacket, version: MqttVersion) -> None:
    if version is MqttVersion.V3_1_1:
        raise MalformedPacket("3.1.1 has no AUTH", "2.1.2")
    _check_code(packet.reason_code, reason_code.AUTH, "MQTT-3.15.2-1")
    is_short = not packet.reason_code and packet.properties == NO_PROPERTIES
    if packet.properties.authentication_method is None and not is_short:
        raise ProtocolViolation("AUTH has no authentication method", "3.15.2.2.2")


def _check_packet_id(packet_id: int) -> None:
    if not 0 < packet_id <= 0xFFFF:
        raise ProtocolViolation(f"{packet_id} is no packet id", "MQTT-2.2.1-3")


def _check_qos(qos: int, statement: str) -> None:
    if not 0 <= qos <= 2:
        raise MalformedPacket(f"{qos} is no QoS", statement)


def _check_code(code: int, codes: frozenset[int], statement: str) -> None:
    if code not in codes:
        raise ProtocolViolation(f"{code:#04x} is no reason code of this packet", statement)


_CHECKS: Final[dict[type[Any], Callable[[Any, MqttVersion], None]]] = {
    ConnectPacket: _check_connect,
    ConnackPacket: _check_connack,
    PubackPacket: _check_ack(reason_code.PUBACK, "MQTT-3.4.2-1"),
    PubrecPacket: _check_ack(reason_code.PUBACK, "MQTT-3.5.2-1"),
    PubrelPacket: _check_ack(reason_code.PUBREL, "MQTT-3.6.2-1"),
    PubcompPacket: _check_ack(reason_code.PUBREL, "MQTT-3.7.2-1"),
    SubscribePacket: _check_subscribe,
    SubackPacket: _check_suback,
    UnsubscribePacket: _check_unsubscribe,
    UnsubackPacket: _check_unsuback,
    DisconnectPacket: _check_disconnect,
    AuthPacket: _check_auth,
}
