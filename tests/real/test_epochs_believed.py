"""Who lies about epochs, or repeats them, against real processes: a group is never frozen by it."""

import contextlib
import sqlite3
from contextlib import closing

import msgspec
import pytest

from tests.real.carried_workload import declare_group, publish_lines
from tests.real.outside import LeaderHost, Process, read_acknowledged
from tests.waiting import until

LINES = [f"line {number}" for number in range(20)]


@pytest.fixture
def store(tmp_path):
    """A group that begins with all that is stored."""
    store = tmp_path / "messages.db"
    declare_group(store)
    publish_lines(store, LINES)
    return store


def until_acknowledged(consumer, out, count):
    until(lambda: len(read_acknowledged(out)) >= count, lambda: consumer.said)
    assert read_acknowledged(out) == set(range(count))


def consume(folder, store, out, *leaders):
    leader = ("--leader", ",".join(f"127.0.0.1:{port}" for port in leaders), "--state", folder)
    return Process(folder / "consumer.log", "node", "consumer", "$shared/g/#", "--store", store, "--out", out, *leader)


def put_claim_back(store):
    """The group store knows nothing of the epochs that were given out: it was restored."""
    with closing(sqlite3.connect(store)) as connection, connection:
        ((key, value),) = connection.execute("SELECT key, value FROM group_records WHERE key LIKE '%:claim'").fetchall()
        claim = msgspec.msgpack.decode(value)
        before, claim["epoch"] = claim["epoch"], 0
        connection.execute("UPDATE group_records SET value = ? WHERE key = ?", (msgspec.msgpack.encode(claim), key))
    return before


@pytest.mark.long
def test_SS_245_a_group_store_that_was_restored_freezes_nobody(tmp_path, store):
    """The consumer that lives on has seen higher epochs than those that come now."""
    out = tmp_path / "got.txt"
    port = None
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            listen = () if port is None else ("--listen", f"127.0.0.1:{port}")
            with LeaderHost(tmp_path, store, "--name", "leader-1", *listen) as host:
                if port is None:
                    port = host.port
                    consumer = stack.enter_context(consume(tmp_path, store, out, port))
                publish_lines(store, LINES)
                seen = read_acknowledged(out)
                until(lambda seen=seen: read_acknowledged(out) > seen, "it goes on")
                assert host.stop() == 0, host.said
        assert put_claim_back(store) >= 2
        publish_lines(store, LINES)
        with LeaderHost(tmp_path, store, "--name", "leader-1", "--listen", f"127.0.0.1:{port}") as host:
            until_acknowledged(consumer, out, 4 * len(LINES))
            assert consumer.stop() == 0, consumer.said
            assert host.stop() == 0, host.said
