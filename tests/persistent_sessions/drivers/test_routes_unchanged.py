"""Routes that nobody has changed are not looked up in a transaction (PS-591)."""

from __future__ import annotations

import asyncio

import pytest
from session_databases import connect

from statemachines.drivers.persistent_sessions import sqlite
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, Subscribe
from statemachines.drivers.persistent_sessions.store import open_session_store


@pytest.fixture
def reads(monkeypatch):
    """Transactions that read."""
    found = []
    reading = sqlite.SqliteSessions.reading

    def note(database, *given, **named):
        found.append("read")
        return reading(database, *given, **named)

    monkeypatch.setattr(sqlite.SqliteSessions, "reading", note)
    return found


class TwoNodes:
    """Stores of two nodes on one file, and a session."""

    def __init__(self, path):
        self.stores = {name: open_session_store(path) for name in ("n1", "n2")}

    async def __aenter__(self):
        self.lives = {name: await store.begin_life(name, 60_000) for name, store in self.stores.items()}
        self.batches = dict.fromkeys(self.stores, 0)
        self.token, *_ = await connect(self.stores["n1"], "s1")
        return self

    async def __aexit__(self, *error):
        for store in self.stores.values():
            await store.close()

    async def carry_out(self, name, *requests):
        self.batches[name] += 1
        await self.stores[name].carry_out(self.lives[name], self.batches[name], requests)

    async def find_filters(self, name, topic="a/b", qos=1):
        found = await self.stores[name].store_ahead(
            self.lives[name], self.batches[name], [PutMessage("m", topic, b"x", qos)]
        )
        return sorted(route.filter for route in found[0])


def play(tmp_path, body):
    async def main():
        async with TwoNodes(tmp_path / "s.db") as nodes:
            return await body(nodes)

    return asyncio.run(main())


def test_PS_591_a_request_that_belongs_to_no_batch_may_change_routes_too(tmp_path):
    async def body(nodes):
        await nodes.carry_out("n1", Subscribe("s1", nodes.token, "a/+", 1))
        found = [await nodes.find_filters("n1") for _ in range(2)]
        await nodes.stores["n1"].do(Subscribe("s1", nodes.token, "a/#", 1))
        return [*found, await nodes.find_filters("n1")]

    assert play(tmp_path, body) == [["a/+"], ["a/+"], ["a/#", "a/+"]]
