"""A publisher has one order, also when it moves to another node."""

from __future__ import annotations

from contextlib import AsyncExitStack

from session_nodes import node_of, take, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher

COUNT = 60


async def publish(node: SessionNode, first: int, count: int) -> None:
    """Numbers, each when the one before it is stored."""
    async with SessionPublisher(nodes=where(node)) as publisher:
        for number in range(first, first + count):
            await publisher.publish("value", str(number).encode())


async def test_PS_480_a_session_that_was_absent_gets_the_order_of_a_publisher_that_moved(store):
    """Over a, over b, and over a again: a client that keeps the last value ends with the last."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(node_of(store, name)) for name in "ab"]
        async with PersistentSession("tablet", nodes=where(*nodes)) as session:
            await session.subscribe("value")
        for turn, node in enumerate((nodes[0], nodes[1], nodes[0])):
            await publish(node, turn * COUNT, COUNT)
        async with PersistentSession("tablet", nodes=where(*nodes), receive_maximum=10) as session:
            assert await take(session, 3 * COUNT) == [str(number) for number in range(3 * COUNT)]


async def test_PS_481_a_publisher_that_moves_overtakes_nothing_on_its_way_to_a_live_session(store):
    """The other node is not linked to that of the session: what it stores is found in the database alone."""
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(node_of(store, name, look_ms=5_000)) for name in "ab"]
        session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(here)))
        await session.subscribe("value")
        for turn in range(4):
            await publish((there, here)[turn % 2], 5 * turn, 5)
        assert await take(session, 20) == [str(number) for number in range(20)]
