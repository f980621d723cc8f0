"""Words of the steps of an MQTT connection."""

from mqtt_client import SETTINGS as SETTINGS

from statemachines.mqtt_codec import Decoder, PacketError, PacketProperties, PublishPacket
from statemachines.mqtt_connections.client_packet import BrokenPacket, wrap_packet


def sent(packet):
    """A packet of the client."""
    return wrap_packet(packet)


def raw(data, version=None):
    """The first packet in bytes of a client, in hexadecimal."""
    try:
        (packet,) = Decoder(version, max_packet=SETTINGS.max_packet).feed(bytes.fromhex(data))
    except PacketError as error:
        return BrokenPacket(error.reason_code, error.level)
    return wrap_packet(packet)


def aliased(alias, topic="", **fields):
    return wrap_packet(PublishPacket(topic, b"x", properties=PacketProperties(topic_alias=alias), **fields))


def plain(packet_id, payload=b"x", qos=1, **fields):
    return PublishPacket("t", payload, qos, packet_id=packet_id, **fields)
