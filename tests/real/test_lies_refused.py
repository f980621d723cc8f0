"""Strangers who lie about progress, against real processes: nothing of the stream is lost, and an operator is told."""

import re
import sqlite3
from contextlib import closing

import msgspec
import pytest

from tests.real.carried_workload import declare_group, publish_lines
from tests.real.outside import LeaderHost, Stranger, read_all

LINES = [f"line {number}" for number in range(20)]
END = 2**63 - 1


@pytest.fixture
def store(tmp_path):
    """Twenty messages in one stream, and a group that begins before them."""
    store = tmp_path / "messages.db"
    declare_group(store)
    publish_lines(store, LINES)
    return store


def granted(stranger, borrower):
    """Take part, and get the stream: what every later message says (epoch, registration, stream, grant)."""
    _, _, _, epoch, registration = stranger.register(borrower, "g", "#")
    for _ in range(20):
        heard = stranger.hear("grant", seconds=2)
        if heard is not None and heard[1] == borrower:
            return heard[0], epoch, registration, heard[3][4], heard[3][5]
    raise AssertionError("nothing was granted")


def progress_in(store):
    with closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT value FROM group_records WHERE key LIKE '%:progress:%'").fetchall()
    return [msgspec.msgpack.decode(value) for (value,) in rows]


@pytest.mark.parametrize(("way", "lie"), [("update_progress", 2**62), ("ping", END), ("disconnect", len(LINES) + 1)])
def test_a_lie_about_progress_loses_nothing_and_is_told(tmp_path, store, way, lie):
    with LeaderHost(tmp_path, store) as host, Stranger(host.port, "c1~1", store=store) as stranger:
        leader, epoch, registration, stream, grant = granted(stranger, "c1~1/1")
        reports = [[stream, grant, lie, True]]
        told = {
            "update_progress": (stream, grant, lie, True),
            "ping": (1, reports),
            "disconnect": (reports,),
        }[way]
        stranger.say("c1~1/1", leader, way, "c1~1/1", epoch, registration, *told)
        host.until_said("refused progress")
        assert re.search(r"Z WARNING leader-\S+: refused progress", host.said), "with time and node"
        assert stream in host.said
        assert "c1~1/1" in host.said
        assert read_all(tmp_path, store, host.port, len(LINES)) == set(range(len(LINES)))
        assert host.stop() == 0, host.said
    assert progress_in(store) == [len(LINES)]


def test_a_stream_store_that_was_restored_loses_nothing_in_silence(tmp_path, store):
    with LeaderHost(tmp_path, store) as host:
        read_all(tmp_path, store, host.port, len(LINES))
        assert host.stop() == 0, host.said
    assert progress_in(store) == [len(LINES)]
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE streams SET count = 5")
    with LeaderHost(tmp_path, store) as host, Stranger(host.port, "c2~1", store=store) as stranger:
        stranger.register("c2~1/1", "g", "#")
        host.until_said("is not granted: progress 20 was committed, and the store has 5 messages")
        assert stranger.hear("grant", seconds=1) is None
        assert host.stop() == 0, host.said
    assert progress_in(store) == [len(LINES)]
