"""The server dies in the middle: nothing committed is lost, nothing is there twice or half, and its clients go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import psycopg
import pytest
from store_programs import OPEN, process

from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.sql.failure import OutcomeOpen, StoreUnavailable
from statemachines.shared_subscriptions.group_store import Read
from statemachines.shared_subscriptions.stream_store import Fetch, Slice, stream_id
from statemachines.testing.postgres import PostgresServer

KEYS = ("k0", "k1", "k2")
BATCH = 5

# Each number is committed in all keys on top of the one before, then appended, until that is answered; then it is said.
WRITE = (
    OPEN
    + """
from statemachines.drivers.sql.failure import StoreUnavailable
from statemachines.shared_subscriptions.group_store import StoreFailed

async def read(groups):
    while True:
        (answer,) = await groups.ask(Read(0, ("k0", "k1", "k2")))
        if not isinstance(answer, StoreFailed):
            assert len({stored and stored.value for stored in answer.records}) == 1, "half a commit"
            return answer.records[0]
        await asyncio.sleep(0.02)

async def commit(groups, number):
    before = await read(groups)
    while True:
        (answer,) = await groups.ask(Commit(1, (("k0", before),), tuple((f"k{part}", number) for part in range(3))))
        if isinstance(answer, Committed):
            return
        found = await read(groups)
        if found is not None and found.value == number:
            return
        assert found == before, "somebody else wrote"

async def append(streams, number):
    while True:
        try:
            return await streams.append("t", [b"%08d" % number * 100] * 5)
        except StoreUnavailable as error:
            assert "nothing was written" in str(error), error
            await asyncio.sleep(0.02)

async def main():
    groups, streams = open_both()
    number = 0
    while True:
        number += 1
        await commit(groups, number)
        await append(streams, number)
        os.write(1, b"%d\\n" % number)

asyncio.run(main())
"""
)


OURS = "FROM pg_stat_activity WHERE application_name = 'gapless'"


def asked(server, statement):
    """The rows, as soon as the server has recovered and there are some."""
    while True:
        with contextlib.suppress(psycopg.OperationalError):
            rows = server.sql(statement)
            if rows:
                return rows
        time.sleep(0.01)


def kill_a_backend(server):
    """SIGKILL to whoever serves the client: the server then cuts everybody off and recovers."""
    ((pid,), *_) = asked(server, f"SELECT pid {OURS}")
    os.kill(pid, signal.SIGKILL)


def cut_off(server):
    asked(server, f"SELECT pg_terminate_backend(pid) {OURS}")


def crash(server):
    server.crash()
    server.start()


def kill(server):
    server.stop(signal.SIGKILL)
    server.start()


@pytest.fixture(scope="module")
def own_server():
    with PostgresServer() as server:
        yield server


@pytest.fixture
def server(own_server):
    """A server that runs, whatever the test before has done to it."""
    own_server.stop()
    own_server.start()
    return own_server


async def look(url):
    groups, streams = PostgresGroupStore(url), PostgresStreamStore(url)
    (read,) = await groups.ask(Read(1, KEYS))
    _, (payloads,) = await streams.fetch(Fetch(1, (Slice(stream_id("t", 4, 0), 1, 0, 10**6),)))
    await groups.close()
    await streams.close()
    return {stored.value for stored in read.records}, [payload for payload, _ in payloads]


@pytest.mark.parametrize("rounds", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_server_that_dies_loses_nothing_and_its_clients_go_on(server, rounds):
    url = server.database(f"dies_{rounds}")
    said = []
    with process(WRITE, url) as child:

        def hear(count):
            said.extend(int(child.stdout.readline()) for _ in range(count))

        hear(3)
        for number, dies in enumerate((crash, kill_a_backend, cut_off, kill) * rounds):
            hear(2 + number % 3)
            dies(server)
            hear(1)
        child.kill()
        said.extend(int(line) for line in child.stdout.read().splitlines())
    assert said == list(range(1, len(said) + 1))
    values, payloads = asyncio.run(look(url))
    numbers = [int(payload[:8]) for payload in payloads]
    assert numbers[: BATCH * len(said)] == [number for number in said for _ in range(BATCH)], "each once, in order"
    assert numbers[BATCH * len(said) :] in ([], [len(said) + 1] * BATCH)
    assert values in ({len(said)}, {len(said) + 1})


# -- an append whose connection is lost -----------------------------------------------------------------------------


class Lost(PostgresStreamStore):
    """A store whose appends lose their connection: `when` is "before" or "after" the commit."""

    when = ""

    def __init__(self, url, server):
        super().__init__(url)
        self.server = server

    def _try_append(self, *given):
        engine = self._database._engine
        if self.when == "before":
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine.dialect, "do_commit", lambda connection: cut(self.server, connection))
                super()._try_append(*given)
        elif self.when == "after":
            commit = engine.dialect.do_commit

            def commit_and_cut(connection):
                commit(connection)
                cut(self.server, connection)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(engine.dialect, "do_commit", commit_and_cut)
                super()._try_append(*given)
        else:
            super()._try_append(*given)


def cut(server, connection):
    """The connection is lost, and the client hears of it."""
    server.sql(f"SELECT pg_terminate_backend({connection.driver_connection.info.backend_pid}, 5000)")
    connection.driver_connection.execute("SELECT 1")


@pytest.mark.parametrize("topic", ["new", "known"])
async def test_an_append_whose_connection_was_lost_knows_whether_it_happened(server, topic):
    store = Lost(server.database(f"lost_{topic}"), server)
    await store.append("known", [b"1"])
    first = 1 if topic == "known" else 0
    store.when = "before"
    with pytest.raises(StoreUnavailable, match="nothing was written, try again") as raised:
        await store.append(topic, [b"lost"])
    assert not isinstance(raised.value, OutcomeOpen)
    store.when = "after"
    appended = await store.append(topic, [b"2", b"3"])
    assert (appended.first, appended.last) == (first, first + 1)
    store.when = ""
    assert (await store.append(topic, [b"4"])).first == first + 2
    _, (payloads,) = await store.fetch(Fetch(1, (Slice(appended.stream, 1, first, 9),)))
    assert payloads == [(b"2", None), (b"3", None), (b"4", None)]
    await store.close()


async def test_an_append_stays_open_where_the_server_does_not_come_back(server, monkeypatch):
    monkeypatch.setattr("statemachines.drivers.shared_subscriptions.postgres.stream_store.PATIENCE_S", 0.2)
    store = Lost(server.database("open"), server)

    def cut_and_stop(server, connection):
        server.crash()
        connection.driver_connection.execute("SELECT 1")

    monkeypatch.setitem(globals(), "cut", cut_and_stop)
    await store.append("t", [b"1"])
    store.when = "after"
    with pytest.raises(OutcomeOpen, match=r"@127.0.0.1:\d+/open: .*outcome of this one is open"):
        await store.append("t", [b"2"])
    await store.close()
