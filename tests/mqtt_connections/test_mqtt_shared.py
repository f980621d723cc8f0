"""`$share` of MQTT clients: groups whose streams are in the database of the sessions."""

from __future__ import annotations

import asyncio

import pytest
from mqtt_socket import MqttSocket, mqtt_node
from msgspec.structs import replace
from sharing_node import KEPT, TIMES, Member, count_streams, sharing_node

from statemachines.drivers.message_head import decode_head
from statemachines.drivers.persistent_sessions import host_requests
from statemachines.drivers.persistent_sessions.groups import Groups
from statemachines.drivers.persistent_sessions.host_request import (
    Page,
    PutMessage,
    ReadPayloads,
    ReadReturned,
    StoreRows,
)
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.shared_message_codec import (
    SharedOrigin,
    SharedTerms,
    add_terms,
    split_terms,
)
from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.mqtt_codec import (
    DisconnectPacket,
    PacketProperties,
    PingreqPacket,
    PingrespPacket,
    PublishPacket,
    PubrecPacket,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
)
from statemachines.persistent_sessions import shared_group
from statemachines.persistent_sessions.message import Queued
from statemachines.persistent_sessions.request import PutRows, RowStored
from statemachines.shared_subscriptions.dead_letter import read_dead_letter
from statemachines.shared_subscriptions.stream_store import Fetch, Slice, stream_id

JOBS = "$share/g/jobs/#"
PAYLOAD = Payload("jobs/1", b"x")


async def is_silent(member):
    """Whether nothing is on its way: what is sent before a PINGRESP comes before it."""
    await asyncio.sleep(0.3)
    return await member.ask(PingreqPacket()) == PingrespPacket()


async def test_MQ_222_no_local_with_a_queue_is_refused_alone(store):
    async with sharing_node(store) as node, Member(node.address, "m") as member:
        filters = (TopicSubscription("$queue/q/a", 1, no_local=True), TopicSubscription("$queue/q/a", 1))
        assert await member.ask(SubscribePacket(1, filters)) == SubackPacket(1, (0x83, 1))


async def test_MQ_100_a_publish_that_a_group_matches_is_appended_and_another_is_not(store):
    async with (
        sharing_node(store) as node,
        Member(node.address, "m") as member,
        Member(node.address, "w") as writer,
    ):
        assert await writer.publish("jobs/1", b"early") == 0x10
        assert await member.join() == 1
        assert await writer.publish("jobs/1", b"one") == 0
        assert await writer.publish("other", b"two") == 0x10
        assert (await member.take()).payload == b"one"
    assert await count_streams(store) == {"jobs/1": 1}


async def test_MQ_100_a_publish_is_appended_and_routed_in_one_transaction(store, monkeypatch):
    async with (
        sharing_node(store) as node,
        Member(node.address, "m") as member,
        Member(node.address, "s") as single,
    ):
        await member.join()
        await single.join("jobs/#")
        sessions = node._node._store
        with monkeypatch.context() as broken:
            broken.setattr(host_requests, "put_messages", lambda sql, messages: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                await sessions.do(PutMessage("m1", "jobs/1", b"x", 1))
        assert await count_streams(store) == {}
        routes = await sessions.do(PutMessage("m2", "jobs/1", b"x", 1))
        assert sorted((one.session != "", one.filter) for one in routes) == [(False, JOBS), (True, "jobs/#")]
        assert await count_streams(store) == {"jobs/1": 1}


async def test_PS_571_only_what_no_group_matches_is_looked_up_ahead(store):
    async with (
        sharing_node(store) as node,
        Member(node.address, "m") as member,
        Member(node.address, "s") as single,
    ):
        await member.join()
        await single.join("#")
        sessions, life = node._node._store, node._node._desk._life

        async def look_up(*topics):
            messages = [PutMessage(f"m-{topic}", topic, b"x", 1) for topic in topics]
            routes = await sessions.store_ahead(life, 0, messages)
            ahead = [sessions.stores_ahead(one) for one in messages]
            return None if routes is None else [[one.filter for one in its] for its in routes], ahead

        assert await look_up("other/1", "other/2") == ([["#"], ["#"]], [True, True])
        assert await look_up("other/1", "jobs/1") == (None, [True, False])
        await member.join("$share/g/other/#")
        assert await look_up("other/1") == await look_up("jobs/2") == (None, [False])
        assert sessions.stores_ahead(PutMessage("m", "jobs/1", b"x", 1)), "it is looked up again"
    assert await count_streams(store) == {}


async def test_PS_571_a_stream_has_what_came_before_a_message_that_no_group_matches(store):
    """All of one client, at once."""
    async with (
        sharing_node(store) as node,
        Member(node.address, "m") as member,
        Member(node.address, "s") as single,
        Member(node.address, "w") as writer,
    ):
        await member.join()
        await single.join("#")
        topics = [f"{'jobs' if number % 3 else 'other'}/{number % 2}" for number in range(60)]
        for number, topic in enumerate(topics):
            writer.send(PublishPacket(topic, b"%d" % number, 1, packet_id=number + 1))
        answers = sorted([(await writer.read()).packet_id for _ in topics])
        came = [int((await single.take()).payload) for _ in topics]
    assert (answers, came) == ([*range(1, 61)], [*range(60)])
    assert await count_streams(store) == {"jobs/0": 20, "jobs/1": 20}


async def test_MQ_100_a_message_that_no_stream_can_have_is_not_shared_and_the_log_names_it(store, caplog):
    async with (
        sharing_node(store) as node,
        Member(node.address, "m") as member,
        Member(node.address, "s") as single,
    ):
        await member.join("$share/g/#")
        await single.join("#")
        for topic in ("j" * 1_025, "jobs\x01", "jobs"):
            assert await single.publish(topic, b"x") == 0
            assert (await single.take()).topic == topic
        assert (await member.take()).topic == "jobs"
        await open_and_end(store, "jobs")
        assert await single.publish("jobs", b"x") == 0
        assert (await single.take()).topic == "jobs"
        assert await is_silent(member)
    assert await count_streams(store) == {"jobs": 1}
    assert caplog.text.count("are not shared") == 1  # a minute


async def open_and_end(store, topic):
    """Nothing may be appended to the topic's stream any more."""
    groups, streams = open_stores(store)
    await streams.end(stream_id(topic, 4, 0))
    await groups.close()
    await streams.close()


@pytest.mark.parametrize("version", [4, 5])
async def test_MQ_101_the_subscription_is_the_sessions(store, version):
    """It survives the connection, and what waits for the session comes to its next one."""
    async with sharing_node(store) as node, Member(node.address, "w") as writer:
        async with Member(node.address, "m", version) as member:
            assert await member.join() == 1
            await writer.publish("jobs/1", b"one")
            assert (await member.take(None)).payload == b"one"
        await writer.publish("jobs/1", b"two")
        async with Member(node.address, "m", version) as member:
            assert member.connack.session_present
            again = await member.take()
            assert (again.payload, again.dup) == (b"one", True)
            assert (await member.take()).payload == b"two"


async def test_PS_470_MQ_102_a_message_that_some_session_has_is_stored_for_no_other(store):
    async with sharing_node(store) as node, Member(node.address, "m") as first, Member(node.address, "n") as second:
        await first.join()
        await second.join()
        sessions = node._node._store
        one, two = [
            life.record.session for life in node._node.machines.nodes.values() if hasattr(life.record, "expiry_ms")
        ]

        def store_row(session, message, offset):
            rows = (Queued(1, message, JOBS, 1),)
            origins = {message: SharedOrigin("g/jobs/#", "1.0/jobs/1", offset)}
            return sessions.do(StoreRows(PutRows(session, "x", 0, rows), {message: PAYLOAD}, origins=origins))

        for _ in range(2):  # the same row once more
            (stored,) = await store_row(one, "m1", 0)
            assert isinstance(stored, RowStored)
        page = await store_row(two, "m2", 0)
        assert isinstance(page, Page)
        assert page.gone == {"m2"}
        assert await sessions.do(ReadPayloads(("m1", "m2"), 1_000)) == {"m1": PAYLOAD, "m2": None}
        (stored,) = await store_row("gone", "m3", 1)
        assert isinstance(stored, RowStored)
        returned = await sessions.do(ReadReturned(("g/jobs/#",)))
        assert [(message, split_terms(each)[0]) for message, each in returned["g/jobs/#"]] == [("m3", PAYLOAD)]


async def test_PS_471_MQ_103_what_a_session_that_ends_has_not_acknowledged_goes_back_to_the_group(store, caplog):
    async with sharing_node(store) as node, Member(node.address, "w") as writer:
        async with Member(node.address, "m", properties=PacketProperties(session_expiry=0)) as member:
            await member.join()
            await writer.publish("jobs/1", b"one")
            await writer.publish("jobs/1", b"two")
            assert [(await member.take(None)).payload for _ in range(2)] == [b"one", b"two"]
        async with Member(node.address, "n") as other:
            await other.join()
            assert [(await other.take()).payload for _ in range(2)] == [b"one", b"two"]
            assert await is_silent(other)
        async with Member(node.address, "n") as other:
            assert await is_silent(other)
    assert "2 messages of groups go back" in caplog.text


async def test_PS_471_MQ_103_what_is_in_flight_with_qos_2_goes_to_nobody_else(store, caplog):
    async with sharing_node(store) as node, Member(node.address, "w") as writer:
        async with Member(node.address, "m", properties=PacketProperties(session_expiry=0)) as member:
            await member.join(qos=2)
            assert isinstance(await writer.ask(PublishPacket("jobs/1", b"one", 2, packet_id=1)), PubrecPacket)
            packet = await member.read()
            assert (packet.payload, packet.qos) == (b"one", 2)
        async with Member(node.address, "n") as other:
            await other.join(qos=2)
            assert await is_silent(other)
    assert "1 of QoS 2" in caplog.text


async def test_MQ_104_a_message_that_a_client_refuses_is_discarded(store):
    async with sharing_node(store) as node, Member(node.address, "w") as writer:
        async with Member(node.address, "m") as member:
            await member.join()
            await writer.publish("jobs/1", b"one")
            assert (await member.take(0x80)).payload == b"one"
            await writer.publish("jobs/1", b"two")
            assert (await member.take()).payload == b"two"
        async with Member(node.address, "m") as member:
            assert await is_silent(member)


@pytest.mark.parametrize("topic_filter", ["$share/g/jobs/#", "$share/g/#"])
async def test_MQ_112_a_refused_message_has_a_dead_letter_where_the_groups_have_a_topic_for_it(store, topic_filter):
    """Unless the group would get it back."""
    times = replace(TIMES, max_deliver=5, dead_letter_topic="dead")
    async with sharing_node(store, times=times) as node, Member(node.address, "w") as writer:
        async with Member(node.address, "m") as member:
            await member.join(topic_filter)
            await writer.publish("jobs/1", b"one")
            assert (await member.take(0x83)).payload == b"one"
            await writer.publish("jobs/1", b"two")
            assert (await member.take()).payload == b"two"
        async with Member(node.address, "m") as member:
            assert await is_silent(member)
    is_own = topic_filter == "$share/g/#"
    assert await count_streams(store) == {"jobs/1": 2} | ({} if is_own else {"dead": 1})
    if not is_own:
        groups, streams = open_stores(store)
        _, ((found,),) = await streams.fetch(Fetch(1, (Slice(stream_id("dead", 4, 0), 0, 0, 1),)))
        await groups.close()
        await streams.close()
        letter = read_dead_letter(decode_head(found[1]).headers)
        assert (found[0], letter.group, letter.filter, letter.reason) == (
            b"one",
            "g",
            "jobs/#",
            "refused with 0x83",
        )


async def test_MQ_105_options_that_a_shared_subscription_cannot_have(store):
    async with (
        sharing_node(store) as node,
        Member(node.address, "w") as writer,
        Member(node.address, "m") as member,
    ):
        await writer.publish("jobs/1", b"kept", retain=True)
        assert await member.join(retain_handling=0) == 1
        assert await is_silent(member)
        await writer.publish("jobs/1", b"later")
        assert (await member.take()).payload == b"later"
        member.writer.write(raw_subscribe(JOBS, 5, options=0x05))  # No Local
        assert await member.read() == DisconnectPacket(0x82)


@pytest.mark.parametrize(
    "topic_filter", ["$share", "$share/", "$share/g", "$share/g/", "$share//jobs", "$share/+/jobs", "$share/g#/jobs"]
)
@pytest.mark.parametrize("version", [4, 5])
async def test_MQ_106_a_filter_without_group_or_filter_or_with_a_wildcard_in_the_group(store, topic_filter, version):
    async with mqtt_node(store) as node, Member(node.address, "m", version) as member:
        member.writer.write(raw_subscribe(topic_filter, version))
        assert await member.read() == (DisconnectPacket(0x8F) if version == 5 else None)


def raw_subscribe(topic_filter, version, options=1):
    """A SUBSCRIBE that no codec would write."""
    encoded = topic_filter.encode()
    body = b"\0\1" + (b"\0" if version == 5 else b"") + len(encoded).to_bytes(2) + encoded + bytes((options,))
    return bytes((0x82, len(body))) + body


async def test_MQ_106_a_group_whose_name_no_store_keeps(store):
    async with sharing_node(store) as node, Member(node.address, "m") as member:
        assert await member.join(f"$share/{'g' * 300}/jobs") == 0x8F
        assert await member.join("$share/g\x01/jobs") == 0x8F
        assert await member.join(f"$share/g/{'j' * 2_000}") == 0x8F


@pytest.mark.parametrize("kind", ["no groups", "another database"])
async def test_MQ_107_a_node_whose_streams_are_elsewhere_refuses(store, tmp_path, kind, caplog):
    given = {} if kind == "no groups" else {"groups": Groups("127.0.0.1:1", str(tmp_path / "other.db"))}
    async with mqtt_node(store, node_options=given) as node, Member(node.address, "m") as member:
        assert member.connack.properties.shared_available == 0
        assert await member.join() == 0x9E
    assert "$share/GROUP/FILTER is refused (0x9E)" in caplog.text


async def test_PS_472_MQ_108_groups_of_a_client_and_of_a_store_are_bounded(store, monkeypatch):
    monkeypatch.setattr(shared_group, "SESSION_GROUPS_MAX", 2)
    monkeypatch.setattr(shared_group, "GROUPS_MAX", 3)
    async with sharing_node(store) as node, Member(node.address, "m") as one, Member(node.address, "n") as two:
        assert [await one.join(f"$share/g{number}/t") for number in (1, 2, 3)] == [1, 1, 0x97]
        assert [await two.join(f"$share/g{number}/t") for number in (3, 4)] == [1, 0x97]
        assert await two.join("$share/g1/t") == 1
        assert await one.join("$share/g1/t") == 1  # it has it already


async def test_PS_472_MQ_109_a_group_that_only_subscribe_declared_ends_after_its_last_session(store):
    async with sharing_node(store, expiry_s=1) as node, Member(node.address, "w") as writer:
        async with Member(node.address, "m", properties=PacketProperties(session_expiry=0)) as member:
            await member.join()
            assert await writer.publish("jobs/1", b"one") == 0
            assert (await member.take()).payload == b"one"
        while await writer.publish("jobs/1", b"two") == 0:
            await asyncio.sleep(0.1)
        async with Member(node.address, "n") as other:
            assert await other.join() == 1
            assert await is_silent(other)
            assert await writer.publish("jobs/1", b"three") == 0
            assert (await other.take()).payload == b"three"


@pytest.mark.parametrize("qos", [1, 2])
async def test_MQ_110_a_shared_message_has_the_lower_qos_its_properties_and_the_rest_of_its_expiry(store, qos):
    async with (
        sharing_node(store) as node,
        Member(node.address, "w") as writer,
        Member(node.address, "m") as member,
    ):
        await member.join(qos=qos)
        properties = PacketProperties(message_expiry=600, content_type="c", user_properties=(("a", "b"),))
        await writer.publish("jobs/1", b"one", properties=properties)
        packet = await member.take()
        assert packet.qos == 1
        assert packet.properties.content_type == "c"
        assert packet.properties.user_properties == (("a", "b"),)
        assert 0 < packet.properties.message_expiry <= 600


async def test_MQ_110_a_shared_message_has_the_identifier_of_its_own_subscription(store):
    async with (
        sharing_node(store) as node,
        Member(node.address, "w") as writer,
        Member(node.address, "m") as member,
    ):
        await member.join(ids=(7,))
        await member.join("jobs/#", ids=(8,))
        await writer.publish("jobs/1", b"one")
        packets = [await member.take() for _ in range(2)]
        assert sorted(one.properties.subscription_ids for one in packets) == [(7,), (8,)]


async def test_MQ_110_a_shared_message_that_is_over_is_not_sent(store):
    async with sharing_node(store) as node, Member(node.address, "w") as writer:
        async with Member(node.address, "m") as member:
            await member.join()
        await writer.publish("jobs/1", b"short", properties=PacketProperties(message_expiry=1))
        await writer.publish("jobs/1", b"long")
        await asyncio.sleep(1.2)
        async with Member(node.address, "m") as member:
            assert (await member.take()).payload == b"long"


async def test_MQ_111_a_message_of_qos_0_is_not_stored_for_a_group_and_goes_to_one_that_is_connected(store):
    async with sharing_node(store) as node, Member(node.address, "w") as writer, MqttSocket(node.address) as gone:
        await gone.connect("gone", properties=KEPT)
        async with Member(node.address, "m") as member, Member(node.address, "n") as other:
            await member.join()
            await other.join()
            for number in range(20):
                writer.send(PublishPacket("jobs/1", b"%d" % number))
            found = await asyncio.gather(drain(member), drain(other))
            assert [[int(one) for one in its] for its in found] == [list(range(0, 20, 2)), list(range(1, 20, 2))]
        assert await count_streams(store) == {}


async def drain(member):
    """The payloads of what comes before it is silent."""
    await asyncio.sleep(0.5)
    member.send(PingreqPacket())
    found = []
    while isinstance(packet := await member.read(), PublishPacket):
        assert packet.qos == 0
        found.append(packet.payload)
    return found


def test_MQ_110_terms_are_those_of_the_publish_and_of_nobody_else():
    payload = Payload("t", b"x", None)
    assert split_terms(add_terms(payload, SharedTerms(1, 7))) == (payload, SharedTerms(1, 7))
    for value in (b"", b"3 0", b"1", b"1 x", b"1 " + b"9" * 20, b"\xff 0"):
        headed = add_terms(payload, SharedTerms())
        forged = headed._replace(head=headed.head.replace(b"2 0", value) if len(value) == 3 else headed.head)
        assert split_terms(forged)[1] == SharedTerms()
