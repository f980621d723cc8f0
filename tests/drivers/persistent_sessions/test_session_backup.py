"""A copy of a store that is made while its node runs, and put in its place."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from session_nodes import node_of, run, take, where

from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher


def copy_store(source, target):
    """As `sqlite3 SOURCE ".backup TARGET"` does."""
    with closing(sqlite3.connect(source)) as store, closing(sqlite3.connect(target)) as copy:
        store.backup(copy)


async def publish(node, *payloads):
    async with SessionPublisher(nodes=where(node)) as publisher:
        for payload in payloads:
            await publisher.publish("t", payload.encode())


def test_a_copy_has_all_that_was_stored_before_it_and_nothing_of_what_came_later(tmp_path):
    store, copy = tmp_path / "s.db", tmp_path / "copy.db"

    async def main():
        async with node_of(str(store), "a") as node:
            async with PersistentSession("c", nodes=where(node)) as session:
                await session.subscribe("t")
            await publish(node, "1", "2")
            copy_store(store, copy)
            async with PersistentSession("c", nodes=where(node)) as session:
                assert await take(session, 2) == ["1", "2"]
            await publish(node, "later")
        async with node_of(str(copy), "a") as node:
            await publish(node, "3")
            async with PersistentSession("c", nodes=where(node)) as session:
                assert await take(session, 3) == ["1", "2", "3"], "what was acknowledged since comes again"

    run(main())
