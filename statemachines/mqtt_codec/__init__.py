"""A codec for MQTT 3.1.1 and MQTT 5: packets as frozen values, bytes out of them, and a decoder that is fed with bytes.

It does no input or output, keeps no clock, and imports nothing of this repository, and `msgspec` alone besides.
"""

from statemachines.mqtt_codec.codec_error import MalformedPacket as MalformedPacket
from statemachines.mqtt_codec.codec_error import PacketError as PacketError
from statemachines.mqtt_codec.codec_error import ProtocolViolation as ProtocolViolation
from statemachines.mqtt_codec.codec_error import ReasonCode as ReasonCode
from statemachines.mqtt_codec.decoder import Decoder as Decoder
from statemachines.mqtt_codec.packet import *  # noqa: F403
from statemachines.mqtt_codec.packet_form import encode as encode
from statemachines.mqtt_codec.packet_property import NO_PROPERTIES as NO_PROPERTIES
from statemachines.mqtt_codec.packet_property import PacketProperties as PacketProperties
from statemachines.mqtt_codec.topic_rule import check_filter as check_filter
from statemachines.mqtt_codec.topic_rule import check_topic as check_topic
