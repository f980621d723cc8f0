"""`$share` of MQTT clients: groups whose streams are in the database of the sessions.

What a node does for MQTT clients, seen from within, or beside clients in Python.

Messages of QoS 0 go to connected clients past the database, also at another node: seen from within.
"""

import asyncio

import pytest
from exchanges import mqtt_node, open_scene
from waiting import pause_async

from statemachines.drivers.mqtt_connections.message_properties import SubscriptionOptions, read_message, write_head
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher, host_requests
from statemachines.drivers.persistent_sessions.group_host import Groups
from statemachines.drivers.persistent_sessions.group_rows import ReadReturned
from statemachines.drivers.persistent_sessions.host_requests import ReadPayloads
from statemachines.drivers.persistent_sessions.machine_requests import Page, StoreRows
from statemachines.drivers.persistent_sessions.node_messages import RECEIVERS_BYTES_MAX, DirectMessage, split_receivers
from statemachines.drivers.persistent_sessions.operator_requests import KickClient
from statemachines.drivers.persistent_sessions.payloads import (
    Payload,
    SharedOrigin,
    SharedTerms,
    add_terms,
    split_terms,
)
from statemachines.drivers.persistent_sessions.route_rows import PublisherPacket, PutMessage, SubscribeFront
from statemachines.drivers.persistent_sessions.session_server import HELD_MAX
from statemachines.drivers.persistent_sessions.upkeep import WillSender
from statemachines.kernel import RemoteProtocolError
from statemachines.mqtt_codec import PacketProperties, PubackPacket, PublishPacket
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.message import Delivered, Queued
from statemachines.persistent_sessions.request import PutRows, RowStored
from statemachines.persistent_sessions.takeover_record import OwnerReplaced

JOBS = "$share/g/jobs/#"
PAYLOAD = Payload("jobs/1", b"x")


async def test_MQ_100_a_publish_is_appended_and_routed_in_one_transaction(tmp_path, monkeypatch):
    async with open_scene(tmp_path) as scene:
        await scene.play("groups", "m SUBSCRIBE $share/g/jobs/#", "s SUBSCRIBE jobs/#")
        sessions = scene.nodes["a"]._node._store
        with monkeypatch.context() as broken:
            broken.setattr(host_requests, "put_messages", lambda sql, messages: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await sessions.do(PutMessage("m1", "jobs/1", b"x", 1))
        await scene.play("streams")
        routes = await sessions.do(PutMessage("m2", "jobs/1", b"x", 1))
        assert sorted((one.session != "", one.filter) for one in routes) == [(False, JOBS), (True, "jobs/#")]
        await scene.play("streams jobs/1=1", "m < jobs/1 x")


async def test_PS_571_a_stream_has_what_came_before_a_message_that_no_group_matches(tmp_path):
    """All of one client, at once."""
    async with open_scene(tmp_path) as scene:
        await scene.play("groups", "m CONNECT kept", "m SUBSCRIBE $share/g/jobs/#; leaves", "s SUBSCRIBE #")
        topics = [f"{'jobs' if number % 3 else 'other'}/{number % 2}" for number in range(60)]
        await scene.play(
            *(f"w + PUBLISH {topic} {number}" for number, topic in enumerate(topics)), "w PINGREQ -> later"
        )
        await scene.play(*(f"s < {topic} {number}" for number, topic in enumerate(topics)), "w < PUBACK {1..60}")
        await scene.play("w < PINGRESP", "streams jobs/0=20 jobs/1=20")


async def test_PS_470_MQ_102_a_message_that_some_session_has_is_stored_for_no_other(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("groups", "{m n} SUBSCRIBE $share/g/jobs/#")
        node = scene.nodes["a"]._node
        one, two = [life.record.session for life in node.machines.nodes.values() if hasattr(life.record, "expiry_ms")]

        async def store_row(session, message, offset):
            rows = (Queued(1, message, JOBS, 1),)
            origins = {message: SharedOrigin("g/jobs/#", "1.0/jobs/1", offset)}
            put = StoreRows(PutRows(session, "x", 0, rows), {message: PAYLOAD}, origins=origins)
            found = await node._store.do(put)
            return found.gone if isinstance(found, Page) else [type(one) for one in found]

        for _ in range(2):  # the same row once more
            assert await store_row(one, "m1", 0) == [RowStored]
        assert await store_row(two, "m2", 0) == {"m2"}
        assert await node._store.do(ReadPayloads(("m1", "m2"), 1_000)) == {"m1": PAYLOAD, "m2": None}
        assert await store_row("gone", "m3", 1) == [RowStored]
        returned = await node._store.do(ReadReturned(("g/jobs/#",)))
        assert [(message, split_terms(each)[0]) for message, each in returned["g/jobs/#"]] == [("m3", PAYLOAD)]


@pytest.mark.parametrize(
    "topic_filter", ["$share", "$share/", "$share/g", "$share/g/", "$share//jobs", "$share/+/jobs", "$share/g#/jobs"]
)
@pytest.mark.parametrize("version", [4, 5])
async def test_MQ_106_a_filter_without_group_or_filter_or_with_a_wildcard_in_the_group(tmp_path, topic_filter, version):
    properties, size = "00" * (version - 4), len(topic_filter)
    async with open_scene(tmp_path, version) as scene:
        head = f"82 {size + version + 1:02x} 0001 {properties} {size:04x}"
        await scene.play("m PINGREQ", f"m raw {head} '{topic_filter} 01 -> ends 0x8f")


async def test_MQ_107_a_node_whose_streams_are_elsewhere_refuses(tmp_path):
    async with open_scene(tmp_path) as scene:
        scene.options["groups"] = Groups("127.0.0.1:1", str(tmp_path / "other.db"))
        await scene.play("m CONNECT -> 0 shared_available=0; SUBSCRIBE $share/g/t -> 0x9e")


async def test_PS_472_MQ_109_a_group_that_only_subscribe_declared_ends_after_its_last_session(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play(
            "groups expiry_s=1", "m CONNECT clean_start=0", f"m SUBSCRIBE {JOBS}", "w PUBLISH jobs/1 0 => m"
        )
        await scene.play("m lost")
        while await scene.clients["w"].ask(PublishPacket("jobs/1", b"1", 1, packet_id=9)) == PubackPacket(9):
            await pause_async(0.1, "the group expires")
        await scene.play(f"n SUBSCRIBE {JOBS}", "wait 0.3", "n silent", "w PUBLISH jobs/1 2 => n")


async def test_MQ_110_a_shared_message_has_the_identifier_of_its_own_subscription(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("groups", f"m SUBSCRIBE {JOBS} subscription_ids=7; SUBSCRIBE jobs/#:0 subscription_ids=8")
        await scene.play("w PUBLISH jobs/1 one")
        packets = [await scene.clients["m"].read() for _ in range(2)]
        assert sorted((one.qos, one.properties.subscription_ids) for one in packets) == [(0, (8,)), (1, (7,))]


def test_MQ_110_terms_are_those_of_the_publish_and_of_nobody_else():
    payload = Payload("t", b"x", None)
    assert split_terms(add_terms(payload, SharedTerms(1, 7))) == (payload, SharedTerms(1, 7))
    for value in (b"", b"3 0", b"1", b"1 x", b"1 " + b"9" * 20, b"\xff 0"):
        headed = add_terms(payload, SharedTerms())
        forged = headed._replace(head=headed.head.replace(b"2 0", value) if len(value) == 3 else headed.head)
        assert split_terms(forged)[1] == SharedTerms()


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


async def test_MQ_201_a_connection_that_a_fresh_session_at_another_node_replaces_is_told_at_once(tmp_path):
    """The older node does not look at its lease before the test is over."""
    async with open_scene(tmp_path) as scene:
        scene.options |= {"life_times": LifeTimes(alive_ms=10**6, dead_ms=2 * 10**6), "look_ms": 10**6}
        await scene.play("linked", "c CONNECT -> 0", "c'1@b CONNECT session_expiry=100 -> 0", "c ends 0x8e")
        await scene.play("c'1 PINGREQ", "c'2@a CONNECT session_expiry=100 -> 0", "c'1 ends 0x8e")


@pytest.mark.parametrize("count", [2, HELD_MAX + 1])
async def test_MQ_193_a_newer_value_waits_behind_the_retained_one(tmp_path, count):
    async with open_scene(tmp_path) as scene:
        await scene.play("w PUBLISH t/1 old retain message_expiry=100 -> 0x10", "c PINGREQ")
        node = scene.nodes["a"]._node
        give, reception = node.request_queue.give, node.reception

        def give_late(request, take):
            """Newer values come over the link before the answer of the database."""

            def take_late(found):
                (owner,) = [one.owner for one in reception.visitors.values() if one.rights.client == "c"]
                for number in range(count):
                    reception.direct.take(DirectMessage(((owner, "t/#"),), "t/1", str(number).encode()))
                take(found)

            give(request, take_late if isinstance(request, SubscribeFront) else take)

        node.request_queue.give = give_late
        held = min(count, HELD_MAX)
        await scene.play("c SUBSCRIBE t/#:0; < t/1 old qos=0 retain message_expiry=100")
        await scene.play(f"c < t/1 {{0..{held - 1}}} qos=0")
        assert reception.direct.dropped == count - held


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
