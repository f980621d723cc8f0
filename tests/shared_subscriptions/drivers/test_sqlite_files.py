"""Opening a database: every file that cannot be used is refused by name, and several processes may open one at once."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
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
from statemachines.shared_subscriptions.group_store import Commit
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


def test_a_file_that_stays_locked_while_it_is_opened_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "OPEN_S", 0.05)
    path = tmp_path / "x.db"
    make(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"is locked.*; try again when it is done"):
            SqliteGroupStore(path, busy_s=0.01)


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
