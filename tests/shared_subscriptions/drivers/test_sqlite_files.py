"""Opening a database: every file that cannot be used is refused by name, and several processes may open one at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from statemachines.drivers.shared_subscriptions.sqlite import (
    SqliteGroupStore,
    SqliteStreamStore,
    StoreDamaged,
    StoreUnavailable,
)
from statemachines.drivers.sql import sqlite as opening
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import Commit, Committed
from statemachines.shared_subscriptions.stream_store import ListStreams

NOBODY = 65534
"""A user who may write nothing."""


def make(path):
    asyncio.run(SqliteStreamStore(path).close())


def execute(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)


def make_newer(path):
    make(path)
    execute(path, "PRAGMA user_version = 589833")


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda path: path.write_text("hello " * 100), "is not a database; give a path where there is none yet"),
        (lambda path: execute(path, "CREATE TABLE theirs (x)"), "another program; give a path of its own"),
        (lambda path: execute(path, "PRAGMA user_version = 1"), "another program; give a path of its own"),
        (lambda path: execute(path, "PRAGMA application_id = 7"), "another program; give a path of its own"),
        (make_newer, "is of version 9, and needs a gapless with tables of version 9 or later; this one has version 1"),
        (lambda path: path.mkdir(), "is a directory; give the path of a file"),
    ],
)
@pytest.mark.parametrize("store", [SqliteGroupStore, SqliteStreamStore])
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path, prepare, says, store):
    path = tmp_path / "x.db"
    prepare(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(ConfigurationError, match=says) as raised:
        store(path)
    assert raised.value.key == "store"
    assert raised.value.value == str(path)
    assert path.is_dir() if before is None else path.read_bytes() == before


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"there is no directory '.*none'; make it") as raised:
        SqliteGroupStore(tmp_path / "none" / "x.db")
    assert raised.value.value == str(tmp_path / "none" / "x.db")


@contextmanager
def unprivileged():
    """The superuser may write everywhere, so be somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def read_only():
    """A directory that everybody may read and nobody may write, with one database of ours in it."""
    with tempfile.TemporaryDirectory() as directory:
        make(Path(directory) / "ours.db")
        (Path(directory) / "ours.db").chmod(0o444)
        os.chmod(directory, 0o555)
        yield Path(directory)
        os.chmod(directory, 0o755)


@pytest.mark.parametrize("name", ["ours.db", "new.db"])
def test_what_may_not_be_written_is_refused_when_it_is_opened(read_only, name):
    with (
        unprivileged(),
        pytest.raises(ConfigurationError, match=r"cannot be opened for writing \(.*must be writable") as raised,
    ):
        SqliteGroupStore(read_only / name)
    assert name in str(raised.value)


def test_a_path_that_means_something_else_to_sqlite_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(":memory:")
    assert (tmp_path / ":memory:").stat().st_size > 0


def test_a_file_that_stays_locked_while_it_is_opened_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "OPEN_S", 0.05)
    path = tmp_path / "x.db"
    make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"is locked.*; try again when it is done"):
            SqliteGroupStore(path, busy_s=0.01)


def test_opening_waits_longer_than_a_transaction(tmp_path):
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other, ThreadPoolExecutor(1) as worker:
        other.execute("BEGIN EXCLUSIVE")
        opened = worker.submit(SqliteGroupStore, path, busy_s=0.01)
        with pytest.raises(TimeoutError):
            opened.result(timeout=0.2)
        other.execute("ROLLBACK")
        asyncio.run(opened.result().close())


def test_what_was_written_is_there_after_reopening(tmp_path):
    async def run():
        store = SqliteGroupStore(tmp_path / "x.db")
        (first,) = await store.ask(Commit(1, (), (("k", 1),)))
        await store.close()
        store = SqliteGroupStore(tmp_path / "x.db", clock=lambda: 0)
        (second,) = await store.ask(Commit(2, (), (("k", 2),)))
        await store.close()
        return first, second

    first, second = asyncio.run(run())
    assert isinstance(first, Committed)
    assert second.stamp == first.stamp + 1, "the store's time goes on although the clock was set back"


def test_a_file_that_is_made_is_its_owner_s_alone(tmp_path):
    path = tmp_path / "x.db"
    before = os.umask(0)
    try:
        store = SqliteGroupStore(path)
        asyncio.run(store.ask(Commit(1, (), (("k", 1),))))
        modes = {one.name: one.stat().st_mode & 0o777 for one in tmp_path.iterdir()}
        asyncio.run(store.close())
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("x.db", "x.db-wal", "x.db-shm"), 0o600)


def test_a_file_that_was_there_keeps_its_mode(tmp_path):
    path = tmp_path / "x.db"
    make(path)
    path.chmod(0o640)
    make(path)
    assert path.stat().st_mode & 0o777 == 0o640


def replaced(path):
    path.unlink()
    path.touch()


def truncated(path):
    os.truncate(path, path.stat().st_size // 2)


GONE = "was removed, or another file was put in its place"
SHORT = "is shorter than what was committed"


@pytest.mark.parametrize(
    ("harm", "end", "says"),
    [
        (Path.unlink, "", GONE),
        (replaced, "", GONE),
        (lambda path: path.rename(path.with_name("moved.db")), "", GONE),
        (Path.unlink, "-wal", GONE),
        (replaced, "-wal", GONE),
        (truncated, "-wal", SHORT),
        (Path.unlink, "-shm", GONE),
    ],
)
async def test_SS_433_a_file_that_is_not_what_was_opened_takes_no_request(tmp_path, harm, end, says):
    path = tmp_path / "x.db"
    groups, streams = SqliteGroupStore(path), SqliteStreamStore(path)
    await streams.append("t", [b"1"])
    harm(path.with_name(f"x.db{end}"))
    for request in (
        groups.ask(Commit(1, (), (("k", 1),))),
        streams.append("t", [b"2"]),
        streams.ask(ListStreams(1, "#", 0, "", 9)),
    ):
        with pytest.raises(StoreDamaged, match=rf"x\.db{end}: {says}"):
            await request
    if end == "-wal":
        with pytest.raises(StoreDamaged, match=rf"x\.db-wal: {SHORT}"):
            SqliteStreamStore(path)
    await groups.close()
    await streams.close()


async def test_SS_433_a_log_that_sqlite_has_truncated_is_whole_and_is_found_behind_a_link(tmp_path):
    path, link = tmp_path / "x.db", tmp_path / "link.db"
    link.symlink_to(path)
    store = SqliteStreamStore(link)
    await store.append("t", [b"1"])
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    assert path.with_name("x.db-wal").stat().st_size == 0
    assert (await store.append("t", [b"2"])).last == 1
    await store.close()


async def test_a_process_that_goes_elsewhere_keeps_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    store = SqliteGroupStore("x.db")
    os.chdir("elsewhere")
    assert isinstance((await store.ask(Commit(1, (), (("k", 1),))))[0], Committed)
    await store.close()
    assert not list((tmp_path / "elsewhere").iterdir())


OPEN = """
import asyncio, sys
from statemachines.drivers.shared_subscriptions.sqlite import SqliteGroupStore, SqliteStreamStore

async def main():
    print("ready", flush=True)
    for path in sys.stdin:
        groups, streams = SqliteGroupStore(path.strip()), SqliteStreamStore(path.strip())
        appended = await streams.append("t", [b"x"])
        await groups.close()
        await streams.close()
        print(appended.last, flush=True)

asyncio.run(main())
"""


def test_several_processes_make_a_file_at_the_same_time(tmp_path):
    children = [
        subprocess.Popen([sys.executable, "-c", OPEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * 4
    for number in range(25):
        for child in children:
            child.stdin.write(f"{tmp_path / str(number)}.db\n")
            child.stdin.flush()
        assert sorted(child.stdout.readline() for child in children) == ["0\n", "1\n", "2\n", "3\n"]
    for child in children:
        child.communicate()
        assert child.returncode == 0
