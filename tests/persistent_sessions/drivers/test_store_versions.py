"""Two versions of a store at once: a made-up next one beside this one, in both directions."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest
from session_databases import SECOND, Clock
from test_session_plans import drive

from statemachines.drivers import persistent_sessions
from statemachines.drivers.persistent_sessions.host_requests import Beat
from statemachines.drivers.persistent_sessions.sql import NAMES, VERSION
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql import postgres as sql_postgres
from statemachines.drivers.sql.store_version import Upgrade
from statemachines.kernel import ConfigurationError, Superseded
from statemachines.testing.postgres import run_sql

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


def test_PS_542_nodes_of_two_versions_serve_one_store_at_a_time(url):
    """The older one runs while the store is upgraded, and is started again; what either stores the other delivers."""

    async def publish(node, *payloads):
        async with persistent_sessions.SessionPublisher(node=node) as publisher:
            for payload in payloads:
                await publisher.publish("t", payload)

    async def take(node, count):
        async with persistent_sessions.PersistentSession("c", node=node) as session:
            await session.subscribe("t")
            found = []
            while len(found) < count:
                message = await anext(session)
                message.acknowledge()
                found.append(message.payload)
            return found

    async def body():
        async with persistent_sessions.SessionNode(url, name="old") as old:
            await take(old, 0)
            await publish(old, b"1")
            with next_version():
                new = await persistent_sessions.SessionNode(url, name="new").__aenter__()
            await publish(new, b"2")
            await publish(old, b"3")
            found = [await take(new, 3)]
            await publish(old, b"4")
            await publish(new, b"5")
            found.append(await take(old, 2))
            await publish(new, b"6")
        async with persistent_sessions.SessionNode(url, name="old") as old:
            await publish(old, b"7")
            found.append(await take(old, 2))
        await new.__aexit__(None, None, None)
        return found

    assert asyncio.run(body()) == [[b"1", b"2", b"3"], [b"4", b"5"], [b"6", b"7"]]


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
