"""MQTT connections under any events, drawn by Hypothesis: the two engines, restored nodes, and invariants."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from mqtt_client import SETTINGS, MqttClient
from msgspec.structs import replace

from statemachines.mqtt_codec import (
    ConnectPacket,
    DisconnectPacket,
    PacketError,
    PacketProperties,
    PublishPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubscribePacket,
    encode,
)
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import MqttConnectionRecord
from statemachines.mqtt_connections.session_event import MqttSessionOpened
from statemachines.testing.machine import MachineTest
from statemachines.testing.protocol import Values

VALUES = Values(
    ints={
        "packet_id": (1, 2, 3, 0),
        "qos": (1, 2, 0),
        "topic_alias": (1, 2, 3, 0),
        "reason_code": (0, 0x10, 0x82, 0x97),
        "maximum_packet_size": (20, 2, 1_000),
        "session_expiry": (0, 50, 2_000),
    }
)


def is_packet(record, event):
    """The decoder yields packets alone, and the session gives some."""
    packet = getattr(event, "packet", None)
    try:
        return packet is None or bool(encode(packet, record.version))
    except (PacketError, ValueError):
        return False


RECORDS = [
    MqttConnectionRecord("client", one) for one in (SETTINGS, replace(SETTINGS, max_payload=1, receive_maximum=1))
]
TestMqttConnection = MachineTest.of(
    MQTT_CONNECTION, values=VALUES, start=st.sampled_from(RECORDS), legal=is_packet
).TestCase
TestMqttConnection.settings = settings(TestMqttConnection.settings, max_examples=40, stateful_step_count=25)


@pytest.mark.parametrize(("pairs", "filters", "is_refused"), [(9_999, 20_000, False), (10_000, 20_001, True)])
def test_MQ_180_a_packet_of_very_many_texts(pairs, filters, is_refused):
    properties = PacketProperties(user_properties=(("k", "v"),) * pairs)
    names = tuple(map(str, range(filters)))
    for packet in (
        PublishPacket("t", b"x", 1, packet_id=1, properties=properties),
        SubscribePacket(2, tuple(TopicSubscription(name, 1) for name in names)),
        UnsubscribePacket(2, names),
    ):
        client = MqttClient()
        client.send(ConnectPacket("c"))
        client.feed(MqttSessionOpened("c", False))
        assert (DisconnectPacket(0x97) in client.send(packet)) is is_refused, type(packet)
