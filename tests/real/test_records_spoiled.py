"""Records of the group store that are none of ours, against real processes: hosts name them, live, and go on when they
are put back."""

import sqlite3
from contextlib import closing

import msgspec
import pytest
from stage import TENTH

from tests.real.carried_workload import declare_group, publish_lines
from tests.real.outside import LeaderHost, Process
from tests.waiting import until

LINES = 10
HUGE = 2**64 - 1
CLAIM = {"type": "claim", "leader": "", "epoch": HUGE, "clean": False}


@pytest.fixture
def config(tmp_path):
    config = tmp_path / "group.toml"
    config.write_text("".join(f"{key} = {value}\n" for key, value in TENTH.items()))
    return config


@pytest.fixture
def store(tmp_path, config):
    """Messages in one stream, and a group that begins before them and was led."""
    store = tmp_path / "messages.db"
    declare_group(store, config=config)
    publish_lines(store, [f"line {number}" for number in range(LINES)])
    return store


def rows(store, key):
    with closing(sqlite3.connect(store, timeout=30)) as connection:
        return connection.execute("SELECT key, value FROM group_records WHERE key LIKE ?", (f"%:{key}",)).fetchall()


def put(store, key, value):
    """As whoever has the database open may: under a stamp of its own."""
    with closing(sqlite3.connect(store, timeout=30)) as connection, connection:
        new = "INSERT OR REPLACE INTO group_records VALUES (?, ?, (SELECT time_ns + 1 FROM store))"
        connection.execute(new, (key, value))
        connection.execute("UPDATE store SET time_ns = time_ns + 1")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("claim", "/1.1/g/#:claim", CLAIM),
        ("root", "/1.1/g/#:root", HUGE),
        pytest.param("properties", "/1.1/g/#:properties", 7, marks=pytest.mark.long),
        ("properties", "/1.1/g/#:properties", CLAIM),
    ],
)
def test_a_record_that_is_none_of_its_kind_ends_no_host(tmp_path, store, config, name, key, value):
    before = rows(store, name)
    put(store, key, msgspec.msgpack.encode(value))
    out = tmp_path / "got.jsonl"
    with LeaderHost(tmp_path, store, "--config", config, "--name", "l1") as host:
        at = ("--leader", f"127.0.0.1:{host.port}", "--state", tmp_path, "--config", config, "--out", out)
        consumer = ("node", "consumer", "$shared/g/#", "--store", store, "--name", "c1", *at)
        with Process(tmp_path / "consumer.log", *consumer) as consumer:
            named = host if name == "root" else consumer
            named.until_said("it is left alone; find out which program wrote it")
            assert key in named.said
            put_back(store, key, before)
            until(
                lambda: out.exists() and out.read_bytes().count(b'["ack"') >= LINES, lambda: host.said + consumer.said
            )
            assert (consumer.stop(), host.stop()) == (0, 0)
            assert "Traceback" not in host.said + consumer.said


def put_back(store, key, before):
    """As it was."""
    if before:
        put(store, *before[0])
        return
    with closing(sqlite3.connect(store, timeout=30)) as connection, connection:
        connection.execute("DELETE FROM group_records WHERE key = ?", (key,))


def test_a_life_that_has_no_next_one_is_nobody_s(tmp_path, store, config):
    """The name can be taken, and kept."""
    put(store, "~/l1:life", msgspec.msgpack.encode(HUGE))
    with LeaderHost(tmp_path, store, "--config", config, "--name", "l1") as host:
        put(store, "~/l1:life", msgspec.msgpack.encode(2**63 - 1))
        host.until_said("the store knew nothing of this life any more")
        assert host.stop() == 0
