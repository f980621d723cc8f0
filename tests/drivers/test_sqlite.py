"""The SQLite stores mean what the pure services mean, survive SIGKILL, and say what is wrong with a file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statemachines.drivers.sqlite import SqliteGroupStore, SqliteStreamStore, StoreUnavailable
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.group_store import (
    Claim,
    Commit,
    Committed,
    GroupStore,
    Properties,
    Read,
    ReadDone,
    Refused,
    Scan,
    Stored,
    StoreFailed,
)
from statemachines.shared_subscriptions.stream_store import (
    Append,
    Fetch,
    FetchFailed,
    ListStreams,
    Slice,
    StreamStore,
    stream_id,
)

KEYS = st.sampled_from(["g/#:claim", "g/#:root", "g/#:progress:a", "g/#:progress:b", "h/+:root"])
VALUES = st.one_of(
    st.integers(0, 2**63 - 1),
    st.builds(Claim, st.sampled_from(["", "l~1/1"]), st.integers(1, 9), st.booleans()),
    st.builds(Properties, st.integers(0, 9), st.just(1), st.just(2), st.just(3)),
)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(st.tuples(KEYS, VALUES), max_size=3), KEYS, st.booleans()),
        st.tuples(st.just("read"), st.lists(KEYS, max_size=3)),
        st.tuples(
            st.just("scan"), st.sampled_from(["g/#:", "g/#:progress:", "x"]), KEYS | st.just(""), st.integers(1, 3)
        ),
    ),
    max_size=25,
)
TEMPORARY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
count = 0


def fresh(tmp_path):
    global count
    count += 1
    return tmp_path / f"{count}.db"


@TEMPORARY
@given(moves=MOVES)
def test_the_group_store_means_what_the_pure_one_means(tmp_path, moves):
    async def run():
        store, pure = SqliteGroupStore(fresh(tmp_path)), GroupStore()
        state = pure.initial()
        for n, move in enumerate(moves):
            match move:
                case ("commit", put, key, stale):
                    known = state.get(key)
                    expect = Stored(0, 1) if stale else known
                    request = Commit(n, ((key, expect),), tuple(dict(put).items()))
                case ("read", keys):
                    request = Read(n, tuple(keys))
                case ("scan", prefix, after, limit):
                    request = Scan(n, prefix, after, limit)
            (real,) = await store.ask(request)
            now = getattr(real, "time_ns", 0)
            state, (expected,) = pure.apply(state, request, now)
            assert real == expected
        await store.close()

    asyncio.run(run())


STREAM_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from("abc"), st.integers(1, 4)),
        st.tuples(st.just("list"), st.sampled_from(["#", "a", "+"]), st.sampled_from(["", "1.0/b"]), st.integers(1, 3)),
        st.tuples(st.just("fetch"), st.sampled_from("abcd"), st.integers(0, 5), st.integers(1, 9)),
    ),
    max_size=25,
)


@TEMPORARY
@given(moves=STREAM_MOVES)
def test_the_stream_store_means_what_the_pure_one_means(tmp_path, moves):
    async def run():
        store, pure = SqliteStreamStore(fresh(tmp_path)), StreamStore()
        state = pure.initial()
        contents = {}
        for n, move in enumerate(moves):
            match move:
                case ("append", topic, size):
                    payloads = [f"{topic}{n}.{number}".encode() for number in range(size)]
                    real = await store.append(topic, payloads)
                    contents.setdefault(real.stream, []).extend(payloads)
                    state, (expected,) = pure.apply(state, Append(0, topic, size), 1)
                case ("list", topic_filter, after, limit):
                    request = ListStreams(n, topic_filter, 0, after, limit)
                    (real,) = await store.ask(request)
                    state, (expected,) = pure.apply(state, request, 1)
                case ("fetch", topic, first, limit):
                    stream = stream_id(topic, 4, 0)
                    request = Fetch(n, (Slice(stream, 7, first, limit),))
                    real, (payloads,) = await store.fetch(request)
                    state, (expected,) = pure.apply(state, request, 1)
                    assert payloads == contents.get(stream, [])[first : first + limit]
            assert real == expected
        await store.close()

    asyncio.run(run())


def run(test, *stores):
    async def whole():
        try:
            return await test
        finally:
            for store in stores:
                await store.close()

    return asyncio.run(whole())


def test_where_a_group_begins_is_a_store_time(tmp_path):
    store = SqliteStreamStore(tmp_path / "x.db")
    groups = SqliteGroupStore(tmp_path / "x.db")

    async def test():
        await store.append("a", [b"1", b"2"])
        (read,) = await groups.ask(Read(1, ()))
        (before,) = await store.ask(ListStreams(1, "#", read.time_ns + 1, "", 9))
        await asyncio.sleep(0.01)
        await store.append("a", [b"3"])
        (after,) = await store.ask(ListStreams(1, "#", read.time_ns + 1, "", 9))
        return before.streams[0].first, after.streams[0].first

    assert run(test(), store, groups) == (2, 2)


def test_the_end_of_a_stream(tmp_path):
    store = SqliteStreamStore(tmp_path / "x.db")

    async def test():
        appended = await store.append("a", [b"1"])
        await store.end(appended.stream)
        answer, _ = await store.fetch(Fetch(1, (Slice(appended.stream, 1, 0, 9),)))
        assert answer.batches[0].ended
        with pytest.raises(ConfigurationError, match="has ended"):
            await store.append("a", [b"2"])

    run(test(), store)


@pytest.mark.parametrize(
    ("topic", "payload", "says"), [("a/+", b"", "topic"), ("", b"", "topic"), ("a", b"x" * (2**20 + 1), "payload")]
)
def test_what_cannot_be_appended_is_named(tmp_path, topic, payload, says):
    store = SqliteStreamStore(tmp_path / "x.db")

    async def test():
        with pytest.raises(ConfigurationError, match=says):
            await store.append(topic, [payload])

    run(test(), store)


def test_a_busy_database_is_the_protocol_s_store_error(tmp_path):
    path = tmp_path / "x.db"
    groups, streams = SqliteGroupStore(path, busy_s=0.05), SqliteStreamStore(path, busy_s=0.05)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def test():
        assert await groups.ask(Commit(5, (), (("k", 1),))) == (StoreFailed(5),)
        with pytest.raises(StoreUnavailable, match="database is locked; nothing was written"):
            await streams.append("a", [b"1"])
        other.execute("ROLLBACK")
        assert isinstance((await groups.ask(Commit(6, (), (("k", 1),))))[0], Committed)

    run(test(), groups, streams)
    other.close()


def test_a_read_that_fails_is_a_fetch_that_failed(tmp_path):
    path = tmp_path / "x.db"
    streams = SqliteStreamStore(path, busy_s=0.05)
    other = sqlite3.connect(path)
    other.execute("ALTER TABLE streams RENAME TO elsewhere")
    other.close()

    async def test():
        assert await streams.ask(ListStreams(3, "#", 0, "", 9)) == (FetchFailed(3),)
        assert await streams.fetch(Fetch(4, (Slice("s", 1, 0, 1),))) == (FetchFailed(4), [])

    run(test(), streams)


# -- files that are not ours ----------------------------------------------------------------------------------------


def foreign(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


def newer(path):
    asyncio.run(SqliteGroupStore(path).close())
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.write_text("hello " * 100), "is not a database"),
        (foreign, "of another program"),
        (newer, "is of version 9, and this gapless reads version 1"),
        (lambda path: path.mkdir(), "is a directory"),
    ],
)
@pytest.mark.parametrize("store", [SqliteGroupStore, SqliteStreamStore])
def test_a_file_that_is_not_ours_is_named(tmp_path, make, says, store):
    path = tmp_path / "x.db"
    make(path)
    with pytest.raises(ConfigurationError, match=says) as raised:
        store(path)
    assert "x.db" in str(raised.value)


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="there is no directory"):
        SqliteGroupStore(tmp_path / "none" / "x.db")


# -- several processes ----------------------------------------------------------------------------------------------

CLAIM = """
import asyncio, sys
from pathlib import Path
from statemachines.drivers.sqlite import SqliteGroupStore
from statemachines.shared_subscriptions.group_store import Claim, Commit, Committed, Read

async def main():
    store = SqliteGroupStore(Path(sys.argv[1]), busy_s=30)
    won = []
    while True:
        (read,) = await store.ask(Read(1, ("claim",)))
        found = read.records[0]
        epoch = 0 if found is None else found.value.epoch
        if epoch >= 60:
            break
        (answer,) = await store.ask(Commit(2, (("claim", found),), (("claim", Claim(sys.argv[2], epoch + 1)),)))
        if isinstance(answer, Committed):
            won.append(epoch + 1)
    await store.close()
    print(*won)

asyncio.run(main())
"""


def test_of_two_processes_exactly_one_wins_each_epoch(tmp_path):
    path = str(tmp_path / "x.db")
    children = [
        subprocess.Popen([sys.executable, "-c", CLAIM, path, name], stdout=subprocess.PIPE, text=True) for name in "ab"
    ]
    won = [[int(epoch) for epoch in child.communicate()[0].split()] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert sorted(won[0] + won[1]) == list(range(1, 61))


WRITE = """
import asyncio, sys
from pathlib import Path
from statemachines.drivers.sqlite import SqliteGroupStore, SqliteStreamStore
from statemachines.shared_subscriptions.group_store import Commit

async def main():
    groups, streams = SqliteGroupStore(Path(sys.argv[1])), SqliteStreamStore(Path(sys.argv[1]))
    number = 0
    while True:
        number += 1
        await groups.ask(Commit(number, (), tuple((f"k{part}", number) for part in range(5))))
        appended = await streams.append("t", [b"%d" % number] * 3)
        print(number, appended.last, flush=True)

asyncio.run(main())
"""


def test_a_sigkill_loses_nothing_that_was_committed_and_leaves_nothing_half_written(tmp_path):
    path = tmp_path / "x.db"
    for _ in range(10):
        child = subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(5)]
        os.kill(child.pid, signal.SIGKILL)
        said += child.stdout.read().split("\n")[:-1]
        child.stdout.close()
        child.wait()
        number, last = map(int, said[-1].split())
        groups, streams = SqliteGroupStore(path), SqliteStreamStore(path)

        async def look(groups=groups, streams=streams):
            (read,) = await groups.ask(Read(1, tuple(f"k{part}" for part in range(5))))
            fetched, (payloads,) = await streams.fetch(Fetch(1, (Slice(stream_id("t", 4, 0), 1, 0, 10**6),)))
            return read, fetched, payloads

        read, fetched, payloads = run(look(), groups, streams)
        assert isinstance(read, ReadDone)
        assert len({record.value for record in read.records}) == 1
        assert read.records[0].value >= number
        assert fetched.batches[0].last >= last
        assert len(payloads) == fetched.batches[0].last + 1
        assert len(payloads) % 3 == 0


def test_a_stale_precondition_writes_nothing(tmp_path):
    store = SqliteGroupStore(tmp_path / "x.db")

    async def test():
        (first,) = await store.ask(Commit(1, (("k", None),), (("k", 1), ("other", 1))))
        again = await store.ask(Commit(2, (("k", None),), (("k", 2), ("other", 2))))
        (read,) = await store.ask(Read(3, ("k", "other")))
        return first, again, read

    first, again, read = run(test(), store)
    assert again == (Refused(2, "k"),)
    assert read.records == (Stored(1, first.time_ns), Stored(1, first.time_ns))
