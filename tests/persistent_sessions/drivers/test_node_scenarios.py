"""Scenarios of the page over real nodes: what is unsubscribed, and a session that moves under a stream of messages."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from long_cases import mark_long
from session_nodes import QUICK, node_of, take, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher
from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken
from statemachines.testing.process_harness import free_port

MESSAGES = 100


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


@pytest.mark.parametrize("seed", mark_long((1, 2), "2"))
async def test_PS_160_a_session_that_is_taken_over_under_a_hundred_messages_has_each_once_and_in_order(store, seed):
    """At moments that a seed chooses; of what comes again, under its packet and marked, the first counts."""
    chance = random.Random(seed)
    splits = sorted(chance.sample(range(1, MESSAGES), 3))
    here, there = ("127.0.0.1", free_port()), ("127.0.0.1", free_port())
    async with AsyncExitStack() as stack:
        nodes = [
            SessionNode(store, name=name, listen=listen, peers=[peer], **QUICK)
            for name, listen, peer in (("a", here, there), ("b", there, here))
        ]
        for node in nodes:
            await stack.enter_async_context(node)
        publishers = [
            await stack.enter_async_context(SessionPublisher(nodes=where(node), name=f"p{node.name}")) for node in nodes
        ]
        got, packets = {0: [], 1: []}, {}

        async def receive(session):
            try:
                async for message in session:
                    which, number = map(int, message.payload.split())
                    seen = packets.setdefault((which, number), message.packet)
                    assert seen == message.packet, "it comes again under its packet"
                    if number in got[which]:
                        assert message.dup
                    else:
                        got[which].append(number)
                    message.acknowledge()
            except SessionTaken:
                pass

        sessions = [PersistentSession("tablet", nodes=where(nodes[0]))]
        await stack.enter_async_context(sessions[0])
        await sessions[0].subscribe("t")
        tasks = [asyncio.ensure_future(receive(sessions[0]))]
        for number in range(MESSAGES):
            sent = [one.publish("t", f"{which} {number}".encode()) for which, one in enumerate(publishers)]
            if number in splits:
                sessions.append(PersistentSession("tablet", nodes=where(nodes[len(sessions) % 2])))
                entered = stack.enter_async_context(sessions[-1])
                await asyncio.gather(*sent, entered)
                tasks.append(asyncio.ensure_future(receive(sessions[-1])))
            else:
                await asyncio.gather(*sent)
        while min(map(len, got.values())) < MESSAGES:
            await asyncio.sleep(0.01)
        assert got == {0: list(range(MESSAGES)), 1: list(range(MESSAGES))}
        await asyncio.gather(*tasks[:-1])  # each has heard that another has the session
        assert not tasks[-1].done()
        tasks[-1].cancel()
        await asyncio.gather(tasks[-1], return_exceptions=True)
