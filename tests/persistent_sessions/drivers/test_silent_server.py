"""A database that keeps its connections open and never answers, as a stopped pooler does (SS-432, PS-773)."""

from __future__ import annotations

import asyncio
from functools import partial

import psycopg
import pytest
from psycopg.errors import QueryCanceled

from statemachines.drivers.persistent_sessions.postgres import encode_number
from statemachines.drivers.persistent_sessions.route_rows import PutMessage
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.sql import silent_server
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.drivers.sql.loop_connection import LoopConnection, Statement
from statemachines.shared_subscriptions.group_store import Read, ReadDone, StoreFailed
from statemachines.shared_subscriptions.stream_store import Fetch, Fetched, FetchFailed
from statemachines.testing.fault_proxy import FaultProxy

ECHO = Statement(b"echo", b"SELECT CAST($1 AS bigint)", (20,))
PUT = PutMessage("m1", "t", b"x", 1)
PATIENCE_S = 60
"""A call that has no limit of its own fails the test after that."""


class SilentProxy(FaultProxy):
    """No probe comes through while it blocks, so none is waited for; otherwise a busy machine is waited for."""

    def block(self):
        silent_server.PROBE_S = 0.5
        super().block()

    def heal(self):
        silent_server.PROBE_S = PATIENCE_S
        super().heal()


@pytest.fixture
def proxied(postgres_url, monkeypatch):
    """`play(body)`: `body(proxy, url)` with a proxy before the server."""
    monkeypatch.setattr(silent_server, "ANSWER_S", 0.05)
    monkeypatch.setattr(silent_server, "PROBE_S", PATIENCE_S)
    front, _, rest = postgres_url.partition("@")
    address, _, database = rest.partition("/")
    host, _, port = address.partition(":")

    def play(body):
        async def main():
            async with SilentProxy((host, int(port))) as proxy:
                url = f"{front}@127.0.0.1:{proxy.address[1]}/{database}?sslmode=disable&gssencmode=disable"
                await asyncio.wait_for(body(proxy, url), PATIENCE_S)

        asyncio.run(main())

    return play


async def publish(url):
    async with Publisher(url, patience_s=5) as publisher:
        yield lambda: publisher.publish("t", [b"x"])


async def fetch(url):
    stores = await asyncio.to_thread(open_stores, url)
    await stores.streams.append("t", [b"x"])
    yield lambda: check(stores.streams.fetch(Fetch(1, ())), Fetched, FetchFailed)
    await stores.streams.close()
    await stores.groups.close()


async def look(url):
    stores = await asyncio.to_thread(open_stores, url)
    yield lambda: check(stores.groups.ask(Read(1, "k")), ReadDone, StoreFailed)
    await stores.streams.close()
    await stores.groups.close()


async def put(url):
    store = await asyncio.to_thread(open_session_store, url)
    yield lambda: store.do(PUT)
    await store.close()


async def ask_on_loop(url):
    store = await asyncio.to_thread(open_session_store, url)
    connection = LoopConnection(store._database._database, (ECHO,))
    yield lambda: connection.ask(ECHO, [encode_number(7)])
    connection.close()
    await store.close()


async def check(asked, right, failed):
    answer, *_ = await asked
    if isinstance(answer, failed):
        raise StoreUnavailable("")
    assert isinstance(answer, right)


@pytest.mark.parametrize("calls", [publish, fetch, look, put, ask_on_loop])
def test_SS_432_PS_773_a_call_that_is_never_answered_fails_and_the_next_one_connects_anew(proxied, calls):
    async def body(proxy, url):
        async for call in calls(url):
            await call()
            proxy.block()
            with pytest.raises(StoreUnavailable):
                await call()
            proxy.heal()
            await call()
            proxy.block()  # and it is closed all the same

    proxied(body)


@pytest.mark.parametrize("on_loop", [False, True])
def test_SS_432_PS_773_a_connection_that_works_does_not_speak_for_one_that_is_silent(proxied, postgres_url, on_loop):
    arguments = {"conninfo": postgres_url.replace("+psycopg", "")}

    async def body(proxy, url):
        store = await asyncio.to_thread(open_session_store, url)
        database = store._database._database
        connection = LoopConnection(database, (ECHO,))
        await connection.ask(ECHO, [encode_number(7)])
        call = partial(connection.ask, ECHO, [encode_number(7)]) if on_loop else partial(store.do, PUT)
        with psycopg.connect(**arguments) as other:
            database.connections.note(other, arguments)
            works = asyncio.get_running_loop().run_in_executor(None, other.execute, "SELECT pg_sleep(60)")
            FaultProxy.block(proxy)  # and what is asked of the server comes through
            with pytest.raises(StoreUnavailable):
                await call()
            other.cancel()
            with pytest.raises(QueryCanceled):
                await works
        connection.close()
        await store.close()

    proxied(body)
