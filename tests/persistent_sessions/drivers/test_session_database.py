"""Statements of PostgreSQL that are sent and answered on the event loop.

A database that keeps its connections open and never answers, as a stopped pooler does (SS-432, PS-773).

Two versions of a store at once: a made-up next one beside this one, in both directions.

A process that stands still amid a pipeline of PostgreSQL: whoever waits for its lock ends its session.
"""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from threading import Event

import psycopg
import pytest
from psycopg.errors import QueryCanceled
from session_databases import SECOND, Clock
from test_session_operation import drive
from waiting import HANG_S, run_async, turns, until_async

from statemachines.drivers import persistent_sessions
from statemachines.drivers.persistent_sessions.host_requests import Beat
from statemachines.drivers.persistent_sessions.postgres import BYTES, NUMBER, decode_number, encode_number
from statemachines.drivers.persistent_sessions.route_rows import PutMessage
from statemachines.drivers.persistent_sessions.sql import NAMES, VERSION
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.shared_subscriptions.open_stores import open_stores
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.sql import postgres as sql_postgres
from statemachines.drivers.sql import silent_server
from statemachines.drivers.sql.failure import OutcomeOpen, StoreUnavailable
from statemachines.drivers.sql.loop_connection import LoopConnection, Statement
from statemachines.drivers.sql.store_version import Upgrade
from statemachines.kernel import ConfigurationError, Superseded
from statemachines.shared_subscriptions.group_store import Read, ReadDone, StoreFailed
from statemachines.shared_subscriptions.stream_store import Fetch, Fetched, FetchFailed
from statemachines.testing.fault_proxy import FaultProxy
from statemachines.testing.postgres import run_sql

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


@asynccontextmanager
async def open_connection(url):
    """(A connection of these statements, its store)."""
    store = open_session_store(url)
    connection = LoopConnection(store._database._database, (LENGTH, ECHO, SLEEP, SUMS, WRONG))
    try:
        yield connection, store
    finally:
        connection.close()
        await store.close()


async def test_PS_590_values_larger_than_the_socket_takes_come_over(postgres_url):
    """So does an answer that is read in many pieces."""

    async with open_connection(postgres_url) as (connection, _store):
        large = bytes(range(256)) * 2**16
        assert (decode_number(await connection.ask(LENGTH, [large])), await connection.ask(ECHO, [large]) == large) == (
            2**24,
            True,
        )


async def test_PS_590_a_connection_that_is_lost_leaves_the_outcome_open(postgres_url):
    """The next statement has another one; so has one behind a connection that was lost while nothing was asked."""

    async with open_connection(postgres_url) as (connection, _store):
        asked = asyncio.ensure_future(connection.ask(SLEEP, [encode_number(30_000)]))
        found = await until_async(lambda: asyncio.to_thread(run_sql, postgres_url, BACKENDS))
        end = f"SELECT pg_terminate_backend({found[0][0]})"
        await asyncio.to_thread(run_sql, postgres_url, end)
        with pytest.raises(OutcomeOpen):
            await asked
        again = await connection.ask(LENGTH, [b"abc"])
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%length($1)%'"
        await asyncio.to_thread(run_sql, postgres_url, end + " AND pid <> pg_backend_pid()")
        await until_async(lambda: connection._pgconn is None)
        assert [decode_number(one) for one in (again, await connection.ask(LENGTH, [b"abc"]))] == [3, 3]


async def test_PS_590_whoever_is_cancelled_takes_no_answer_of_the_next(postgres_url):
    async with open_connection(postgres_url) as (connection, _store):
        asked = asyncio.ensure_future(connection.ask(ECHO, [b"first"]))
        await asked
        for _ in range(20):
            asked = asyncio.ensure_future(connection.ask(ECHO, [b"cancelled"]))
            await turns()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            assert await connection.ask(ECHO, [b"next"]) == b"next"


@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_PS_625_a_connection_that_is_not_wanted_any_more_is_closed_when_it_is_open(postgres_url, is_cancelled):
    """Nobody waits for it when the worker has opened it; the next statement has another one."""

    async with open_connection(postgres_url) as (connection, store):
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
        assert [one.closed for one in opened] == [True, False]


async def test_PS_590_an_error_of_the_server_ends_one_statement(postgres_url):
    """A wrong statement is raised as it is."""

    async with open_connection(postgres_url) as (connection, _store):
        with pytest.raises(Exception, match="division by zero"):
            await connection.ask(WRONG, [encode_number(0)])
        assert decode_number(await connection.ask(LENGTH, [b"abc"])) == 3


SILENT_SERVER_ECHO = Statement(b"echo", b"SELECT CAST($1 AS bigint)", (20,))
PUT = PutMessage("m1", "t", b"x", 1)


class SilentProxy(FaultProxy):
    """No probe comes through while it blocks, so none is waited for; otherwise a busy machine is waited for."""

    def block(self):
        silent_server.PROBE_S = 0.5
        super().block()

    def heal(self):
        silent_server.PROBE_S = HANG_S
        super().heal()


@pytest.fixture
def proxied(postgres_url, monkeypatch):
    """`play(body)`: `body(proxy, url)` with a proxy before the server."""
    monkeypatch.setattr(silent_server, "ANSWER_S", 0.05)
    monkeypatch.setattr(silent_server, "PROBE_S", HANG_S)
    front, _, rest = postgres_url.partition("@")
    address, _, database = rest.partition("/")
    host, _, port = address.partition(":")

    def play(body):
        async def main():
            async with SilentProxy((host, int(port))) as proxy:
                url = f"{front}@127.0.0.1:{proxy.address[1]}/{database}?sslmode=disable&gssencmode=disable"
                await body(proxy, url)

        run_async(main())

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
    connection = LoopConnection(store._database._database, (SILENT_SERVER_ECHO,))
    yield lambda: connection.ask(SILENT_SERVER_ECHO, [encode_number(7)])
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
        connection = LoopConnection(database, (SILENT_SERVER_ECHO,))
        await connection.ask(SILENT_SERVER_ECHO, [encode_number(7)])
        call = partial(connection.ask, SILENT_SERVER_ECHO, [encode_number(7)]) if on_loop else partial(store.do, PUT)
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


ADDED = (
    *(f"ALTER TABLE @{table} ADD COLUMN added NUMBER NOT NULL DEFAULT 7" for table in NAMES),
    "CREATE TABLE @more (one NUMBER PRIMARY KEY)",
)
"""A column in every table, and a table."""


@contextmanager
def next_version(is_additive=True, statements=ADDED):
    """What opens a store within is of the next version."""
    before = persistent_sessions.sqlite.SQLITE, persistent_sessions.postgres.LAYOUT
    for module, name, schema, number in (
        (persistent_sessions.sqlite, "SQLITE", "", "INTEGER"),
        (persistent_sessions.postgres, "LAYOUT", "gapless_sessions.", "bigint"),
    ):
        made = tuple(one.replace("@", schema).replace("NUMBER", number) for one in statements)
        layout = getattr(module, name)
        upgrades = {VERSION: Upgrade(made, is_additive)}
        setattr(module, name, layout._replace(version=VERSION + 1, upgrades=upgrades))
    try:
        yield
    finally:
        persistent_sessions.sqlite.SQLITE, persistent_sessions.postgres.LAYOUT = before


def open_next(url, is_additive=True, **given):
    with next_version(is_additive):
        return open_session_store(url, **given)


async def test_PS_542_every_statement_of_this_version_works_in_a_store_of_the_next(url, monkeypatch):
    monkeypatch.setattr(persistent_sessions.route_rows, "RETAINED_MAX", 1)
    clock, steady = Clock(), Clock()
    await open_session_store(url, clock=clock).close()
    await open_next(url, clock=clock).close()
    opened = open_session_store(url, clock=clock, steady=steady, boot="one")
    try:
        await drive(opened, clock, steady)
    finally:
        await opened.close()
    await open_next(url, clock=clock).close()  # the older program has left its version as it is


def test_PS_541_a_program_that_is_too_old_is_refused_and_told_what_it_needs(url):
    asyncio.run(open_session_store(url).close())
    asyncio.run(open_next(url, is_additive=False).close())
    with pytest.raises(ConfigurationError, match="needs a gapless with tables of version 2 or later; this one has ver"):
        open_session_store(url)
    asyncio.run(open_next(url, is_additive=False).close())


def test_PS_541_a_store_that_is_too_old_to_be_upgraded_is_refused(url):
    asyncio.run(open_session_store(url).close())
    with next_version():
        for module, name in ((persistent_sessions.sqlite, "SQLITE"), (persistent_sessions.postgres, "LAYOUT")):
            layout = getattr(module, name)
            upgrades = {VERSION + 1: layout.upgrades[VERSION]}
            setattr(module, name, layout._replace(version=VERSION + 2, upgrades=upgrades))
        with pytest.raises(ConfigurationError, match="is of version 1, and this gapless upgrades none of before 2"):
            open_session_store(url)


async def test_PS_543_a_node_that_may_run_is_named_and_one_that_stood_still_is_superseded(url):
    clock = Clock()
    old = open_session_store(url, clock=clock)
    life = await old.begin_life("the old one", 10_000)
    with pytest.raises(ConfigurationError, match=r"nodes may still run \(the old one\); version 2 does not go bes"):
        open_next(url, is_additive=False, clock=clock)
    await old.carry_out(life, 1, [Beat("the old one", 10_000)])
    clock.now += 11 * SECOND
    await open_next(url, is_additive=False, clock=clock).close()
    with pytest.raises(Superseded):
        await old.carry_out(life, 2, [Beat("the old one", 10_000)])
    await old.close()


def test_PS_541_an_upgrade_that_fails_leaves_the_store_as_it_was(url):
    asyncio.run(open_session_store(url).close())
    with next_version(statements=(*ADDED, "CREATE TABLE @more (two NUMBER)")), pytest.raises(ConfigurationError):
        open_session_store(url)
    asyncio.run(open_session_store(url).close())
    asyncio.run(open_next(url).close())


# -- an opening that is cut off between two statements --------------------------------------------------------------


def interrupt_openings(monkeypatch, interrupt, times=1):
    """Call `interrupt(connection)` when an opening has made or upgraded its tables, so often; each call of it."""
    calls, real = [], sql_postgres.PostgresLayout.missing_privileges

    def look(layout, connection, kind):
        calls.append(kind)
        if len(calls) <= times:
            interrupt(connection)
        return real(layout, connection, kind)

    monkeypatch.setattr(sql_postgres.PostgresLayout, "missing_privileges", look)
    return calls


def end_session(url):
    """What ends the server's session of a connection, as the server does where its process stood still."""

    def end(connection):
        backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        run_sql(url, f"SELECT pg_terminate_backend({backend}, 5000)")

    return end


@pytest.mark.parametrize("times", [1, sql_postgres.OPENINGS - 1])
def test_PS_690_an_opening_whose_connection_is_cut_between_two_statements_is_tried_again(
    postgres_url, monkeypatch, times
):
    calls = interrupt_openings(monkeypatch, end_session(postgres_url), times)
    asyncio.run(open_session_store(postgres_url).close())
    assert len(calls) == times + 1


HOLDER = """
import signal, sys
from statemachines.drivers.persistent_sessions import store
opened = store.open_session_store(sys.argv[1])
with opened._database.writing() as sql:
    sql.all("SELECT 1")
    sql.run("UPDATE @store SET routes = routes")
    print("holds", flush=True)
    signal.pause()
"""


@pytest.fixture
def holder(postgres_url):
    """A process of ours that has its turn, and does nothing more."""
    child = subprocess.Popen([sys.executable, "-c", HOLDER, postgres_url], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"holds\n"
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_PS_711_a_store_is_opened_although_a_process_stands_still_that_opens_it(postgres_url):
    asyncio.run(close_at_once(postgres_url))
    with (
        suppress(psycopg.OperationalError),  # its session has ended
        psycopg.connect(postgres_url, application_name="gapless") as other,
        other.pipeline(),
    ):
        other.execute("SELECT pg_advisory_xact_lock(%s)", (0x67707331,)).fetchone()
        with pytest.raises(StoreUnavailable):
            asyncio.run(close_at_once(postgres_url))
        asyncio.run(close_at_once(postgres_url))


async def close_at_once(url):
    await (await asyncio.to_thread(open_session_store, url)).close()
