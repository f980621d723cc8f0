"""A connection that its client has given up, and that reaches its node late (PS-280)."""

from __future__ import annotations

from contextlib import AsyncExitStack

from held_line import HeldLine
from session_nodes import node_of, take, until, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher


async def test_PS_280_a_connection_that_comes_late_does_not_supersede_a_later_one_of_its_client(store):
    """What asks for it stands still on its way until the client has gone to the next node and has its session there."""
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(node_of(store, "a"))
        two = await stack.enter_async_context(node_of(store, "b"))
        line = stack.enter_context(HeldLine(one.address[1], b"connect_wanted", late=True))
        ways = [f"127.0.0.1:{line.port}", *where(two)]
        session = await stack.enter_async_context(PersistentSession("tablet", nodes=ways))
        publisher = await stack.enter_async_context(SessionPublisher(nodes=where(two)))
        await session.subscribe("t")
        assert line.holds.is_set()
        line.released.set()
        await until(lambda: one.reception.visitors)
        await until(lambda: not any(visitor.owner for visitor in one.reception.visitors.values()))
        await publisher.publish("t", b"1")
        assert await take(session, 1) == ["1"]
