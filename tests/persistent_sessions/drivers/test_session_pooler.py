"""Sessions in a PostgreSQL behind pgbouncer in transaction mode, and in one that is read-only for a while."""

from __future__ import annotations

import asyncio

import pytest
from pgbouncer import pgbouncer

from statemachines.drivers.persistent_sessions import PersistentSession, SessionNode, SessionPublisher
from statemachines.drivers.persistent_sessions.store import open_session_store

OFTEN = 12
"""A statement is prepared when it has been sent five times."""


@pytest.mark.parametrize("more", ["", "ignore_startup_parameters = options"], ids=["refuses", "drops"])
def test_PS_290_a_node_works_behind_a_pooler(more, postgres_url, tmp_path):
    async def run(url):
        async with SessionNode(url, name="n", look_ms=20) as node:
            async with PersistentSession("c", node=node) as session:
                await session.subscribe("t", qos=1)
            async with SessionPublisher(node=node) as publisher:
                for number in range(OFTEN):
                    await publisher.publish("t", b"%d" % number, qos=1)
            got = []
            async with PersistentSession("c", node=node) as session:
                async for message in session:
                    message.acknowledge()
                    got.append(int(message.payload))
                    if len(got) == OFTEN:
                        break
            return got

    with pgbouncer(postgres_url, tmp_path, more=more) as url:
        asyncio.run(in_turn(url))
        assert asyncio.run(run(url)) == list(range(OFTEN))


async def in_turn(url):
    """Two processes that ask the same: one after the other they have the same session of the server."""
    stores = [open_session_store(url) for _ in range(2)]
    try:
        for _ in range(OFTEN):
            for number, store in enumerate(stores):
                await store.begin_life(f"node-{number}", 1_000)
    finally:
        for store in stores:
            await store.close()
