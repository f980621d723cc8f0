"""Short pieces of work on a SQLite file: done in the loop's thread, and never where they would wait."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest

from statemachines.drivers.persistent_sessions.tables import SQLITE
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.sqlite import CHECKPOINT_PAGES, IN_A_ROW, SqliteDatabase


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


def play(path, body, **given):
    async def main():
        database = SqliteDatabase(path, SQLITE, **given)
        try:
            return await body(database)
        finally:
            await database.close()

    return asyncio.run(main())


def at_once(database):
    """Whether this piece of work is done in the thread that asks."""

    def work():
        with database.transaction() as connection:
            connection.execute("UPDATE store SET time_ns = time_ns + 1")
        return threading.current_thread() is threading.main_thread()

    return database.run(work, is_short=True)


def test_PS_515_a_short_piece_is_done_at_once_and_the_worker_has_its_turn(path):
    async def body(database):
        found = [await at_once(database) for _ in range(IN_A_ROW + 3)]
        ((time_ns,),) = await database.run(lambda: database.connection.execute("SELECT time_ns FROM store").fetchall())
        return found, time_ns

    found, time_ns = play(path, body)
    assert found == [True] * IN_A_ROW + [False] + [True] * 2
    assert time_ns == IN_A_ROW + 3


def test_PS_515_with_power_the_worker_waits_for_the_disk(path):
    assert play(path, at_once, durability=Durability.POWER) is False


def test_PS_515_with_power_what_only_reads_is_done_at_once(path):
    async def body(database):
        return await database.run(
            lambda: threading.current_thread() is threading.main_thread(), is_short=True, is_read=True
        )

    assert play(path, body, durability=Durability.POWER) is True


def test_PS_515_behind_other_work_a_short_piece_waits_its_turn(path):
    """The connection is in one thread at a time."""

    async def body(database):
        started, ends = threading.Event(), threading.Event()
        done = []

        def work():
            started.set()
            ends.wait(20)
            done.append("long")

        long = asyncio.ensure_future(database.run(work))
        await asyncio.to_thread(started.wait, 20)
        short = asyncio.ensure_future(database.run(lambda: done.append("short"), is_short=True))
        await asyncio.sleep(0)
        assert done == []
        ends.set()
        await asyncio.gather(long, short)
        return done

    assert play(path, body) == ["long", "short"]


def test_PS_515_a_locked_file_is_waited_for_by_the_worker(path):
    """The loop goes on meanwhile; and nothing of the first attempt is left."""

    async def body(database):
        assert await at_once(database)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(at_once(database))
            for _ in range(3):
                await asyncio.sleep(0)
            assert not waiting.done()
            other.execute("ROLLBACK")
            assert await waiting is False
        ((timeout,),) = await database.run(lambda: database.connection.execute("PRAGMA busy_timeout").fetchall())
        ((checkpoint,),) = await database.run(
            lambda: database.connection.execute("PRAGMA wal_autocheckpoint").fetchall()
        )
        return timeout, checkpoint, await database.run(lambda: database._last_ns())

    assert play(path, body, busy_s=7.0) == (7_000, CHECKPOINT_PAGES, 2)
