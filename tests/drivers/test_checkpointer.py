"""Checkpoints of a SQLite file beside the connection that commits: none is waited for, and the log stays bounded."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import asynccontextmanager, closing, contextmanager

import pytest

from statemachines.drivers.persistent_sessions.tables import SQLITE
from statemachines.drivers.sql import checkpointer
from statemachines.drivers.sql.checkpointer import ROWS, Checkpointer
from statemachines.drivers.sql.durability import Durability
from statemachines.drivers.sql.sqlite import Database

PAGE = 4096
COUNT = "SELECT count(*) FROM messages"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s.db"


@asynccontextmanager
async def opened(path, **given):
    database = Database(path, SQLITE, **given)
    try:
        yield database
    finally:
        await database.close()


@contextmanager
def connected(path):
    """A connection that has the log open: to close another one leaves it as it is."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(COUNT).fetchall()
        yield connection


async def store(database, first, last, *, is_short=False):
    """A message of a page in each transaction."""
    for number in range(first, last):

        def work(number=number):
            with database.transaction() as connection:
                values = (b"%d" % number, b"t", bytes(PAGE), 1, number)
                connection.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?, NULL)", values)

        await database.run(work, is_short=is_short)


def log_pages(path):
    return path.with_name(f"{path.name}-wal").stat().st_size // PAGE


@pytest.mark.parametrize("durability", Durability)
def test_PS_570_the_log_is_copied_beside_the_commits(path, tmp_path, durability):
    """The file alone has what was committed before."""

    async def main():
        async with opened(path, durability=durability) as database:
            await store(database, 0, ROWS - 1)
            with connected(path):
                before = shutil.copy(path, tmp_path / "before.db")
                await store(database, ROWS - 1, ROWS)
                await database.close()
                return before, shutil.copy(path, tmp_path / "after.db")

    found = []
    for copy in asyncio.run(main()):
        with closing(sqlite3.connect(copy)) as connection:
            tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'messages'").fetchone()
            found.append(connection.execute(COUNT).fetchone()[0] if tables[0] else 0)
    assert found == [0, ROWS]


@pytest.mark.parametrize("is_short", [False, True])
def test_PS_570_a_log_that_is_full_is_emptied_between_transactions(path, monkeypatch, is_short):
    monkeypatch.setattr(checkpointer, "LOG_BYTES_MAX", 50 * PAGE)

    async def main():
        async with opened(path) as database:
            sizes = []
            for number in range(300):
                await store(database, number, number + 1, is_short=is_short)
                sizes.append(log_pages(path))
            return max(sizes)

    assert 40 <= asyncio.run(main()) < 70


def test_PS_570_a_log_that_somebody_reads_grows_until_it_is_read_no_longer(path, monkeypatch):
    monkeypatch.setattr(checkpointer, "LOG_BYTES_MAX", 50 * PAGE)

    async def main():
        async with opened(path, busy_s=1_000.0) as database:
            with connected(path) as reader:
                reader.execute("BEGIN")
                reader.execute(COUNT).fetchall()
                await store(database, 0, 200)
                grown = log_pages(path)
                reader.execute("COMMIT")
                await store(database, 200, 201)
                return grown, log_pages(path)

    grown, later = asyncio.run(main())
    assert grown >= 400
    assert later == 0


def test_PS_570_no_checkpoint_begins_where_nothing_was_committed_since_the_last(path, monkeypatch):
    """A commit that begins the log anew beside it could damage the file."""
    monkeypatch.setattr(checkpointer, "ROWS", 1)
    begun = []
    copy_log = Checkpointer._copy_log

    def note(self, how):
        begun.append(how)
        copy_log(self, how)

    monkeypatch.setattr(Checkpointer, "_copy_log", note)

    async def main():
        async with opened(path) as database:

            def undo():
                with database.transaction() as connection:
                    connection.execute("INSERT INTO messages VALUES (x'00', x'00', x'00', 1, 0, NULL)")
                    raise KeyError

            def look():
                with database.snapshot() as connection:
                    return connection.execute(COUNT).fetchone()[0]

            await store(database, 0, 1)
            for _ in range(20):
                with pytest.raises(KeyError):
                    await database.run(undo)
                assert await database.run(look) == 1

    asyncio.run(main())
    assert begun == ["PASSIVE"]


CHILD = """
import asyncio, sys
from pathlib import Path
from test_checkpointer import opened, store
from statemachines.drivers.sql import checkpointer
from statemachines.drivers.sql.durability import Durability

async def main(path, first, durability):
    async with opened(Path(path), durability=Durability(durability)) as database:
        for number in range(first, 1_000_000):
            await store(database, number, number + 1, is_short=True)
            print(number, flush=True)

checkpointer.ROWS, checkpointer.LOG_BYTES_MAX = 3, 20 * 4096
asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
"""


@pytest.mark.parametrize("durability", Durability)
def test_PS_570_a_process_that_is_killed_amid_checkpoints_has_lost_nothing(path, durability):
    first = 0
    for round_ in range(3):
        command = [sys.executable, "-c", CHILD, str(path), str(first), durability.value]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=__file__.rpartition("/")[0], text=True) as child:
            for _ in range(200 + 31 * round_):
                answered = int(child.stdout.readline())
            child.kill()
            answered = max([answered, *(int(line) for line in child.stdout if line.endswith("\n"))])
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            (stored,) = connection.execute(COUNT).fetchone()
        assert answered < stored <= answered + 2
        first = stored
