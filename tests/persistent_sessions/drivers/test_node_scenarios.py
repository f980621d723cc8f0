"""Scenarios of the page over real nodes: what is unsubscribed, and a session that moves under a stream of messages."""

from __future__ import annotations

from contextlib import AsyncExitStack

from session_nodes import node_of, take, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher


async def test_unsubscribe_removes_exactly_its_routes(store):
    """Not those of another filter that matches the same, nor of another session."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(node_of(store))
        one, two = [
            await stack.enter_async_context(PersistentSession(name, nodes=where(node))) for name in ("one", "two")
        ]
        for session in (one, two):
            for topic_filter in ("a/+", "a/b", "c"):
                await session.subscribe(topic_filter)
        await one.unsubscribe("a/+")
        await one.unsubscribe("a/#")  # it has none such
        publisher = await stack.enter_async_context(SessionPublisher(nodes=where(node)))
        for topic in ("a/b", "a/x", "c"):
            await publisher.publish(topic, topic.encode())
        assert await take(one, 2) == ["a/b", "c"]
        assert await take(two, 4) == ["a/b", "a/b", "a/x", "c"]


async def test_what_is_in_flight_of_an_unsubscribed_topic_comes_again(store):
    """It is the session's until the client has acknowledged it."""
    async with node_of(store) as node, SessionPublisher(nodes=where(node)) as publisher:
        session = PersistentSession("tablet", nodes=where(node))
        async with session:
            await session.subscribe("t")
            await publisher.publish("t", b"before")
            first = await anext(session)
            await session.unsubscribe("t")
            await publisher.publish("t", b"after")
            await session.abort()
        async with PersistentSession("tablet", nodes=where(node)) as session:
            again = await anext(session)
            assert (again.payload, again.packet, again.dup) == (b"before", first.packet, True)
            again.acknowledge()
            await session.subscribe("t")
            await publisher.publish("t", b"last")
            assert await take(session, 1) == ["last"]
