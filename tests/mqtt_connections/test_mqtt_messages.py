"""What a node does for MQTT clients, seen from within, or beside clients in Python."""

from __future__ import annotations

import asyncio

import pytest
from exchanges import open_scene

from statemachines.drivers.mqtt_connections.message_properties import SubscriptionOptions, read_message, write_head
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.operator_requests import KickClient
from statemachines.drivers.persistent_sessions.route_rows import PublisherPacket, PutMessage
from statemachines.drivers.persistent_sessions.upkeep import WillSender
from statemachines.mqtt_codec import PacketProperties, PublishPacket
from statemachines.persistent_sessions.message import Delivered

PROPERTIES = PacketProperties(
    payload_format=1,
    content_type="text/plain",
    response_topic="answers",
    correlation_data=b"\x00\x01",
    user_properties=(("b", "1"), ("a", "2"), ("b", "3")),
)


async def test_MQ_123_overlapping_filters_bring_one_copy_of_the_highest_quality_with_all_identifiers(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play(
            "c SUBSCRIBE t/+ subscription_ids=7; SUBSCRIBE t/#:2; SUBSCRIBE #:0 subscription_ids=268435455",
            "c SUBSCRIBE u subscription_ids=9; SUBSCRIBE t/1:0 subscription_ids=5 no_local",
        )
        async with PersistentSession("python", node=scene.nodes["a"]._node) as python:
            for topic_filter in ("t/1", "t/#"):
                await python.subscribe(topic_filter, 1)
            await scene.play("w PUBLISH t/1 x")
            assert sorted([(await anext(python)).filter for _ in range(2)]) == ["t/#", "t/1"]
        await scene.play(
            "c < t/1 x subscription_ids=5,7,268435455; UNSUBSCRIBE t/+",
            "w PUBLISH t/1 y => c subscription_ids=5,268435455",
            "c PUBLISH t/1 by-another-filter qos=0 => c subscription_ids=5,268435455",
            "w PUBLISH u end => c subscription_ids=9,268435455",
        )


async def test_user_properties_are_headers_of_python_clients_and_back(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("c PINGREQ")
        node = scene.nodes["a"]._node
        async with PersistentSession("python", node=node) as session, SessionPublisher(node=node) as publisher:
            await session.subscribe("t/#")
            await scene.play("c PUBLISH t/1 x payload_format=1 user_properties=b:1,a:2,b:3; SUBSCRIBE t/#")
            assert (await anext(session)).headers[:3] == (("b", b"1"), ("a", b"2"), ("b", b"3"))
            await publisher.publish("t/2", b"y", headers=[("k", b"v"), ("binary", b"\xff"), ("mqtt.properties", b"?")])
            await scene.play("c < t/2 y user_properties=k:v")


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


async def test_MQ_172_an_acknowledgement_that_a_stopping_node_has_not_read_is_taken(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("c SUBSCRIBE t", "w PUBLISH t x", "c < t x", "stop a", "{c w} ends 0x8b")
    async with open_scene(tmp_path) as scene:
        await scene.play("c CONNECT kept -> present")


@pytest.mark.parametrize(("asked", "most"), [("", 8_000), ("receive_maximum=65535", 8_000), ("receive_maximum=20", 20)])
async def test_MQ_212_no_more_is_in_flight_than_a_node_has(tmp_path, asked, most):
    async with open_scene(tmp_path) as scene:
        await scene.play(f"c CONNECT kept {asked}")
        machines = scene.nodes["a"]._node.machines
        (owner,) = machines.owners
        assert machines.resume_of(owner).delivery.receive_maximum == most


def find_publisher(node, packet):
    """The packet, as a node begins it for its only publisher `c`."""
    parties = node._node.machines.nodes.values()
    (life,) = [one.record for one in parties if one.fsm.name == "session_life" and one.record.client == "c"]
    return PublisherPacket(life.session, life.token, packet)


async def test_PS_475_PS_477_what_a_node_began_is_finished_before_the_publisher_is_accepted_or_by_any_node(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("node lease_ms=1_000", "r SUBSCRIBE t", "c PINGREQ")
        for number, packet in ((1, 5), (2, 6)):  # as of a node that is killed in between
            kept = find_publisher(scene.nodes["a"], packet)
            await scene.nodes["a"]._node.request_queue.ask(
                PutMessage(f"gone/{number}", "t", b"%d" % number, 2, packet=kept)
            )
            await scene.play(*["r < t 1"][number - 1 :])
        await scene.play("c' again; PUBLISH t 2 qos=2 dup packet_id=6; PUBLISH t 3 qos=2 packet_id=7", "r < t 2 3")
        await scene.play("c ends 0x8e")


@pytest.mark.parametrize("is_will", [True, False])
async def test_PS_521_what_another_node_began_comes_behind_what_its_publisher_published_there(
    tmp_path, monkeypatch, is_will
):
    """The nodes are not linked, so what the other stores is found in the database alone."""
    async with open_scene(tmp_path) as scene:
        settle = WillSender._settle

        async def settle_here(self, *due):
            here = scene.nodes["a"]._node.reception
            await (settle(self, *due) if not is_will or self._server is here else asyncio.Event().wait())

        monkeypatch.setattr(WillSender, "_settle", settle_here)
        await scene.play("r SUBSCRIBE t", "r PUBLISH t live => r", "c@b CONNECT kept will=t:3:1; PUBLISH t {1 2}")
        here, there = (scene.nodes[name] for name in "ab")
        if is_will:
            await scene.play("c lost")
            await here._node.request_queue.ask(KickClient("c"))
            here._node.reception.session_ended.set()
        else:
            message = PutMessage("gone/1", "t", b"3", 2, packet=find_publisher(there, 5))
            await there._node.request_queue.ask(message)
            await scene.play("c leaves", "c@a CONNECT clean_start=0 session_expiry=100")
        await scene.play("r < t 1 2 3")
