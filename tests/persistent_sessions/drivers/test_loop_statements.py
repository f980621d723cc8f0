"""Statements of PostgreSQL that are sent and answered on the event loop."""

from __future__ import annotations

import asyncio
import signal
from threading import Event

import pytest

from statemachines.drivers.persistent_sessions.postgres import (
    BYTES,
    NUMBER,
    decode_number,
    encode_number,
)
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql.failure import OutcomeOpen, StoreUnavailable
from statemachines.drivers.sql.loop_connection import LoopConnection, Statement
from statemachines.testing.postgres import PostgresServer, run_sql

LENGTH = Statement(b"length", b"SELECT CAST(length($1) AS bigint)", (BYTES,))
ECHO = Statement(b"echo", b"SELECT $1", (BYTES,))
SLEEP = Statement(b"sleep", b"SELECT pg_sleep($1 / 1000.0)", (NUMBER,))
SUMS = Statement(
    b"sums",
    b"SELECT (SELECT sum(one) FROM unnest($1) AS one)::bigint"
    b" + (SELECT sum(coalesce(length(one), 1000)) FROM unnest($2) AS one)::bigint",
    (1016, 1001),
)
WRONG = Statement(b"wrong", b"SELECT 1 / $1", (NUMBER,))
BACKENDS = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()"


def play(url, body):
    """`body(connection, store)` with a connection of these statements."""

    async def main():
        store = open_session_store(url)
        connection = LoopConnection(store._database._database, (LENGTH, ECHO, SLEEP, SUMS, WRONG))
        try:
            return await asyncio.wait_for(body(connection, store), 60)
        finally:
            connection.close()
            await store.close()

    return asyncio.run(main())


def test_PS_590_values_larger_than_the_socket_takes_come_over(postgres_url):
    """So does an answer that is read in many pieces."""

    async def body(connection, store):
        large = bytes(range(256)) * 2**16
        return decode_number(await connection.ask(LENGTH, [large])), await connection.ask(ECHO, [large]) == large

    assert play(postgres_url, body) == (2**24, True)


def test_PS_590_a_connection_that_is_lost_leaves_the_outcome_open(postgres_url):
    """The next statement has another one; so has one behind a connection that was lost while nothing was asked."""

    async def body(connection, store):
        asked = asyncio.ensure_future(connection.ask(SLEEP, [encode_number(30_000)]))
        while not (found := await asyncio.to_thread(run_sql, postgres_url, BACKENDS)):
            await asyncio.sleep(0.01)
        end = f"SELECT pg_terminate_backend({found[0][0]})"
        await asyncio.to_thread(run_sql, postgres_url, end)
        with pytest.raises(OutcomeOpen):
            await asked
        again = await connection.ask(LENGTH, [b"abc"])
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%length($1)%'"
        await asyncio.to_thread(run_sql, postgres_url, end + " AND pid <> pg_backend_pid()")
        while connection._pgconn is not None:
            await asyncio.sleep(0.001)
        return again, await connection.ask(LENGTH, [b"abc"])

    assert [decode_number(one) for one in play(postgres_url, body)] == [3, 3]


def test_PS_590_whoever_is_cancelled_takes_no_answer_of_the_next(postgres_url):
    async def body(connection, store):
        asked = asyncio.ensure_future(connection.ask(ECHO, [b"first"]))
        await asked
        for _ in range(20):
            asked = asyncio.ensure_future(connection.ask(ECHO, [b"cancelled"]))
            await asyncio.sleep(0)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            assert await connection.ask(ECHO, [b"next"]) == b"next"

    play(postgres_url, body)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_PS_625_a_connection_that_is_not_wanted_any_more_is_closed_when_it_is_open(postgres_url, is_cancelled):
    """Nobody waits for it when the worker has opened it; the next statement has another one."""

    async def body(connection, store):
        database = store._database._database
        connect_anew, is_there, may_end, opened = database.connect_anew, Event(), Event(), []

        def connect_slowly():
            opened.append(connect_anew())
            is_there.set()
            may_end.wait(60)
            return opened[-1]

        database.connect_anew = connect_slowly
        asked = asyncio.ensure_future(connection.ask(ECHO, [b"first"]))
        await asyncio.to_thread(is_there.wait, 60)
        if is_cancelled:
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            may_end.set()
        else:
            connection.close()
            may_end.set()
            with pytest.raises(StoreUnavailable, match="closed while it was opened"):
                await asked
        assert await connection.ask(ECHO, [b"next"]) == b"next"
        return [one.closed for one in opened]

    assert play(postgres_url, body) == [True, False]


def test_PS_590_an_error_of_the_server_ends_one_statement(postgres_url):
    """A wrong statement is raised as it is."""

    async def body(connection, store):
        with pytest.raises(Exception, match="division by zero"):
            await connection.ask(WRONG, [encode_number(0)])
        return decode_number(await connection.ask(LENGTH, [b"abc"]))

    assert play(postgres_url, body) == 3


def test_PS_590_a_server_that_is_gone_is_told_from_an_open_outcome():
    """Killed amid a statement the outcome is open; asked while nobody is there nothing is written."""

    async def body(connection, store):
        await connection.ask(LENGTH, [b"abc"])
        asked = asyncio.ensure_future(connection.ask(SLEEP, [encode_number(30_000)]))
        await asyncio.sleep(0.05)
        server.stop(signal.SIGQUIT)
        with pytest.raises(OutcomeOpen):
            await asked
        with pytest.raises(StoreUnavailable):
            await connection.ask(LENGTH, [b"abc"])
        server.start()
        return decode_number(await connection.ask(LENGTH, [b"abc"]))

    with PostgresServer() as server:
        assert play(server.database("loop"), body) == 3
