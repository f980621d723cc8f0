"""Messages of QoS 2 of a publisher whose node is gone: each comes to each subscription once."""

from __future__ import annotations

from mqtt_socket import MqttSocket, mqtt_node

from statemachines.drivers.persistent_sessions.host_request import PublisherPacket, PutMessage
from statemachines.mqtt_codec import (
    PacketProperties,
    PubackPacket,
    PubcompPacket,
    PublishPacket,
    PubrecPacket,
    PubrelPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
)

KEPT = {"clean_start": False, "properties": PacketProperties(session_expiry=100)}


async def subscribe(client):
    assert await client.ask(SubscribePacket(9, (TopicSubscription("t/#", 1),))) == SubackPacket(9, (1,))


async def receive(client):
    packet = await client.read()
    client.send(PubackPacket(packet.packet_id))
    return packet.payload


async def test_MQ_120_PS_476_another_node_knows_the_id_until_the_release_is_durable(store):
    async with (
        mqtt_node(store) as one,
        mqtt_node(store, "b") as other,
        MqttSocket(one.address) as reader,
    ):
        await reader.connect("reader")
        await subscribe(reader)
        packet = PublishPacket("t/1", b"x", 2, packet_id=5)
        async with MqttSocket(one.address) as client:
            await client.connect(**KEPT)
            assert await client.ask(packet) == PubrecPacket(5)
        for node in (other, one):
            async with MqttSocket(node.address) as client:
                assert (await client.connect(**KEPT)).session_present
                for dup in (True, False):
                    assert await client.ask(PublishPacket("t/1", b"x", 2, packet_id=5, dup=dup)) == PubrecPacket(5)
        async with MqttSocket(other.address) as client:
            await client.connect(**KEPT)
            assert await client.ask(PubrelPacket(5)) == PubcompPacket(5)
            assert await client.ask(PubrelPacket(5)) == PubcompPacket(5, 0x92)
            assert await client.ask(PublishPacket("t/1", b"y", 2, packet_id=5)) == PubrecPacket(5)
        assert [await receive(reader) for _ in range(2)] == [b"x", b"y"]


async def test_PS_475_PS_477_what_a_node_began_is_finished_before_the_publisher_is_accepted_or_by_any_node(store):
    async with (
        mqtt_node(store, node_options={"lease_ms": 1_000}) as node,
        MqttSocket(node.address) as reader,
        MqttSocket(node.address) as client,
    ):
        await reader.connect("reader")
        await subscribe(reader)
        await client.connect(**KEPT)
        (life,) = [one.record for one in list_lives(node) if one.record.client == "c"]
        for number, packet in ((1, 5), (2, 6)):  # as of a node that is killed in between
            kept = PublisherPacket(life.session, life.token, packet)
            await node._node._desk.ask(PutMessage(f"gone/{number}", "t/1", b"%d" % number, 2, packet=kept))
            if number == 1:
                assert await receive(reader) == b"1"
        async with MqttSocket(node.address) as again:
            await again.connect(**KEPT)
            assert await again.ask(PublishPacket("t/1", b"2", 2, packet_id=6, dup=True)) == PubrecPacket(6)
            assert await again.ask(PublishPacket("t/1", b"3", 2, packet_id=7)) == PubrecPacket(7)
        assert [await receive(reader) for _ in range(2)] == [b"2", b"3"]


async def test_PS_521_what_another_node_began_comes_behind_what_its_publisher_published_there(store):
    """The nodes are not linked, so what the other stores is found in the database alone."""
    async with mqtt_node(store, "a") as here, mqtt_node(store, "b") as there, MqttSocket(here.address) as reader:
        await reader.connect("reader")
        await subscribe(reader)
        assert await reader.ask(PublishPacket("t/1", b"live", 1, packet_id=1)) == PubackPacket(1)
        assert await receive(reader) == b"live"
        async with MqttSocket(there.address) as client:
            await client.connect(**KEPT)
            for number in (1, 2):
                packet = PublishPacket("t/1", b"%d" % number, 1, packet_id=number)
                assert await client.ask(packet) == PubackPacket(number)
            (life,) = [one.record for one in list_lives(there)]
            kept = PublisherPacket(life.session, life.token, 5)
            await there._node._desk.ask(PutMessage("gone/1", "t/1", b"3", 2, packet=kept))
        async with MqttSocket(here.address) as again:
            await again.connect(**KEPT)
            assert [await receive(reader) for _ in range(3)] == [b"1", b"2", b"3"]


def list_lives(node):
    """The lives of the sessions that are connected there."""
    host = node._node.machines
    return [one for party, one in host.nodes.items() if one.fsm.name == "session_life"]
