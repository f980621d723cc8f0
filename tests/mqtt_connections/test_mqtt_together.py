"""Messages that leave together, and acknowledgements that come together, count one by one."""

from __future__ import annotations

import pytest
from mqtt_socket import QUICK, MqttSocket, mqtt_node

from statemachines.drivers.mqtt_connections import MqttNode
from statemachines.drivers.persistent_sessions import SessionNode
from statemachines.mqtt_codec import (
    DisconnectPacket,
    PacketProperties,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    PubrecPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    encode,
)

KEPT = PacketProperties(session_expiry=100)


async def connect(node, **fields):
    """A client whose session is kept."""
    client = await MqttSocket(node.address).__aenter__()
    return client, await client.connect("kept", clean_start=False, properties=KEPT, **fields)


async def store_messages(node, payloads, qualities=(1,)):
    """Messages for the session of `kept`, which is away; the first client subscribes for it."""
    client, _ = await connect(node)
    wanted = SubscribePacket(9, (TopicSubscription("t", 2),))
    assert await client.ask(wanted) == SubackPacket(9, (2,))
    await client.__aexit__()
    async with MqttSocket(node.address) as publisher:
        await publisher.connect("writer")
        for number, payload in enumerate(payloads, 1):
            qos = qualities[(number - 1) % len(qualities)]
            answer = await publisher.ask(PublishPacket("t", payload, qos, packet_id=number))
            assert isinstance(answer, (PubackPacket, PubrecPacket))


async def read_all(client):
    """What comes before the answer to a PINGREQ."""
    client.send(PingreqPacket())
    found = []
    while (packet := await client.read()) != PingrespPacket():
        found.append(packet)
    return found


def acknowledge(client, *packet_ids):
    """In one piece of bytes."""
    client.writer.write(b"".join(encode(PubackPacket(one), client.version) for one in packet_ids))


async def read_messages(client, count):
    return [await client.read() for _ in range(count)]


async def test_MQ_210_acknowledgements_that_come_together_count_each(store):
    async with mqtt_node(store) as node:
        await store_messages(node, [b"%d" % number for number in range(30)])
        client, _ = await connect(node)
        found = await read_messages(client, 30)
        assert [(one.payload, one.dup) for one in found] == [(b"%d" % number, False) for number in range(30)]
        ids = [one.packet_id for one in found]
        acknowledge(client, *ids[3:20], ids[4], 60_000, *ids[24:], ids[20], ids[20])
        assert await read_all(client) == []
        await client.__aexit__()
        client, _ = await connect(node)
        again = await read_messages(client, 6)
        assert [one.payload for one in again] == [b"0", b"1", b"2", b"21", b"22", b"23"]
        assert [(one.packet_id, one.dup) for one in again] == [(one, True) for one in (*ids[:3], *ids[21:24])]
        assert await read_all(client) == []
        await client.__aexit__()


async def test_MQ_210_nothing_behind_an_answer_of_the_wrong_kind_counts(store):
    async with mqtt_node(store) as node:
        await store_messages(node, [b"0", b"1", b"2"], (1, 2, 1))
        client, _ = await connect(node)
        ids = [one.packet_id for one in await read_messages(client, 3)]
        acknowledge(client, *ids)
        assert await client.read() is None
        await client.__aexit__()
        client, _ = await connect(node)
        assert [(one.payload, one.dup) for one in await read_messages(client, 2)] == [(b"1", True), (b"2", True)]
        assert await read_all(client) == []
        await client.__aexit__()


async def test_MQ_211_of_messages_that_leave_together_each_is_dropped_alone(store):
    async with mqtt_node(store) as node:
        await store_messages(node, [b"x" * (number % 3 * 20) for number in range(30)], (1, 2))
        small = PacketProperties(session_expiry=100, maximum_packet_size=40)
        client = await MqttSocket(node.address).__aenter__()
        await client.connect("kept", clean_start=False, properties=small)
        found = await read_messages(client, 20)
        assert [len(one.payload) for one in found] == [0, 20] * 10
        assert [one.qos for one in found] == [1 + number % 2 for number in range(30) if number % 3 < 2]
        assert await read_all(client) == []
        await client.__aexit__()


def publish_together(client, *packets):
    """In one piece of bytes."""
    client.writer.write(b"".join(encode(one, client.version) for one in packets))


@pytest.mark.parametrize("version", [4, 5])
async def test_MQ_235_MQ_236_messages_that_come_together_are_stored_in_their_order(store, version):
    async with mqtt_node(store) as node:
        await store_messages(node, [])
        async with MqttSocket(node.address, version) as publisher:
            await publisher.connect("writer")
            given = [PublishPacket("t", b"%d" % one, 1 + (one % 10 == 9), packet_id=one) for one in range(1, 121)]
            publish_together(publisher, *given)
            answers = [await publisher.read() for _ in given]
            assert [one.packet_id for one in answers if isinstance(one, PubackPacket)] == [
                one.packet_id for one in given if one.qos == 1
            ]
            assert {one.packet_id for one in answers} == set(range(1, 121))
        client, _ = await connect(node)
        assert [one.payload for one in await read_messages(client, 120)] == [one.payload for one in given]
        await client.__aexit__()


async def test_MQ_235_an_id_that_comes_twice_ends_the_connection_behind_those_before_it(store):
    async with mqtt_node(store) as node:
        await store_messages(node, [])
        async with MqttSocket(node.address) as publisher:
            await publisher.connect("writer")
            publish_together(publisher, *(PublishPacket("t", b"x", 1, packet_id=one) for one in (1, 2, 3, 2, 4)))
            assert await publisher.read() == DisconnectPacket(0x82)
            assert await publisher.read() is None
        client, _ = await connect(node)
        assert [one.payload for one in await read_messages(client, 3)] == [b"x"] * 3
        assert await read_all(client) == []
        await client.__aexit__()


@pytest.mark.parametrize("topic", ["/".join("a" * 200), "$share/g/t"])
@pytest.mark.parametrize("version", [4, 5])
async def test_MQ_243_behind_a_refusal_that_ends_the_connection_nothing_is_published(store, version, topic):
    async with mqtt_node(store) as node:
        await store_messages(node, [])
        async with MqttSocket(node.address, version) as publisher:
            await publisher.connect("writer")
            topics = ("t", topic, "t", "t")
            given = [PublishPacket(one, b"%d" % n, 1, packet_id=n) for n, one in enumerate(topics, 1)]
            publish_together(publisher, *given)
            if version == 4:
                assert await publisher.read() is None
            else:
                answers = [await publisher.read() for _ in given]
                assert sorted(one.packet_id for one in answers if one.reason_code < 0x80) == [1, 3, 4]
        client, _ = await connect(node)
        payloads = [b"1"] if version == 4 else [b"1", b"3", b"4"]
        assert [(await client.read()).payload for _ in payloads] == payloads
        assert await read_all(client) == []
        await client.__aexit__()


@pytest.mark.parametrize(("asked", "most"), [(None, 8_000), (65_535, 8_000), (20, 20)])
async def test_MQ_212_no_more_is_in_flight_than_a_node_has(store, asked, most):
    async with (
        SessionNode(store, name="a", **QUICK) as node,
        MqttNode(node, listen=("127.0.0.1", 0)) as mqtt,
    ):
        await store_messages(mqtt, [b"x"])
        client = await MqttSocket(mqtt.address).__aenter__()
        given = PacketProperties(session_expiry=100, receive_maximum=asked)
        assert (await client.connect("kept", clean_start=False, properties=given)).session_present
        assert (await client.read()).payload == b"x"
        (owner,) = node.machines.owners
        assert node.machines.resume_of(owner).delivery.receive_maximum == most
        await client.__aexit__()
