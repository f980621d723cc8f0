"""What is handed to a node of sessions, and comes to its clients (PS-151, PS-152, PS-157, PS-159, PS-162)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from contextlib import AsyncExitStack

import pytest
from session_nodes import Stranger, node_of, take, where

from statemachines.drivers.persistent_sessions import (
    PersistentSession,
    PublishRefused,
    SessionPublisher,
    SubscribeRefused,
    client_requests,
)
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.session_publisher import PAYLOAD_MAX
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    PublishWanted,
    Refused,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
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


async def test_PS_151_so_many_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(client_requests, "PUBLISHES_MAX", 5)
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
    monkeypatch.setattr(client_requests, bound, most)
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


async def test_PS_151_so_many_subscriptions_are_under_way_and_the_next_is_refused(store, monkeypatch):
    monkeypatch.setattr(client_requests, "CHANGES_MAX", 2)
    async with node_of(store) as node, PersistentSession("tablet", node=node) as session:
        done = await asyncio.gather(*(session.subscribe(name) for name in "abc"), return_exceptions=True)
        assert [str(one) for one in done] == ["None", "None", "busy"]
        await session.subscribe("c")


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
