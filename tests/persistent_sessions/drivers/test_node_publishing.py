"""What is handed to a node of sessions, and comes to its clients (PS-151, PS-152, PS-157, PS-159, PS-162)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import AsyncExitStack
from functools import partial

import pytest
from session_nodes import QUICK, Stranger, node_of, take, until, where

from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    PublishRefused,
    SessionNode,
    SessionPublisher,
    SubscribeRefused,
    publish_requests,
    route_rows,
    subscription_requests,
)
from statemachines.drivers.persistent_sessions.host_request import StoreRows
from statemachines.drivers.persistent_sessions.session_publisher import PAYLOAD_MAX, WINDOW, WINDOW_BYTES
from statemachines.drivers.persistent_sessions.session_server import say_each
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    PublishStored,
    PublishWanted,
    Refused,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines.persistent_sessions.publication_record import NodeReached
from statemachines.persistent_sessions.request import PutRows


@pytest.mark.parametrize("inside", [False, True], ids=["tcp", "inside"])
async def test_PS_151_PS_152_what_is_published_comes_in_order(store, inside):
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(node_of(store))
        given = {"node": node} if inside else {"nodes": where(node)}
        session = await stack.enter_async_context(PersistentSession("tablet", **given))
        publisher = await stack.enter_async_context(SessionPublisher(**given))
        await publisher.publish("news/1", b"nobody wants this")
        await session.subscribe("news/+")
        await asyncio.gather(*(publisher.publish("news/1", str(one).encode()) for one in range(50)))
        assert await take(session, 50) == [str(one) for one in range(50)]
        await session.unsubscribe("news/+")
        await publisher.publish("news/1", b"nor this")
        await session.subscribe("news/#")
        await publisher.publish("news/1", b"this")
        message = await anext(session)
        assert (message.topic, message.payload, message.filter, message.qos) == ("news/1", b"this", "news/#", 1)


async def test_PS_151_a_message_is_stored_when_its_publisher_is_answered(store):
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        async with PersistentSession("tablet", node=node) as session:
            await session.subscribe("t")
        await publisher.publish("t", b"kept")
    async with node_of(store, "b") as node, PersistentSession("tablet", node=node) as session:
        assert session.present
        assert await take(session, 1) == ["kept"]


@pytest.mark.parametrize(
    ("topic", "payload", "qos", "said"),
    [
        ("a/#", b"", 1, "only filters have"),
        ("", b"", 1, "not empty"),
        ("t", b"", 3, "must be 0, 1 or 2"),
        ("t", bytes(PAYLOAD_MAX + 1), 1, f"at most {PAYLOAD_MAX} bytes"),
    ],
)
async def test_PS_151_what_cannot_be_published_is_said(store, topic, payload, qos, said):
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        with pytest.raises(ConfigurationError, match=said):
            await publisher.publish(topic, payload, qos)


async def test_PS_151_the_largest_payload_arrives(store):
    async with (
        node_of(store) as node,
        SessionPublisher(nodes=where(node)) as publisher,
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        await session.subscribe("t/#")
        await publisher.publish("t/" + "x" * 60_000, bytes(PAYLOAD_MAX))
        assert len((await anext(session)).payload) == PAYLOAD_MAX


async def test_PS_151_so_many_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(publish_requests, "PUBLISHES_MAX", 5)
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        done = await asyncio.gather(
            *(publisher.publish("t", str(one).encode()) for one in range(8)), return_exceptions=True
        )
        assert [str(one) for one in done] == ["None"] * 5 + ["busy"] * 3
        assert isinstance(done[-1], PublishRefused)
        await publisher.publish("t", b"again")


@pytest.mark.parametrize(
    ("bound", "most"), [("PUBLISHER_MAX", 2), ("PUBLISHER_BYTES_MAX", 10), ("PUBLISHER_BYTES_MAX", 14)]
)
async def test_PS_151_a_publisher_that_floods_takes_no_room_of_others(store, monkeypatch, bound, most):
    monkeypatch.setattr(publish_requests, bound, most)
    async with (
        node_of(store) as node,
        SessionPublisher(node=node) as flooding,
        SessionPublisher(node=node) as other,
    ):
        floods = (flooding.publish("t", b"12345") for _ in range(4))
        others = (other.publish("t", b"12345") for _ in range(2))
        done = await asyncio.gather(*floods, *others, return_exceptions=True)
        assert [str(one) for one in done] == ["None", "None", "busy", "busy", "None", "None"]
        await asyncio.gather(*(flooding.publish("t", b"12345") for _ in range(2)))
        await flooding.publish("t", b"more than may be under way beside others")


@pytest.mark.parametrize(("published", "subscribed", "came"), [(2, 1, 1), (1, 2, 1), (2, 2, 2), (0, 2, 0), (2, 0, 0)])
async def test_PS_151_a_message_comes_with_the_lower_qos(store, published, subscribed, came):
    async with (
        node_of(store) as node,
        SessionPublisher(node=node) as publisher,
        PersistentSession("tablet", node=node) as session,
    ):
        await session.subscribe("t", qos=subscribed)
        await publisher.publish("t", b"1", qos=published)
        message = await anext(session)
        assert (message.qos, bool(message.packet)) == (came, came > 0)


async def test_PS_157_what_waits_for_its_node_fits_into_the_next_connection(store):
    async with (
        node_of(store) as node,
        SessionPublisher(nodes=where(node)) as publisher,
        PersistentSession("tablet", nodes=where(node)) as session,
    ):
        await session.subscribe("t")
        body = bytes(500_000)
        waiting = [asyncio.ensure_future(publisher.publish("t", b"%d:" % n + body)) for n in range(12)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < publisher._window.record.under_way <= WINDOW_BYTES // len(body)
        found = []
        while len(found) < 12:
            message = await anext(session)
            found.append(int(message.payload.partition(b":")[0]))
            message.acknowledge()
        assert found == list(range(12))
        await asyncio.gather(*waiting)
        assert (
            publisher._window.record.window_bytes,
            node.reception.publishes._publishing,
            node.reception.publishes._publishing_bytes,
        ) == (0, 0, 0)


async def test_PS_761_so_many_messages_are_handed_over_at_a_time(store):
    async with node_of(store) as node, SessionPublisher(nodes=where(node)) as publisher:
        most = 0
        waiting = [asyncio.ensure_future(publisher.publish("t", b"")) for _ in range(WINDOW + 500)]
        while not all(one.done() for one in waiting):
            await asyncio.sleep(0)
            most = max(most, publisher._window.record.under_way)
        assert most == WINDOW


async def test_PS_151_so_many_bytes_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(publish_requests, "PUBLISHED_BYTES_MAX", 10)
    async with node_of(store) as node, SessionPublisher(node=node) as publisher:
        done = await asyncio.gather(*(publisher.publish("t", b"12345") for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in done] == ["None", "None", "busy"]
        await publisher.publish("t", b"1234567890")


async def test_PS_151_so_many_subscriptions_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(subscription_requests, "CHANGES_MAX", 2)
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        done = await asyncio.gather(*(session.subscribe(name) for name in "abc"), return_exceptions=True)
        assert [str(one) for one in done] == ["None", "None", "busy"]
        await session.subscribe("c")


async def test_PS_159_what_there_is_no_room_for_is_dropped_of_qos_0(store):
    async with (
        node_of(store) as node,
        PersistentSession("tablet", node=node) as session,
        SessionPublisher(node=node) as publisher,
    ):
        await session.subscribe("t")
        visitor = next(one for one in node.reception.visitors.values() if one.owner)
        tried = []
        deliver, visitor.deliver = visitor.deliver, partial(say_each, tried.append)  # and None is no room
        await publisher.publish("t", b"0", qos=0)
        await until(lambda: any(isinstance(one, Delivered) for one in tried))
        visitor.deliver = deliver
        await publisher.publish("t", b"1")
        assert await take(session, 1) == ["1"]


async def test_PS_151_what_is_stored_is_not_under_way_any_more(store, monkeypatch):
    monkeypatch.setattr(publish_requests, "PUBLISHER_MAX", 2)
    async with (
        node_of(store) as node,
        SessionPublisher(node=node) as publisher,
        PersistentSession("tablet", node=node) as session,
    ):
        await session.subscribe("t")
        for number in range(5):
            await publisher.publish("t", str(number).encode())
        assert await take(session, 5) == ["0", "1", "2", "3", "4"]


async def test_PS_151_what_a_node_refuses_is_said(store):
    async with node_of(store) as node, Stranger(node.address) as stranger:
        stranger.say(SubscribeWanted(1, "t", 1))
        assert await stranger.hears(Refused) == Refused(1, "no session is connected here")
        stranger.heard.clear()
        stranger.say(ConnectWanted("c", False, 0, 1))
        await stranger.hears(Welcome)
        stranger.say(UnsubscribeWanted(2, "a/#/b"))
        assert "has '#' before its last level" in (await stranger.hears(Refused)).why
        stranger.heard.clear()
        stranger.say(PublishWanted(3, "a/+", b"", 1))
        assert "only filters have" in (await stranger.hears(Refused)).why
    async with node_of(store, "b") as node, PersistentSession("tablet", node=node) as session:
        with pytest.raises(ConfigurationError, match="has '#' before its last level"):
            await session.subscribe("a/#/b")
        session._count += 1
        with pytest.raises(SubscribeRefused, match="has '#' before its last level"):
            await session._change(SubscribeWanted(session._count, "a/#/b", 1))


async def test_PS_157_what_is_not_answered_goes_to_the_next_node_in_order(store):
    async with node_of(store, "b") as two, PersistentSession("tablet", node=two) as session:
        one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **QUICK)
        await one.__aenter__()
        await session.subscribe("t")
        async with SessionPublisher(nodes=where(one, two)) as publisher:
            await publisher.publish("other", b"so that it is connected")
            one.reception.hear = lambda party, message: None  # nothing is done with what it gets
            waiting = [asyncio.ensure_future(publisher.publish("t", str(n).encode())) for n in range(1, 6)]
            await asyncio.sleep(0.05)
            assert not any(each.done() for each in waiting)
            await one.abort()
            await asyncio.gather(*waiting)
        assert await take(session, 5) == ["1", "2", "3", "4", "5"]


async def test_a_subscription_beyond_those_that_a_session_may_have_is_refused_and_the_rest_stays(store, monkeypatch):
    monkeypatch.setattr(route_rows, "FILTERS_MAX", 1)
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        await session.subscribe("t", qos=1)
        with pytest.raises(SubscribeRefused, match="has 1000 filters, and may not have more"):
            await session.subscribe("u", qos=1)
        async with SessionPublisher(node=node) as publisher:
            await publisher.publish("u", b"other")
            await publisher.publish("t", b"one")
        assert await take(session, 1) == ["one"]


async def test_PS_400_what_publishers_hand_over_at_once_is_few_requests_and_all_of_it_comes(store):
    """Of a hundred publishes that come together few requests store the rows; none is left out, or comes twice."""

    asked = []
    async with node_of(store) as node:
        async with PersistentSession("tablet", node=node) as session:
            await session.subscribe("t", qos=1)
        given = node._store.carry_out

        async def counted(life, batch, requests):
            asked.extend(one for one in requests if isinstance(one, StoreRows))
            return await given(life, batch, requests)

        node._store.carry_out = counted
        async with SessionPublisher(node=node) as publisher:
            await asyncio.gather(*(publisher.publish("t", str(number).encode()) for number in range(100)))
        async with PersistentSession("tablet", node=node) as session:
            assert await take(session, 100) == [str(number) for number in range(100)]
    counts = [len(one.put.rows) for one in asked]
    assert sum(counts) == 100
    assert max(counts) > 1
    assert len(counts) < 100


async def test_PS_162_a_message_that_was_deleted_before_its_row_is_there_again(store):
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        await session.subscribe("t", qos=1)
        given = node._store.carry_out

        async def late(life, batch, requests):
            if any(isinstance(one, StoreRows | PutRows) for one in requests):  # a collector came between
                with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
                    connection.execute("DELETE FROM messages")
            return await given(life, batch, requests)

        node._store.carry_out = late
        async with SessionPublisher(node=node) as publisher:
            await publisher.publish("t", b"kept")
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        assert await take(session, 1) == ["kept"]


def test_PS_761_a_call_that_comes_when_there_is_room_again_goes_behind_those_that_wait():
    """Messages are said in the order of the calls, and each is done when it is stored."""

    async def main():
        publisher, said = SessionPublisher(nodes=["127.0.0.1:1"]), []
        publisher._guide.say = lambda wanted: said.append(wanted.payload)
        publisher._feed(NodeReached())
        large = bytes(WINDOW_BYTES // 3 - 1_000)
        calls = [asyncio.ensure_future(publisher.publish("t", large)) for _ in range(3)]
        await asyncio.sleep(0)
        calls += [asyncio.ensure_future(publisher.publish("t", one)) for one in (large + b"fourth", b"fifth")]
        await asyncio.sleep(0)
        publisher._hear(PublishStored(1))
        await calls[0]
        calls.append(asyncio.ensure_future(publisher.publish("t", b"sixth")))
        for number in range(2, 7):
            await asyncio.sleep(0.01)
            publisher._hear(PublishStored(number))
        await asyncio.gather(*calls)
        return [one[-6:] for one in said[3:]]

    assert asyncio.run(main()) == [b"fourth", b"fifth", b"sixth"]
