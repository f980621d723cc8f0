"""What the SQLite stores add to their meaning: limits, failures, worker threads, the cost of a look-up."""

from __future__ import annotations

import asyncio
import math
import re
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from store_programs import run

from statemachines.drivers.message_head import encode_head, make_head
from statemachines.drivers.shared_subscriptions.publisher import Publisher
from statemachines.drivers.shared_subscriptions.sqlite import (
    SqliteGroupStore,
    SqliteStreamStore,
    StoreDamaged,
    StoreUnavailable,
    stream_store,
)
from statemachines.drivers.shared_subscriptions.store import literal_prefix
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import (
    Commit,
    Committed,
    Read,
    ReadDone,
    Refused,
    StoredRecord,
    StoreFailed,
)
from statemachines.shared_subscriptions.stream_store import (
    Fetch,
    ListStreams,
    Slice,
    StreamsListed,
    matches,
    stream_id,
)

STREAM = stream_id("a", 4, 0)
HEAD = encode_head(make_head(key=b"k"))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.db"


# -- both stores of a file ------------------------------------------------------------------------------------------


def test_a_file_whose_tables_have_one_more_column_is_written_to(path):
    """A newer program may add one."""
    groups, streams = SqliteGroupStore(path), SqliteStreamStore(path)
    with closing(sqlite3.connect(path)) as connection:
        for table in ("group_records", "streams", "appends", "messages"):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN newer INTEGER")

    async def test():
        await streams.append("a", [b"1"])
        await streams.append("a", [b"2"], [HEAD])
        return await groups.ask(Commit(1, (), (("k", 1),)))

    (committed,) = run(test(), groups, streams)
    assert isinstance(committed, Committed)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT payload, head FROM messages ORDER BY place").fetchall() == [
            (b"1", None),
            (b"2", HEAD),
        ]


def test_both_stores_of_a_file_have_one_time(path):
    groups, streams = SqliteGroupStore(path, clock=lambda: 7), SqliteStreamStore(path, clock=lambda: 7)

    async def test():
        await streams.append("a", [b"1", b"2"])
        (committed,) = await groups.ask(Commit(1, (), (("k", 1),)))
        await streams.append("a", [b"3"])
        return committed.stamp, [
            (await streams.ask(ListStreams(1, "#", start_ns, "", 9)))[0].streams[0].first for start_ns in (7, 8, 9, 10)
        ]

    assert run(test(), groups, streams) == (8, [0, 2, 2, 3])


def test_a_refused_commit_writes_nothing_not_even_the_time(path):
    store = SqliteGroupStore(path, clock=lambda: 7)

    async def test():
        assert await store.ask(Commit(1, (("k", None),), (("k", 1), ("other", 1)))) == (Committed(1, 7),)
        assert await store.ask(Commit(2, (("k", None),), (("k", 2), ("other", 2)))) == (Refused(2, "k"),)
        stored = StoredRecord(1, 7)
        assert await store.ask(Read(3, ("k", "other"))) == (ReadDone(3, (stored, stored), 7),)

    run(test(), store)


def test_a_read_sees_one_state_of_all_its_keys(path):
    keys = tuple(f"k{number}" for number in range(20))
    writer, reader = SqliteGroupStore(path), SqliteGroupStore(path)

    async def write():
        for number in range(300):
            await writer.ask(Commit(number, (), tuple((key, number) for key in keys)))

    async def test():
        await write()
        writing = asyncio.create_task(write())
        while not writing.done():
            (read,) = await reader.ask(Read(1, keys))
            assert len(set(read.records)) == 1
        await writing

    run(test(), writer, reader)


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
def test_what_cannot_be_appended_is_named_and_nothing_is_written(path, topic, payload, says):
    store = SqliteStreamStore(path)

    async def test():
        with pytest.raises(ConfigurationError, match=says):
            await store.append(topic, [b"good", payload])
        assert await store.ask(ListStreams(1, "#", 0, "", 9)) == (StreamsListed(1, (), False),)

    run(test(), store)


def test_the_largest_message_and_topic(path):
    store = SqliteStreamStore(path)
    topic, payload = "é" * 512, b"x" * 2**20

    async def test():
        appended = await store.append(topic, [payload])
        _, payloads = await store.fetch(Fetch(1, (Slice(appended.stream, 1, 0, 9),)))
        assert payloads == [[(payload, None)]]

    run(test(), store)


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


def test_who_is_stopped_inside_a_transaction_is_named_and_for_how_long(path, caplog):
    groups = SqliteGroupStore(path, busy_s=0.05)
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout.readline() == "locked\n"
    writer.send_signal(signal.SIGSTOP)

    async def test():
        for _ in range(3):
            assert await groups.ask(Commit(5, (), (("k", 1),))) == (StoreFailed(5),)
            assert isinstance((await groups.ask(Read(6, ("k",))))[0], ReadDone)
            await asyncio.sleep(0.1)
        writer.kill()
        writer.wait()
        assert isinstance((await groups.ask(Commit(8, (), (("k", 1),))))[0], Committed)

    run(test(), groups)
    writer.stdin.close()
    writer.stdout.close()
    assert groups._database._locked_since == math.inf
    said = re.findall(f"database is locked{by(writer.pid)}; nothing", caplog.text)
    assert len(said) == 3
    seconds = [float(line.split(", for ")[1].split()[0]) for line in said]
    assert seconds == sorted(seconds)
    assert seconds[-1] >= 0.3, "since the first, though it was read in between"
    assert "import sqlite3, sys" in said[0], "its command"
    assert ("which is stopped" in said[-1]) is (sys.platform == "linux")


def test_a_publisher_repeats_what_was_not_carried_out_for_as_long_as_it_is_told(path):
    async def test():
        async with Publisher(path) as hasty, Publisher(path, patience_s=60) as patient:
            for publisher in (hasty, patient):
                await publisher._store.close()
                publisher._store = SqliteStreamStore(path, busy_s=0.01)
            with locked(path) as other:
                with pytest.raises(StoreUnavailable):
                    await hasty.publish("a", [b"1"])
                publishing = asyncio.create_task(patient.publish("a", [b"2"]))
                await asyncio.sleep(0.1)
                assert not publishing.done()
                other.execute("ROLLBACK")
                assert (await publishing).first == 0

    run(test())


@contextmanager
def largest_file(size):
    """As if the disk were full: no file of this process may grow beyond `size`."""
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def fill(store, batch):
    count = 0
    while True:
        try:
            count = (await store.append("a", batch)).last + 1
        except StoreUnavailable as error:
            return count, str(error)


def test_a_full_disk_refuses_appends_whole_and_the_store_recovers(path):
    store = SqliteStreamStore(path)
    batch = [b"x" * 1000] * 100

    async def test():
        with largest_file(2**20):
            count, why = await fill(store, batch)
        assert count > 0
        assert "nothing was written" in why
        assert (await store.append("a", [b"after"])).first == count
        fetched, (payloads,) = await store.fetch(Fetch(1, (Slice(STREAM, 1, 0, 10**6),)))
        assert fetched.batches[0].last == count
        assert payloads == [(b"x" * 1000, None)] * count + [(b"after", None)]

    run(test(), store)


def damage(path, keep):
    with path.open("r+b") as file:
        file.seek(keep)
        file.write(b"\xff" * (path.stat().st_size - keep))


def test_a_damaged_file_is_no_passing_failure(path):
    filled = SqliteStreamStore(path)
    run(filled.append("a", [b"x" * 1000] * 500), filled)
    store = SqliteStreamStore(path)
    damage(path, 10 * 4096)

    async def test():
        with pytest.raises(StoreDamaged, match="malformed; restore the file from a copy"):
            await store.fetch(Fetch(1, (Slice(STREAM, 1, 0, 1000),)))

    run(test(), store)
    damage(path, 4096)
    with pytest.raises(StoreDamaged, match="restore the file from a copy"):
        SqliteStreamStore(path)


# -- cost -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "values", "searches"),
    [
        (stream_store.LIST, (0, "", "", "", "#", 1), ["streams", "appends"]),
        (stream_store.READ, (0, 1), ["messages"]),
    ],
)
def test_no_statement_walks_through_a_table(path, statement, values, searches):
    asyncio.run(SqliteStreamStore(path).close())
    with closing(sqlite3.connect(path)) as connection:
        connection.create_function("matches", 2, matches)
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + statement.replace("@", ""), values)]
    found = [step.split()[1] for step in plan if step.startswith("SEARCH ")]
    assert found == searches
    assert not [step for step in plan if step.startswith(("SCAN ", "USE TEMP B-TREE"))]


@pytest.mark.parametrize(
    ("topic_filter", "prefix"),
    [("#", ""), ("+/a", ""), ("a/b", "a/b"), ("a/b/#", "a/b"), ("a/+/b/#", "a/"), ("/#", ""), ("//#", "/")],
)
def test_where_the_look_up_of_a_filter_begins(topic_filter, prefix):
    assert literal_prefix(topic_filter) == prefix
