"""A copy of a store that is made while its node runs, and put in its place."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from session_nodes import node_of, take, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher


def copy_store(source, target):
    """As `sqlite3 SOURCE ".backup TARGET"` does."""
    with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(target)) as copy:
        store.backup(copy)


async def publish(node, *payloads, qos=1):
    async with SessionPublisher(nodes=where(node)) as publisher:
        for payload in payloads:
            await publisher.publish("t", payload.encode(), qos)


@pytest.mark.parametrize("acknowledge", [False, True])
async def test_PS_700_a_client_that_is_ahead_of_a_copy_gets_what_is_sent_under_a_packet_that_it_knows(
    tmp_path, acknowledge
):
    store, copy = tmp_path / "s.db", tmp_path / "copy.db"
    async with node_of(str(store), "a") as node:
        address = node.address
        session = await PersistentSession("c", nodes=where(node)).__aenter__()
        await session.subscribe("t", qos=2)
        copy_store(store, copy)
        await publish(node, "lost", qos=2)
        before = await anext(session)
    if acknowledge:
        before.acknowledge()
    async with node_of(str(copy), "a", listen=address) as node:
        await publish(node, "1", "2", qos=2)
        assert await take(session, 2) == ["1", "2"]
        before.acknowledge()
        await publish(node, "3", qos=2)
        assert await take(session, 1) == ["3"]
    await session.abort()
