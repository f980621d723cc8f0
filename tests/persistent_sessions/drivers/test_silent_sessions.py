"""A process that stands still amid a pipeline of PostgreSQL: whoever waits for its lock ends its session."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import time
from contextlib import suppress

import psycopg
import pytest

from statemachines.drivers.persistent_sessions.host_request import PutMessage
from statemachines.drivers.persistent_sessions.postgres import ALONE
from statemachines.drivers.persistent_sessions.store import open_session_store
from statemachines.drivers.sql.failure import StoreUnavailable

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


def test_PS_711_who_waits_for_a_lock_ends_sessions_that_stand_still_amid_a_pipeline(postgres_url, holder, caplog):
    async def body():
        store = open_session_store(postgres_url)
        try:
            for attempt in range(3):
                try:
                    await store.do(PutMessage("m1", "t", b"x", 1))
                except StoreUnavailable:
                    continue
                return attempt
        finally:
            await store.close()
        raise AssertionError("it holds its lock for ever")

    with caplog.at_level(logging.WARNING, logger="gapless"):
        assert asyncio.run(body()) >= 1, "it had the lock"
    assert "said nothing for 2 s amid a transaction, and were ended" in caplog.text


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


def test_PS_711_a_session_that_goes_on_and_one_of_another_program_are_left_alone(postgres_url):
    """They are waited for, and nobody ends them."""
    asyncio.run(close_at_once(postgres_url))
    statement = ALONE.removeprefix("SELECT ").removesuffix(")")
    with psycopg.connect(postgres_url, application_name="mine") as theirs, theirs.pipeline():
        theirs.execute(f"SELECT {statement})").fetchone()
        time.sleep(2.1)

        async def body():
            store = open_session_store(postgres_url)
            try:
                with pytest.raises(StoreUnavailable, match="lock timeout"):
                    await store.do(PutMessage("m1", "t", b"x", 1))
            finally:
                await store.close()

        asyncio.run(body())
        assert theirs.execute("SELECT 1").fetchone() == (1,)
