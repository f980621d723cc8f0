"""A session goes on elsewhere though its node says nothing more, or is gone: nobody is waited for in vain.

Every period that could be waited out is longer than a test lasts; what is not given up at once makes it fail.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from session_nodes import node_of, take, until, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher
from statemachines.drivers.persistent_sessions.host_request import ReadPage
from statemachines.persistent_sessions.life_times import LifeTimes
from statemachines.persistent_sessions.resume_record import READING
from statemachines.persistent_sessions.times import Times
from statemachines.testing.fault_proxy import FaultProxy

HOUR_MS = 3_600_000
LONG = {
    "times": Times(
        lock_ms=4 * HOUR_MS, resume_ms=3 * HOUR_MS, marker_ms=HOUR_MS, begin_ms=HOUR_MS, end_ms=HOUR_MS,
        orphan_ms=5 * HOUR_MS,
    ),
    "life_times": LifeTimes(lock_ms=4 * HOUR_MS, dead_ms=HOUR_MS),
    "lease_ms": HOUR_MS,
}  # fmt: skip


async def two_nodes(stack, store):
    """One that the other and its clients reach over a line; the line; where clients find both."""
    one = SessionNode(store, name="a", listen=("127.0.0.1", 0), **LONG)
    await one.__aenter__()
    stack.push_async_callback(one.abort)
    line = await stack.enter_async_context(FaultProxy(one.address))
    two = await stack.enter_async_context(node_of(store, "b", peers=[line.address], **LONG))
    return one, two, line, ["{}:{}".format(*line.address), *where(two)]


@pytest.mark.parametrize("how", ["silent", "gone"])
async def test_a_session_goes_on_without_its_node(tmp_path, how):
    """One that is silent is connected all the while, and its store says that it lives."""
    async with AsyncExitStack() as stack:
        one, two, line, ways = await two_nodes(stack, tmp_path / "s.db")
        session = await stack.enter_async_context(PersistentSession("tablet", nodes=ways))
        publisher = await stack.enter_async_context(SessionPublisher(node=two))
        await session.subscribe("t")
        async with SessionPublisher(node=one) as first:
            await first.publish("t", b"1")
        assert await take(session, 1) == ["1"]
        assert one.machines.owners
        if how == "silent":
            line.block()
        else:
            await one.abort()
        await publisher.publish("t", b"2")
        while (message := await anext(session)).payload != b"2":
            assert message.dup
        assert two.machines.owners


async def test_a_client_whose_node_dies_as_it_resumes_is_connected_by_the_next(tmp_path):
    """The lock of its first connection is there for hours."""
    async with AsyncExitStack() as stack:
        one, two, _, ways = await two_nodes(stack, tmp_path / "s.db")
        async with PersistentSession("tablet", nodes=ways) as session:
            await session.subscribe("t")
        async with SessionPublisher(node=two) as publisher:
            await publisher.publish("t", b"1")
        serve = one._desk.serve

        def keep_pages(party, request, *rest):
            """What waits for the session is never read."""
            if not isinstance(request, ReadPage):
                serve(party, request, *rest)

        one._desk.serve = keep_pages

        def is_resuming():
            found = map(one.machines.resume_of, one.machines.owners)
            return any(each is not None and each.status is READING for each in found)

        async def die():
            await until(is_resuming)
            await one.abort()

        dying = asyncio.ensure_future(die())
        session = await stack.enter_async_context(PersistentSession("tablet", nodes=ways))
        assert session.present
        assert await take(session, 1) == ["1"]
        await dying
        assert two.machines.owners
