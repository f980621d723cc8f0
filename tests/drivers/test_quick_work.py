"""Short pieces of work on a SQLite file: done in the loop's thread, and never where they would wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from statemachines.drivers.persistent_sessions.sql import SQLITE
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.sqlite import SqliteDatabase


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


def test_PS_515_with_power_the_worker_waits_for_the_disk(path):
    assert play(path, at_once, durability=Durability.POWER) is False
