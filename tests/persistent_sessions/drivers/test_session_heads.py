"""Headers, key and timestamp of messages of sessions, through publisher, database, wire and client."""

from __future__ import annotations

import asyncio

import pytest
from session_nodes import Stranger, node_of, until, where
from test_carrier import GROUP, played

from statemachines.drivers.message_head import encode_head, make_head
from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.payloads import Payloads
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions import message
from statemachines.persistent_sessions.publication_record import NodeReached

HEAD = make_head([("trace", b"\0\xff"), ("trace", b"")], b"customer-7", 1_764_000_000.25)


@pytest.mark.parametrize("inside", [False, True], ids=["tcp", "inside"])
async def test_PS_430_a_client_gets_what_the_publisher_gave_though_the_node_has_to_read_it(store, inside):
    async with node_of(store) as node:
        given = {"node": node} if inside else {"nodes": where(node)}
        async with PersistentSession("tablet", **given) as session, SessionPublisher(**given) as publisher:
            await session.subscribe("t", 2)
            for _ in range(2):
                headers, key, timestamp = HEAD.headers, HEAD.key, HEAD.timestamp
                await publisher.publish("t", b"1", 1, headers=headers, key=key, timestamp=timestamp)
                await publisher.publish("t", b"2", 2, key=b"")
                await publisher.publish("t", b"3")
                found = [await anext(session) for _ in range(3)]
                assert [one.payload for one in found] == [b"1", b"2", b"3"]
                assert (found[0].headers, found[0].key, found[0].timestamp) == (headers, key, timestamp)
                assert [(one.headers, one.key, one.timestamp) for one in found[1:]] == [
                    ((), b"", None),
                    ((), None, None),
                ]
                for one in found:
                    one.acknowledge()
                node.reception.messages.payloads = Payloads(bytes_max=0)


async def test_PS_430_what_another_node_has_stored_comes_with_its_head(store):
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        async with PersistentSession("tablet", node=node) as session:
            await session.subscribe("t")
        for size in (1, 500_000, 500_000, 500_000):  # those beyond a page's share are read one by one
            await publisher.publish("t", b"x" * size, key=b"k%d" % size)
    async with node_of(store, "b") as node, PersistentSession("tablet", node=node) as session:
        for size in (1, 500_000, 500_000, 500_000):
            message = await anext(session)
            assert (len(message.payload), message.key) == (size, b"k%d" % size)
            message.acknowledge()


async def test_PS_431_a_node_believes_no_client_that_a_head_is_one(store):
    async with node_of(store) as node, Stranger(node.address) as stranger:
        stranger.say(message.PublishWithHead(1, "t", b"x", 1, None, b"\xc1"))
        assert "is not the head of a message" in (await stranger.hears(message.Refused)).why
        stranger.say(message.PublishWithHead(2, "t", b"x", 1, None, encode_head(HEAD)))
        assert (await stranger.hears(message.PublishStored)).n == 2


async def test_PS_432_a_message_without_a_head_is_published_as_before():
    said = []
    async with SessionPublisher(nodes=["127.0.0.1:1"]) as publisher:
        publisher._guide.say = said.append
        publisher._feed(NodeReached())
        published = [asyncio.ensure_future(publisher.publish("t", b"x", key=key)) for key in (None, b"k")]
        await until(lambda: len(said) == 2)
        for one in published:
            one.cancel()
    assert said == [
        message.PublishWanted(1, "t", b"x", 1, None),
        message.PublishWithHead(2, "t", b"x", 1, None, encode_head(make_head(key=b"k"))),
    ]


async def test_PS_430_a_message_of_a_group_keeps_its_head_in_the_session(tmp_path):
    async with (
        played(tmp_path, str(tmp_path / "sessions.db")) as (place, (node,)),
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        await session.subscribe(GROUP)
        async with Publisher(place.store, node="p") as publisher:
            await publisher.publish("jobs/a", [b"1"], headers=HEAD.headers, key=HEAD.key)
        async with asyncio.timeout(60):
            message = await anext(session)
        assert (message.payload, message.headers, message.key) == (b"1", HEAD.headers, HEAD.key)


async def test_PS_434_messages_of_qos_0_that_wait_for_the_application_are_bounded_in_bytes(store):
    async with (
        node_of(store) as node,
        SessionPublisher(node=node) as publisher,
        PersistentSession("tablet", node=node, buffer_bytes=3_000) as session,
    ):
        await session.subscribe("t", 1)
        for number in range(6):
            await publisher.publish("t", b"%d" % number + b"x" * 899, qos=0, headers={"h": b"y" * 90})
        await publisher.publish("t", b"last", qos=1)
        await until(lambda: session._waiting and session._waiting[-1].payload == b"last")
        found = [await anext(session) for _ in range(4)]
        assert [one.payload[:1] for one in found] == [b"0", b"1", b"2", b"l"]
        await publisher.publish("t", b"x" * 10_000, qos=0)
        assert len((await anext(session)).payload) == 10_000
        assert session._waiting_bytes == 0


@pytest.mark.parametrize("most", [0, True, 1.5])
def test_PS_434_a_bound_that_is_none_is_refused(most):
    with pytest.raises(ConfigurationError, match=r"must be a number of bytes, at least 1"):
        PersistentSession("tablet", nodes=["127.0.0.1:1"], buffer_bytes=most)
