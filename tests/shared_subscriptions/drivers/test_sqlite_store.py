"""Opening a database: every file that cannot be used is refused by name, and several processes may open one at once.

Records of groups that cannot be read.

What the SQLite stores add to their meaning: limits, failures, worker threads, the cost of a look-up.

Every statement of the stores of groups finds its rows by a key: nothing costs more for what is stored.
"""

import asyncio
import os
import sqlite3
import sys
import tempfile
import uuid
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from statement_plans import Access, watched
from store_programs import close_afterwards

from statemachines.drivers.message_head import encode_head, make_head
from statemachines.drivers.shared_subscriptions import postgres, sqlite
from statemachines.drivers.shared_subscriptions.sqlite import (
    SqliteGroupStore,
    SqliteStreamStore,
    StoreDamaged,
    StoreUnavailable,
)
from statemachines.drivers.sql import sqlite as opening
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.dead_letter import DeadLetter, StoreLetter
from statemachines.shared_subscriptions.group_store import Claim, Commit, Properties, Read, Scan, StoreFailed
from statemachines.shared_subscriptions.names import record_key
from statemachines.shared_subscriptions.stream_store import Fetch, ListStreams, Measure, Slice, StreamsListed, stream_id

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


CLAIM, PROPERTIES = Claim("leader-1~1/1", 3), Properties(0, 1_000, 2_000, 15_000)


def spoil(database, key, value=b"\xc1"):
    if database.kind == "postgres":
        spoiled = f"'\\x{value.hex()}'"
        database.sql(f"UPDATE gapless.group_records SET value = {spoiled} WHERE key = '\\x{key.encode().hex()}'")
        return
    with closing(sqlite3.connect(database.path)) as connection, connection:
        connection.execute("UPDATE group_records SET value = ? WHERE key = ?", (value, key))


async def test_SS_225_a_record_that_cannot_be_read_is_named_and_left_alone(new_database, caplog):
    database = new_database
    keys = [record_key("g", "#", f"progress:0.0/{number}") for number in range(5)]
    prefix = record_key("g", "#", "progress:")

    store = database.groups()
    await store.ask(Commit(1, (), tuple((key, 1) for key in keys)))
    spoil(database, keys[0])
    spoil(database, keys[1])
    spoil(database, keys[3], msgspec.msgpack.encode(CLAIM))
    for _ in range(2):
        (scanned,) = await store.ask(Scan(2, prefix, "", 2))
        assert ([key for key, _ in scanned.records], scanned.more) == ([keys[2], keys[3]], True)
        (scanned,) = await store.ask(Scan(3, prefix, keys[3], 2))
        assert ([key for key, _ in scanned.records], scanned.more) == ([keys[4]], False)
    assert await store.ask(Read(4, (keys[2], keys[0]))) == (StoreFailed(4),)
    assert await store.ask(Commit(5, ((keys[0], None),), ())) == (StoreFailed(5),)
    await store.close()
    scans = [line for line in caplog.messages if "left alone" in line]
    for number, times in enumerate((3, 1, 0, 1, 0)):
        assert sum(f"progress:0.0/{number} " in line for line in scans) == times, "once, and where a request needs it"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("claim", 7),
        ("claim", Claim("l~1/1", 2**63 - 1)),
        ("claim", Claim("l~1/1", -1)),
        ("root", CLAIM),
        ("root", 2**63 - 1),
        ("root", -1),
        ("properties", 7),
        ("properties", CLAIM),
        ("progress:0.0/a", CLAIM),
        ("progress:0.0/a", 2**63),
        ("progress:0.0/a", -1),
    ],
)
async def test_SS_225_a_record_of_another_kind_or_a_number_that_cannot_be_is_none_of_ours(
    new_database, caplog, name, value
):
    database, key = new_database, record_key("g", "#", name)
    store = database.groups()
    await store.ask(Commit(1, (), ((key, 1),)))
    spoil(database, key, msgspec.msgpack.encode(value))
    assert await store.ask(Read(2, (key,))) == (StoreFailed(2),)
    assert await store.ask(Commit(3, ((key, None),), ())) == (StoreFailed(3),)
    await store.close()
    assert all(key in line and "left alone" in line for line in caplog.messages)


def test_SS_225_the_memory_of_what_was_named_is_bounded(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("statemachines.drivers.shared_subscriptions.record_codec.NAMED_MAX", 1)
    store = SqliteGroupStore(tmp_path / "x.db")
    codec = store._codec
    for key in "ab":
        assert codec.read_all([(key, b"\xc1", 1)]) == []
    assert len(codec._named) == 1
    asyncio.run(store.close())


STREAM = stream_id("a", 4, 0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


# -- both stores of a file ------------------------------------------------------------------------------------------


# -- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "payload", "says"),
    [
        ("a/+", b"", "topic = 'a/.': must have no"),
        ("a/#", b"", "topic = 'a/#': must have no"),
        ("a\0", b"", "must have no control characters"),
        ("a\x9b2J", b"", "must have no control characters"),
        ("", b"", "topic = '': must have 1 to 1024 bytes in UTF-8, and has 0"),
        ("\ud800", b"", "topic = .*UTF-8 can express"),
        ("é" * 513, b"", "topic = .*must have 1 to 1024 bytes in UTF-8, and has 1026"),
        ("a", b"x" * (2**20 + 1), "payload = '1048577 bytes': must have at most 1048576"),
        ("a", "text", "payload = 'text': must be bytes, not str"),
    ],
)
async def test_what_cannot_be_appended_is_named_and_nothing_is_written(path, topic, payload, says):
    store = SqliteStreamStore(path)

    async with close_afterwards(store):
        with pytest.raises(ConfigurationError, match=says):
            await store.append(topic, [b"good", payload])
        assert await store.ask(ListStreams(1, "#", 0, "", 9)) == (StreamsListed(1, (), False),)


# -- failures -------------------------------------------------------------------------------------------------------


def by(process):
    """What is said of who has it locked, as a pattern."""
    if sys.platform != "linux":
        return ""
    return rf" by process {process} \(.*\)(?:, which is stopped)?, for \d+\.\d s or more"


@contextmanager
def locked(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
"""


async def fill(store, batch):
    count = 0
    while True:
        try:
            count = (await store.append("a", batch)).last + 1
        except StoreUnavailable as error:
            return count, str(error)


def damage(path, keep):
    with path.open("r+b") as file:
        file.seek(keep)
        file.write(b"\xff" * (path.stat().st_size - keep))


async def test_a_damaged_file_is_no_passing_failure(path):
    filled = SqliteStreamStore(path)
    await filled.append("a", [b"x" * 1000] * 500)
    await filled.close()
    store = SqliteStreamStore(path)
    damage(path, 10 * 4096)

    async with close_afterwards(store):
        with pytest.raises(StoreDamaged, match="malformed; restore the file from a copy"):
            await store.fetch(Fetch(1, (Slice(STREAM, 1, 0, 1000),)))
    damage(path, 4096)
    with pytest.raises(StoreDamaged, match="restore the file from a copy"):
        SqliteStreamStore(path)


# -- cost -----------------------------------------------------------------------------------------------------------


ONE_ROW = ("store",)

BOUNDED = {
    Access("messages", (), "place"): "a slice that is fetched (SLICE_MAX, 16 MiB), or what is dropped",
    Access("appends", ("stream",)): "those of a stream that is dropped",
    (Access("streams", (), "id"), "min(id)"): "the first of them",
    (Access("streams", (), "id"), "SET ended"): "those that end with their generation",
    (Access("streams", (), "id"), "SELECT number FROM"): "those that are dropped with their generation",
}
"""What is read by less than a whole key -> why that is few."""

PAGED = {
    Access("group_records", (), "key"),
    Access("streams", (), "id"),
    Access("appends", ("stream",), "time_ns"),
}
"""What is read in pages, in the order of its key, from a place on."""


async def drive(database):
    """Every request that there is, so that each statement is asked."""
    groups, streams = database.groups(), database.streams()
    try:
        await groups.ask(Commit(1, (), (("/1.1/g/#:progress:a", 1), ("x", 2))))
        await groups.ask(Commit(2, (("x", None),), (("x", 3),)))
        await groups.ask(Commit(3, (), (("x", None),)))
        await groups.ask(Read(4, ("x", "/1.1/g/#:progress:a")))
        await groups.ask(Scan(5, "/1.1/g/#:", "", 1))
        first = await streams.append("a/b", [b"1", b"2"])
        await streams.append("a/b", [b"3"], [encode_head(make_head(key=b"k"))])
        await streams.append("c", [b"4"])
        await streams.ask(ListStreams(6, "a/#", 0, "", 10))
        await streams.ask(Measure(7, (first.stream,)))
        await streams.fetch(Fetch(8, (Slice(first.stream, 1, 0, 10),)))
        for letter in (DeadLetter("g", "#", first.stream, 0, 1, ""),) * 2:
            await streams.ask(StoreLetter(9, "dead", letter))
        await streams.end(first.stream)
        await streams.rotate()
        await streams.append("a/b", [b"5"])
        await streams.drop(1, force=True)
        await streams.drop(1)
        if database.kind == "postgres":  # an append whose connection was lost looks whether it was committed
            attempt = postgres.stream_store.Attempt(uuid.uuid4(), stream=1, time_ns=1)
            await streams._database.run(lambda: streams._was_committed(attempt, None))
    finally:
        await groups.close()
        await streams.close()


def test_SS_304_no_statement_of_the_stores_of_groups_reads_what_grows(new_database):
    """On both databases, as each says itself that it would find the rows."""
    with watched() as plans:
        asyncio.run(drive(new_database))
    package = sqlite if new_database.kind == "sqlite" else postgres
    assert plans.never_asked(package.group_store, package.stream_store) == []
    assert plans.unbounded(ONE_ROW, BOUNDED, PAGED) == {}
