"""What a node does for MQTT clients: QoS, sessions, retained messages, options, properties, wills."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from mqtt_socket import MqttSocket, mqtt_node

from statemachines.drivers.mqtt_connections.message_properties import SubscriptionOptions, read_message, write_head
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.mqtt_codec import (
    DisconnectPacket,
    PacketProperties,
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
from statemachines.persistent_sessions.message import Delivered

KEPT = PacketProperties(session_expiry=100)
PROPERTIES = PacketProperties(
    payload_format=1,
    content_type="text/plain",
    response_topic="answers",
    correlation_data=b"\x00\x01",
    user_properties=(("b", "1"), ("a", "2"), ("b", "3")),
)


async def subscribe(client, topic_filter="t/#", qos=1, **options):
    identifier = options.pop("identifier", ())
    packet = SubscribePacket(
        9, (TopicSubscription(topic_filter, qos, **options),), PacketProperties(subscription_ids=identifier)
    )
    assert await client.ask(packet) == SubackPacket(9, (qos,))


async def receive(client, qos=1):
    """The next message, answered."""
    packet = await client.read()
    assert isinstance(packet, PublishPacket)
    if packet.qos == 1:
        client.send(PubackPacket(packet.packet_id))
    return packet


async def publish(client, payload, topic="t/1", qos=1, **fields):
    code = fields.pop("code", 0)
    answer = await client.ask(PublishPacket(topic, payload, qos, packet_id=7, **fields))
    assert answer == PubackPacket(7, code)


@pytest.mark.parametrize("version", [4, 5])
async def test_qos_2_goes_through_all_its_packets_and_a_session_is_present_again(store, version):
    async with mqtt_node(store) as node, MqttSocket(node.address, version) as publisher:
        await publisher.connect("w")
        async with MqttSocket(node.address, version) as client:
            given = {"properties": KEPT} if version == 5 else {}
            assert not (await client.connect(clean_start=False, **given)).session_present
            await subscribe(client, qos=2)
            assert await publisher.ask(PublishPacket("t/1", b"x", 2, packet_id=1)) == PubrecPacket(1)
            assert await publisher.ask(PublishPacket("t/1", b"x", 2, packet_id=1, dup=True)) == PubrecPacket(1)
            assert await publisher.ask(PubrelPacket(1)) == PubcompPacket(1)
            packet = await client.read()
            assert (packet.payload, packet.qos) == (b"x", 2)
            assert await client.ask(PubrecPacket(packet.packet_id)) == PubrelPacket(packet.packet_id)
            client.send(PubcompPacket(packet.packet_id))
            assert await client.ask(PingreqPacket()) == PingrespPacket()
        async with MqttSocket(node.address, version) as client:
            assert (await client.connect(clean_start=False, **given)).session_present
            code = (0x11,) if version == 5 else ()
            assert await client.ask(UnsubscribePacket(1, ("other",))) == UnsubackPacket(1, code)


async def test_an_id_of_qos_2_is_known_to_the_next_connection_at_the_same_node(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as reader:
        await reader.connect("reader")
        await subscribe(reader)
        async with MqttSocket(node.address) as client:
            await client.connect(clean_start=False, properties=KEPT)
            assert await client.ask(PublishPacket("t/1", b"x", 2, packet_id=5)) == PubrecPacket(5)
        async with MqttSocket(node.address) as client:
            await client.connect(clean_start=False, properties=KEPT)
            assert await client.ask(PublishPacket("t/1", b"x", 2, packet_id=5, dup=True)) == PubrecPacket(5)
            assert await client.ask(PubrelPacket(5)) == PubcompPacket(5)
            await publish(client, b"end")
        assert [(await receive(reader)).payload for _ in range(2)] == [b"x", b"end"]


async def test_MQ_55_another_connection_takes_the_session(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as older, MqttSocket(node.address) as newer:
        await older.connect(properties=KEPT)
        assert (await newer.connect(clean_start=False, properties=KEPT)).session_present
        assert await older.read() == DisconnectPacket(0x8E)
        assert await older.read() is None


async def test_PS_440_a_session_without_expiry_is_over_for_the_connection_that_takes_its_place(store):
    async with (
        mqtt_node(store) as one,
        mqtt_node(store, "b") as other,
        MqttSocket(one.address, 4) as older,
        MqttSocket(other.address, 4) as newer,
    ):
        await older.connect(clean_start=True)
        await subscribe(older)
        assert not (await newer.connect(clean_start=False)).session_present
        assert await older.read() is None


async def test_PS_441_PS_442_a_retained_message_comes_to_who_subscribes_later_also_at_another_node(store):
    async with mqtt_node(store) as one, mqtt_node(store, "b") as other, MqttSocket(one.address) as publisher:
        await publisher.connect("w")
        await publish(publisher, b"old", retain=True, code=0x10, properties=PROPERTIES)
        await publish(publisher, b"new", retain=True, code=0x10, properties=PROPERTIES)
        await publish(publisher, b"gone", topic="t/2", retain=True, code=0x10)
        await publish(publisher, b"", topic="t/2", retain=True, code=0x10)
        async with MqttSocket(other.address) as client:
            await client.connect()
            await subscribe(client, retain_handling=1)
            packet = await receive(client)
            assert (packet.payload, packet.retain, packet.properties) == (b"new", True, PROPERTIES)
            await subscribe(client, retain_handling=1)
            await subscribe(client, retain_handling=2)
            await subscribe(client, "t/1", qos=0)
            packet = await receive(client)
            assert (packet.payload, packet.retain, packet.qos) == (b"new", True, 0)
            await publish(publisher, b"live", retain=True)
            assert not (await receive(client)).retain


async def test_PS_443_options_and_identifiers_of_a_subscription_hold_over_a_reconnect(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as other:
        await other.connect("other")
        async with MqttSocket(node.address) as client:
            await client.connect(clean_start=False, properties=KEPT)
            await subscribe(client, no_local=True, retain_as_published=True, identifier=(77,))
        async with MqttSocket(node.address) as client:
            assert (await client.connect(clean_start=False, properties=KEPT)).session_present
            await publish(client, b"mine")
            await publish(client, b"ours", topic="$SYS/x", code=0x87)
            await publish(other, b"theirs", retain=True)
            packet = await receive(client)
            assert (packet.payload, packet.retain) == (b"theirs", True)
            assert packet.properties == PacketProperties(subscription_ids=(77,))


async def test_MQ_123_overlapping_filters_bring_one_copy_of_the_highest_quality_with_all_identifiers(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as other, MqttSocket(node.address) as client:
        await other.connect("other")
        await client.connect(clean_start=False, properties=KEPT)
        for topic_filter, qos, identifier in (
            ("t/+", 1, (7,)),
            ("t/#", 2, ()),
            ("#", 0, (268_435_455,)),
            ("u", 1, (9,)),
        ):
            await subscribe(client, topic_filter, qos, identifier=identifier)
        await subscribe(client, "t/1", 0, identifier=(5,), no_local=True)
        async with PersistentSession("python", node=node._node) as python:
            for topic_filter in ("t/1", "t/#"):
                await python.subscribe(topic_filter, 1)
            await publish(other, b"x")
            assert sorted([(await anext(python)).filter for _ in range(2)]) == ["t/#", "t/1"]
        packet = await client.read()
        assert (packet.qos, packet.properties.subscription_ids) == (1, (5, 7, 268_435_455))
        client.send(PubackPacket(packet.packet_id))
        assert await client.ask(UnsubscribePacket(1, ("t/+",))) == UnsubackPacket(1, (0,))
        await publish(other, b"y")
        packet = await receive(client)
        assert (packet.payload, packet.properties.subscription_ids) == (b"y", (5, 268_435_455))
        client.send(PublishPacket("t/1", b"mine"))
        assert (await receive(client)).payload == b"mine", "by another filter than that with No Local"
        await publish(other, b"end", topic="u")
        packet = await receive(client)
        assert (packet.payload, packet.properties.subscription_ids) == (b"end", (9, 268_435_455))


async def test_user_properties_are_headers_of_python_clients_and_back(store):
    async with mqtt_node(store) as mqtt, MqttSocket(mqtt.address) as client:
        await client.connect()
        node = mqtt._node
        async with PersistentSession("python", node=node) as session, SessionPublisher(node=node) as publisher:
            await session.subscribe("t/#")
            await publish(client, b"x", properties=PROPERTIES)
            message = await anext(session)
            assert message.headers[:3] == (("b", b"1"), ("a", b"2"), ("b", b"3"))
            await subscribe(client)
            await publisher.publish("t/2", b"y", headers=[("k", b"v"), ("binary", b"\xff"), ("mqtt.properties", b"?")])
            assert (await receive(client)).properties == PacketProperties(user_properties=(("k", "v"),))


def test_properties_come_back_as_they_were():
    wide = PacketProperties(user_properties=(("", "empty"), ("x" * 300, "long")))
    for properties in (PROPERTIES, wide, PacketProperties()):
        head = write_head(PublishPacket("t", b"", properties=properties))
        message = Delivered(1, "t", b"", "t", 1, False, 1_500, head or None)
        packet = read_message(message, SubscriptionOptions(subscription_id=3), (3,))
        assert packet.properties.message_expiry == 2
        assert packet.properties.subscription_ids == (3,)
        assert packet.properties.user_properties == properties.user_properties
        assert packet.properties.correlation_data == properties.correlation_data


async def test_MQ_57_the_will_of_a_lost_client_is_sent_and_that_of_one_that_leaves_is_not(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as watcher:
        await watcher.connect("watcher")
        await subscribe(watcher)
        will = WillMessage("t/will", b"1", 1, properties=PacketProperties(content_type="w"))
        for client_id, leaves in (("a", True), ("b", False)):
            async with MqttSocket(node.address) as client:
                await client.connect(client_id, will=WillMessage("t/will", client_id.encode(), 1))
                if leaves:
                    client.send(DisconnectPacket())
                    assert await client.read() is None
        async with MqttSocket(node.address) as client:
            await client.connect("c", will=will)
            client.send(DisconnectPacket(4))
            assert await client.read() is None
        first, second = await receive(watcher), await receive(watcher)
        assert [first.payload, second.payload] == [b"b", b"1"]
        assert second.properties.content_type == "w"


async def test_a_will_with_a_delay_is_not_sent_to_a_session_that_comes_back(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as watcher:
        await watcher.connect("watcher")
        await subscribe(watcher)
        for number, clean_start in enumerate((False, False, True)):
            will = WillMessage("t/will", b"%d" % number, 1, properties=PacketProperties(will_delay=4))
            async with MqttSocket(node.address) as client:
                await client.connect(clean_start=clean_start, will=will, properties=KEPT)
        await publish(watcher, b"mark")
        packets = [await receive(watcher) for _ in range(2)]
        assert [one.payload for one in packets] == [b"mark", b"2"], "of the last connection alone"


async def test_a_shared_filter_is_refused_where_the_node_knows_no_groups(store, caplog):
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        assert (await client.connect()).properties.shared_available == 0
        packet = SubscribePacket(1, (TopicSubscription("$share/g/t", 1), TopicSubscription("t", 1)))
        assert await client.ask(packet) == SubackPacket(1, (0x9E, 1))
    assert "beside --peers give --group-listen and --group-peers" in caplog.text


async def test_PS_481_an_mqtt_publisher_that_connects_to_another_node_keeps_its_order(store):
    """The other node is not linked to that of the subscriber."""
    async with mqtt_node(store, "a") as here, mqtt_node(store, "b") as there, MqttSocket(here.address) as client:
        await client.connect("r")
        await subscribe(client)
        for turn, node in enumerate((there, here, there, here)):
            async with MqttSocket(node.address) as publisher:
                await publisher.connect("w", clean_start=False, properties=KEPT)
                for number in range(3):
                    await publish(publisher, str(3 * turn + number).encode())
        assert [int((await receive(client)).payload) for _ in range(12)] == list(range(12))


async def test_MQ_172_an_acknowledgement_that_a_stopping_node_has_not_read_is_taken(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as publisher:
        await publisher.connect("p")
        client = await MqttSocket(node.address).__aenter__()
        await client.connect(clean_start=False, properties=KEPT)
        await subscribe(client)
        await publish(publisher, b"x")
        assert (await client.read()).payload == b"x"
        client.send(PubackPacket(1))  # the block ends here: the node stops before it has read this
    assert await client.read() == DisconnectPacket(0x8B)
    client.writer.close()
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        assert (await client.connect(clean_start=False, properties=KEPT)).session_present
        assert await client.ask(PingreqPacket()) == PingrespPacket()


async def test_a_payload_format_that_the_standard_does_not_define_is_passed_on(store):
    async with mqtt_node(store) as node, MqttSocket(node.address) as client:
        await client.connect()
        await subscribe(client, qos=0)
        client.send(PublishPacket("t/1", b"x", properties=PacketProperties(payload_format=237)))
        assert (await client.read()).properties.payload_format == 237


async def test_MQ_191_qos_0_is_not_kept_for_a_client_that_is_away(store):
    """Nor is a message of QoS 1 for a subscription with QoS 0; who is connected gets both."""
    async with mqtt_node(store) as node, AsyncExitStack() as stack:
        for qos in (0, 1):
            async with MqttSocket(node.address) as client:
                await client.connect(f"away-{qos}", properties=KEPT)
                await subscribe(client, qos=qos)
                client.send(DisconnectPacket())
                assert await client.read() is None
        there = await stack.enter_async_context(MqttSocket(node.address))
        await there.connect("there")
        await subscribe(there, qos=0)
        writer = await stack.enter_async_context(MqttSocket(node.address))
        await writer.connect("writer")
        writer.send(PublishPacket("t/1", b"zero"))
        assert await writer.ask(PublishPacket("t/1", b"one", 1, packet_id=1)) == PubackPacket(1)
        assert [(await there.read()).payload for _ in range(2)] == [b"zero", b"one"]
        for qos, payloads in ((0, []), (1, [b"one"])):
            client = await stack.enter_async_context(MqttSocket(node.address))
            assert (await client.connect(f"away-{qos}", clean_start=False, properties=KEPT)).session_present
            assert await writer.ask(PublishPacket("t/1", b"later", 1, packet_id=2)) == PubackPacket(2)
            assert [(await client.read()).payload for _ in range(len(payloads) + 1)] == [*payloads, b"later"]
