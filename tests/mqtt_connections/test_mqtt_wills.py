"""Wills of MQTT clients over two nodes: which end of a connection sends them, and which does not."""

from __future__ import annotations

import asyncio

import pytest
from mqtt_socket import MqttSocket, mqtt_node

from statemachines.drivers.persistent_sessions.operator_request import KickClient
from statemachines.drivers.persistent_sessions.will_sender import WillSender
from statemachines.mqtt_codec import (
    DisconnectPacket,
    PacketProperties,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    WillMessage,
)

KEPT = PacketProperties(session_expiry=100)


def will(payload, delay=0):
    return WillMessage("t/will", payload, 1, properties=PacketProperties(will_delay=delay or None))


async def watch(client):
    await client.connect("watcher")
    assert await client.ask(SubscribePacket(9, (TopicSubscription("t/#", 1),))) == SubackPacket(9, (1,))


async def receive(client):
    packet = await client.read()
    client.send(PubackPacket(packet.packet_id))
    return packet.payload


async def mark(client, payload):
    assert await client.ask(PublishPacket("t/mark", payload, 1, packet_id=3)) == PubackPacket(3)


async def test_MQ_121_the_will_of_a_client_whose_server_stops_is_sent_by_the_other(store):
    async with mqtt_node(store, "b") as other, MqttSocket(other.address) as watcher:
        await watch(watcher)
        async with mqtt_node(store) as node, MqttSocket(node.address) as client:
            await client.connect("a", will=will(b"stopped"))
            async with MqttSocket(node.address) as refused:
                code = (await refused.connect("d", will=WillMessage("/".join("x" * 200), b""))).reason_code
                assert code == 0x90
        assert await receive(watcher) == b"stopped"


@pytest.mark.parametrize(("delay", "clean_start", "is_sent"), [(0, False, True), (50, False, False), (50, True, True)])
async def test_MQ_122_a_takeover_at_another_node_sends_a_will_without_delay_and_that_of_a_session_that_ends(
    store, delay, clean_start, is_sent
):
    async with (
        mqtt_node(store) as node,
        mqtt_node(store, "b") as other,
        MqttSocket(other.address) as watcher,
        MqttSocket(node.address) as older,
        MqttSocket(other.address) as newer,
    ):
        await watch(watcher)
        await older.connect("c", clean_start=False, properties=KEPT, will=will(b"older", delay))
        await newer.connect("c", clean_start=clean_start, properties=KEPT, will=will(b"newer"))
        assert await older.read() == DisconnectPacket(0x8E)
        if is_sent:
            assert await receive(watcher) == b"older"
        await mark(newer, b"mark")
        assert await receive(watcher) == b"mark"
        newer.send(DisconnectPacket(4))
        assert await receive(watcher) == b"newer"


async def test_MQ_122_a_will_with_a_delay_is_not_sent_for_a_client_that_comes_back_at_another_node(store):
    async with (
        mqtt_node(store) as node,
        mqtt_node(store, "b") as other,
        MqttSocket(other.address) as watcher,
    ):
        await watch(watcher)
        async with MqttSocket(node.address) as client:
            await client.connect("c", clean_start=False, properties=KEPT, will=will(b"delayed", 1))
        async with MqttSocket(other.address) as client:
            assert (await client.connect("c", clean_start=False, properties=KEPT)).session_present
            async with MqttSocket(other.address) as later:  # one whose delay ends behind that of the other
                await later.connect("d", properties=KEPT, will=will(b"later", 2))
            assert await receive(watcher) == b"later"


async def test_PS_521_a_will_comes_behind_what_its_client_published_at_another_node(store, monkeypatch):
    """The nodes are not linked, so what the other stores is found in the database alone."""
    async with mqtt_node(store, "a") as here, mqtt_node(store, "b") as there, MqttSocket(here.address) as watcher:
        settle = WillSender._settle

        async def settle_here(self, *due):
            await (settle(self, *due) if self._server is here._node._reception else asyncio.Event().wait())

        monkeypatch.setattr(WillSender, "_settle", settle_here)
        await watch(watcher)
        await mark(watcher, b"live")
        assert await receive(watcher) == b"live"
        async with MqttSocket(there.address) as client:
            await client.connect("c", clean_start=False, will=will(b"gone"), properties=KEPT)
            for number in range(3):
                await mark(client, b"%d" % number)
            await here._node._desk.ask(KickClient("c"))
            here._node._reception.session_ended.set()
        assert [await receive(watcher) for _ in range(4)] == [b"0", b"1", b"2", b"gone"]
