"""A codec for MQTT 3.1.1 and MQTT 5: packets as frozen values, bytes out of them, and a decoder that is fed with bytes.

It does no input or output, keeps no clock, and imports nothing of this repository, and `msgspec` alone besides.
"""

from statemachines.mqtt_codec.codec_error import MalformedPacket, PacketError, ProtocolViolation
from statemachines.mqtt_codec.decoder import Decoder
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
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubackPacket,
    UnsubscribePacket,
    WillMessage,
)
from statemachines.mqtt_codec.packet_writer import encode
from statemachines.mqtt_codec.reason_code import ReasonCode
from statemachines.mqtt_codec.topic_rule import check_filter, check_topic

__all__ = [
    "NO_PROPERTIES",
    "AuthPacket",
    "ConnackPacket",
    "ConnectPacket",
    "Decoder",
    "DisconnectPacket",
    "MalformedPacket",
    "MqttVersion",
    "PacketError",
    "PacketProperties",
    "PacketType",
    "PacketValue",
    "PingreqPacket",
    "PingrespPacket",
    "ProtocolViolation",
    "PubackPacket",
    "PubcompPacket",
    "PublishPacket",
    "PubrecPacket",
    "PubrelPacket",
    "ReasonCode",
    "SubackPacket",
    "SubscribePacket",
    "TopicSubscription",
    "UnsubackPacket",
    "UnsubscribePacket",
    "WillMessage",
    "check_filter",
    "check_topic",
    "encode",
]
