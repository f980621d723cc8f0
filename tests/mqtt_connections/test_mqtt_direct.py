"""Messages of QoS 0 go to connected clients past the database, also at another node."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import AsyncExitStack, asynccontextmanager, closing

import pytest
from mqtt_socket import MqttSocket, mqtt_node
from sharing_node import TIMES, count_streams

from statemachines.drivers.persistent_sessions import group_matcher
from statemachines.drivers.persistent_sessions.direct_messages import (
    RECEIVERS_BYTES_MAX,
    DirectMessage,
    split_receivers,
)
from statemachines.drivers.persistent_sessions.group_host import GroupHost
from statemachines.drivers.persistent_sessions.host_request import SubscribeFront
from statemachines.drivers.persistent_sessions.session_server import HELD_MAX
from statemachines.kernel import RemoteProtocolError
from statemachines.mqtt_codec import (
    DisconnectPacket,
    PacketProperties,
    PingreqPacket,
    PingrespPacket,
    PubackPacket,
    PublishPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    WillMessage,
)
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.takeover_message import OwnerReplaced
from statemachines.testing.process_harness import free_port

KEPT = PacketProperties(session_expiry=100)


@asynccontextmanager
async def linked_nodes(store, **options):
    """Two nodes that have dialled each other, with these options of nodes of sessions."""
    places = {name: ("127.0.0.1", free_port()) for name in "ab"}
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(
                mqtt_node(store, name, {"listen": places[name], "peers": [places["ba"["ab".index(name)]]], **options})
            )
            for name in "ab"
        ]
        while not all(len(one._node._transport._peers) == 2 for one in nodes):
            await asyncio.sleep(0.01)
        yield nodes


async def subscribe(client, topic_filter="t/#", qos=0, identifier=(), **options):
    properties = PacketProperties(subscription_ids=identifier)
    packet = SubscribePacket(9, (TopicSubscription(topic_filter, qos, **options),), properties)
    assert await client.ask(packet) == SubackPacket(9, (qos,))


def check_nothing_stored(store, *nodes):
    """No session has had a row, and no message is there."""
    assert [dict(one._node.machines.writers) for one in nodes] == [{} for _ in nodes]
    with closing(sqlite3.connect(store)) as database:
        assert database.execute("SELECT count(*) FROM messages").fetchone() == (0,)


async def test_MQ_192_a_message_that_is_stored_for_one_session_goes_past_the_database_to_another(store):
    async with (
        mqtt_node(store) as node,
        MqttSocket(node.address) as writer,
        MqttSocket(node.address) as stored,
        MqttSocket(node.address) as direct,
    ):
        for name, client, qos in (("w", writer, None), ("s", stored, 1), ("d", direct, 0)):
            await client.connect(name, clean_start=False, properties=KEPT)
            if qos is not None:
                await subscribe(client, qos=qos)
        assert await writer.ask(PublishPacket("t/1", b"one", 1, packet_id=1)) == PubackPacket(1)
        found = [await client.read() for client in (stored, direct)]
        assert [(one.payload, one.qos) for one in found] == [(b"one", 1), (b"one", 0)]


async def test_MQ_192_qos_0_goes_to_clients_of_both_nodes_in_order_and_nothing_is_stored(store):
    """With No Local, overlapping filters, identifiers, retain as published, and the lower QoS of a message of QoS 1."""
    async with (
        linked_nodes(store) as (one, other),
        MqttSocket(one.address) as writer,
        MqttSocket(one.address) as near,
        MqttSocket(other.address) as far,
        MqttSocket(other.address) as local,
    ):
        await writer.connect("w")
        await subscribe(writer, no_local=True)
        for client in (near, far):
            await client.connect(f"c{client.address[1]}", clean_start=False, properties=KEPT)
            await subscribe(client, "t/#", identifier=(7,), retain_as_published=True)
            await subscribe(client, "t/+", identifier=(8,), retain_as_published=True)
        await local.connect("l", properties=KEPT)
        await subscribe(local, no_local=True)
        for number in range(300):
            writer.send(PublishPacket("t/1", str(number).encode()))
            if number % 100 == 50:
                writer.send(PublishPacket("t/1", b"one", 1, packet_id=number))
        local.send(PublishPacket("t/1", b"x" * 900_000, retain=True))
        for client in (near, far, local):
            size = 303 + (client is not local)
            packets = [await client.read() for _ in range(size)]
            payloads = [packet.payload for packet in packets if len(packet.payload) < 4]
            assert [int(each) for each in payloads if each != b"one"] == list(range(300))
            assert payloads.count(b"one") == 3
            assert {packet.qos for packet in packets} == {0}
            ids = () if client is local else (7, 8)
            assert {packet.properties.subscription_ids for packet in packets} == {ids}
            assert [packet.retain for packet in packets if len(packet.payload) > 4] == [True][: client is not local]
        answers = [await writer.read() for _ in range(4)]
        assert sorted(type(each).__name__ for each in answers) == ["PubackPacket"] * 3 + ["PublishPacket"]
        assert await local.ask(PingreqPacket()) == PingrespPacket()
        check_nothing_stored(store, one, other)


async def test_MQ_192_a_session_that_moves_to_and_fro_has_no_message_of_qos_0_twice_or_late(store):
    async with linked_nodes(store) as nodes, MqttSocket(nodes[0].address) as writer:
        await writer.connect("w")
        numbers = iter(range(10**6))
        stopped = asyncio.Event()

        async def write():
            while not stopped.is_set():
                writer.send(PublishPacket("t/1", str(next(numbers)).encode()))
                await asyncio.sleep(0.001)

        writing = asyncio.ensure_future(write())
        found = []
        for turn in range(6):
            async with MqttSocket(nodes[turn % 2].address) as client:
                await client.connect("c", clean_start=False, properties=KEPT)
                if not turn:
                    await subscribe(client)
                found += [int((await client.read()).payload) for _ in range(20)]
        stopped.set()
        await writing
        assert len(found) == 120
        assert found == sorted(set(found))


async def test_MQ_192_a_message_for_a_client_of_a_node_without_a_link_is_dropped_and_counted(store, caplog):
    async with (
        mqtt_node(store) as one,
        mqtt_node(store, "b") as other,
        MqttSocket(one.address) as writer,
        MqttSocket(other.address) as client,
    ):
        await writer.connect("w")
        await client.connect("c")
        await subscribe(client)
        for number in range(3):
            answer = await writer.ask(PublishPacket("t/1", b"x", 1, packet_id=number + 1))
            assert answer == PubackPacket(number + 1)
        assert one._node.reception.direct.dropped == one.read_counters()["messages/dropped"] == 3
        assert await client.ask(PingreqPacket()) == PingrespPacket()
    (line,) = [line for line in caplog.messages if "of QoS 0" in line]
    assert line.endswith("there is no link to it, or it is slow (1 so far); give each node the others as --peers")
    check_nothing_stored(store, one, other)


async def test_MQ_192_a_will_of_qos_0_is_sent_to_who_is_connected(store):
    async with linked_nodes(store) as (one, other), MqttSocket(other.address) as client:
        await client.connect("c")
        await subscribe(client, qos=1)
        async with MqttSocket(one.address) as gone:
            await gone.connect("gone", will=WillMessage("t/will", b"gone"))
        packet = await client.read()
        assert (packet.payload, packet.qos) == (b"gone", 0)
        check_nothing_stored(store, one, other)


async def test_MQ_200_qos_0_comes_to_one_connected_member_of_a_group_at_either_node_and_nothing_is_stored(
    store, monkeypatch
):
    """Also where very many members are away."""
    monkeypatch.setattr(group_matcher, "MEMBERS_MAX", 2)
    async with (
        GroupHost(store, configuration=TIMES) as host,
        linked_nodes(store, groups=host.groups) as (one, other),
        MqttSocket(one.address) as writer,
        MqttSocket(one.address) as near,
        MqttSocket(other.address) as far,
    ):
        await writer.connect("w")
        for number in range(4):
            async with MqttSocket(one.address) as gone:
                await gone.connect(f"gone-{number}", properties=KEPT)
                await subscribe(gone, "$share/g/t/#", 1)
        for name, client in (("near", near), ("nigh", far)):
            await client.connect(name, properties=KEPT)
            await subscribe(client, "$share/g/t/#", 1, identifier=(7,))
        for number in range(20):
            writer.send(PublishPacket("t/1", str(number).encode()))
        for begin, client in enumerate((near, far)):
            packets = [await client.read() for _ in range(10)]
            assert [int(each.payload) for each in packets] == list(range(begin, 20, 2))
            assert {(each.qos, each.properties.subscription_ids) for each in packets} == {(0, (7,))}
        check_nothing_stored(store, one, other)
    assert await count_streams(store) == {}


async def test_MQ_201_a_connection_that_a_fresh_session_at_another_node_replaces_is_told_at_once(store):
    """The older node does not look at its lease before the test is over."""
    times = LifeTimes(alive_ms=10**6, dead_ms=2 * 10**6)
    async with (
        linked_nodes(store, life_times=times, look_ms=10**6) as (one, other),
        MqttSocket(one.address) as older,
        MqttSocket(other.address) as newer,
        MqttSocket(one.address) as newest,
    ):
        assert not (await older.connect()).session_present
        assert not (await newer.connect(properties=KEPT)).session_present
        assert await older.read() == DisconnectPacket(0x8E)
        assert await newer.ask(PingreqPacket()) == PingrespPacket()
        assert not (await newest.connect(properties=KEPT)).session_present
        assert await newer.read() == DisconnectPacket(0x8E)
        assert await newest.ask(PingreqPacket()) == PingrespPacket()


@pytest.mark.parametrize("count", [2, HELD_MAX + 1])
async def test_MQ_193_a_newer_value_waits_behind_the_retained_one(store, count):
    async with mqtt_node(store) as node, MqttSocket(node.address) as writer, MqttSocket(node.address) as client:
        await writer.connect("w")
        code = 0x10  # nobody is there for it
        kept = PublishPacket(
            "t/1", b"old", 1, packet_id=1, retain=True, properties=PacketProperties(message_expiry=100)
        )
        assert await writer.ask(kept) == PubackPacket(1, code)
        await client.connect("c")
        queue, reception = node._node.request_queue, node._node.reception
        give = queue.give

        def give_late(request, take):
            """Newer values come over the link before the answer of the database."""

            def take_late(found):
                (owner,) = [one.owner for one in reception.visitors.values() if one.rights.client == "c"]
                for number in range(count):
                    reception.direct.take(DirectMessage(((owner, "t/#"),), "t/1", str(number).encode()))
                take(found)

            give(request, take_late if isinstance(request, SubscribeFront) else take)

        queue.give = give_late
        await subscribe(client)
        kept = await client.read()
        assert (kept.payload, kept.retain, kept.qos) == (b"old", True, 0)
        assert 0 < kept.properties.message_expiry <= 100
        held = min(count, HELD_MAX)
        assert [int((await client.read()).payload) for _ in range(held)] == list(range(held))
        assert reception.direct.dropped == count - held
        assert await client.ask(PingreqPacket()) == PingrespPacket()


async def test_MQ_192_nobody_but_a_node_sends_direct_messages(store):
    async with mqtt_node(store) as one:
        message = DirectMessage(((f"{one._node.life}/1", "t/#"),), "t/1", b"x")
        for said in (message, OwnerReplaced("c", "stranger~1/1", 1)):
            with pytest.raises(RemoteProtocolError, match="only nodes say that"):
                one._node._hear("stranger~1", one._node.life, said, 0)


def test_receivers_are_split_into_messages_that_a_link_takes():
    receivers = [(f"node~1/owner-{number}", "f" * 1_000) for number in range(200)]
    pieces = list(split_receivers(receivers))
    assert [one for piece in pieces for one in piece] == receivers
    assert len(pieces) == 4
    assert all(sum(len(owner) + len(name) for owner, name in piece) <= RECEIVERS_BYTES_MAX for piece in pieces)
