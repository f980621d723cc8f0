"""The server dies in the middle: nothing committed is lost, nothing is there twice or half, and its clients go on."""

from __future__ import annotations

import contextlib
import signal
import time

import psycopg
import pytest
from store_programs import OPEN

from statemachines.drivers.shared_subscriptions.postgres import PostgresGroupStore, PostgresStreamStore
from statemachines.drivers.sql.failure import OutcomeOpen
from statemachines.shared_subscriptions.group_store import Read
from statemachines.shared_subscriptions.stream_store import Fetch, Slice, stream_id
from statemachines.testing.postgres import PostgresServer

KEYS = ("k0", "k1", "k2")
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
