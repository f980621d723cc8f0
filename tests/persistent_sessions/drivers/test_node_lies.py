"""What no clock and no database counts to: epochs, numbers and names that a peer makes up."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from session_nodes import Stranger, node_of, take, until, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher
from statemachines.drivers.persistent_sessions.node_messages import NODE
from statemachines.drivers.topic import TOPIC_MAX
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Farewell,
    Live,
    LiveMarker,
    MarkerWanted,
    Queued,
    Welcome,
)

HUGE = (2**62 - 1, 2**62, 2**63, 2**64 - 1)


@pytest.mark.parametrize("lie", HUGE)
async def test_PS_205_a_node_that_makes_up_epochs_and_numbers_ends_nobody_and_nothing_is_lost(store, lie, caplog):
    """It goes by the name of a node that has written for the session, and is gone."""
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(node_of(store))
        session = await stack.enter_async_context(PersistentSession("tablet", nodes=where(node)))
        await session.subscribe("t")
        async with node_of(store, "b") as other, SessionPublisher(nodes=where(other)) as publisher:
            await publisher.publish("t", b"first")
        assert await take(session, 1) == ["first"]
        (owner,) = node.machines.owners
        its = node.machines.resume_of(owner).session
        said = [
            Live(its, "b", lie, Queued(1, "m")),
            Live(its, "b", 1, Queued(lie, "m")),
            LiveMarker(its, "b", lie, 1, 1, 1),
            LiveMarker(its, "b", 1, lie, lie, lie),
            MarkerWanted(its, "b~999/1", lie, lie),
            Live(its, "b", -lie, Queued(-lie, "m")) if lie < 2**63 else Live(its, "b", -1, Queued(-1, "m")),
        ]
        for number, one in enumerate(said, 1):
            async with Stranger(node.address, NODE, "b~999", store=node._transport.store) as evil:
                evil.say(one, owner, "b~999/1")
                await until(lambda number=number: caplog.text.count("refuses this node") >= number)
        publisher = await stack.enter_async_context(SessionPublisher(nodes=where(node)))
        for number in range(5):
            await publisher.publish("t", str(number).encode())
        assert await take(session, 5) == list("01234")
        again = await stack.enter_async_context(node_of(store, "b"))
        other = await stack.enter_async_context(SessionPublisher(nodes=where(again)))
        for number in range(5, 10):
            await other.publish("t", str(number).encode())
        assert await take(session, 5) == list("56789")
        assert node._runtime.failed is None
    assert "Expected `int` <= 2305843009213693952" in caplog.text
    assert "Expected `int` >= 0" in caplog.text


async def test_PS_206_a_client_id_that_no_client_may_have_is_refused(store, caplog):
    """By a peer that does not look at it itself."""
    async with node_of(store) as node:
        async with Stranger(node.address, life="x~1") as stranger:
            stranger.say(ConnectWanted("c" * (TOPIC_MAX + 1), False, 0, 1))
            assert await stranger.hears(Farewell) == Farewell("refused")
            stranger.say(ConnectWanted("c" * TOPIC_MAX, False, 0, 1))
            await stranger.hears(Welcome)
        await until(lambda: not node.machines.owners)
    assert "connect_wanted" in caplog.text
    assert f"must have at most {TOPIC_MAX} bytes" in caplog.text
