"""A process that stands still amid a pipeline of PostgreSQL: whoever waits for its lock ends its session."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress

import psycopg
import pytest

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
