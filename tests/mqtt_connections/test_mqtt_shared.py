"""`$share` of MQTT clients: groups whose streams are in the database of the sessions."""

from __future__ import annotations

import asyncio

import pytest
from exchanges import open_scene

from statemachines.drivers.persistent_sessions import host_requests
from statemachines.drivers.persistent_sessions.group_host import Groups
from statemachines.drivers.persistent_sessions.group_rows import ReadReturned
from statemachines.drivers.persistent_sessions.host_requests import ReadPayloads
from statemachines.drivers.persistent_sessions.machine_requests import Page, StoreRows
from statemachines.drivers.persistent_sessions.payloads import (
    Payload,
    SharedOrigin,
    SharedTerms,
    add_terms,
    split_terms,
)
from statemachines.drivers.persistent_sessions.route_rows import PutMessage
from statemachines.mqtt_codec import PubackPacket, PublishPacket
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import PutRows, RowStored

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


async def test_PS_571_only_what_no_group_matches_is_looked_up_ahead(tmp_path):
    async with open_scene(tmp_path) as scene:
        await scene.play("groups", "m SUBSCRIBE $share/g/jobs/#", "s SUBSCRIBE #")
        node = scene.nodes["a"]._node

        async def look_up(*topics):
            messages = [PutMessage(f"m-{topic}", topic, b"x", 1) for topic in topics]
            routes = await node._store.store_ahead(node.request_queue._life, 0, messages)
            ahead = [node._store.stores_ahead(one) for one in messages]
            return None if routes is None else [[one.filter for one in its] for its in routes], ahead

        assert await look_up("other/1", "other/2") == ([["#"], ["#"]], [True, True])
        assert await look_up("other/1", "jobs/1") == (None, [True, False])
        await scene.play("m SUBSCRIBE $share/g/other/#")
        assert await look_up("other/1") == await look_up("jobs/2") == (None, [False])
        assert node._store.stores_ahead(PutMessage("m", "jobs/1", b"x", 1)), "it is looked up again"
        await scene.play("streams")


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
            await asyncio.sleep(0.1)
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
