"""A stranger who lies about what is acknowledged in a group whose order is relaxed: raw frames against a leader host.

A member is believed about the streams that it was granted, within what is stored.  Nothing else that it says counts.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time

import msgspec
import pytest
from stage import TENTH

from statemachines.drivers.shared_subscriptions import consumer_file
from tests.real.outside import LeaderHost, Process, Stranger
from tests.real.stored_group import declare_group, publish_lines

COUNTS = {"a": 20, "b": 2_100}
END = 2**63 - 1


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "group.toml"
    path.write_text("".join(f"{key} = {value}\n" for key, value in TENTH.items()))
    return path


@pytest.fixture
def store(tmp_path, config):
    """Two streams, and a group in relaxed order that begins before them."""
    store = tmp_path / "messages.db"
    declare_group(store, config=config, order="relaxed")
    for topic, count in COUNTS.items():
        publish_lines(store, [f"{topic} {number}" for number in range(count)], topic)
    return store


class Liar(Stranger):
    """A member that says what it likes of its streams."""

    def __init__(self, port, name, *, store):
        super().__init__(port, f"{name}~1", store=store)
        self.borrower = f"{name}~1/1"
        _, _, self.leader, *self.pair = self.register(self.borrower, "g", "#")
        self.grants = {}
        self.pings = 0

    def take(self, count):
        """Wait for the grants of so many streams: topic -> (stream, grant)."""
        while len(self.grants) < count:
            heard = self.hear("grant", seconds=5)
            assert heard is not None, "nothing was granted"
            stream, grant = heard[3][4:6]
            self.grants[stream.partition("/")[2]] = (stream, grant)
        return self.grants

    def report(self, way, stream, grant, *acked):
        """Say what is acknowledged of a stream; a host that has cut it off hears nothing."""
        said = [stream, grant, 0, False, 0, False, [list(one) for one in acked]]
        self.pings += 1
        told = {"update_progress": said, "ping": [self.pings, [said]], "disconnect": [[said]]}[way]
        with contextlib.suppress(OSError):
            self.say(self.borrower, self.leader, way, self.borrower, *self.pair, *told)


def records_of(store):
    """What the group keeps of its streams: the name of the record -> its value."""
    with contextlib.closing(sqlite3.connect(store)) as connection:
        rows = connection.execute("SELECT key, value FROM group_records WHERE key LIKE '%progress%'").fetchall()
    return {key.partition("#:")[2]: msgspec.msgpack.decode(value) for key, value in rows}


def read_all_but(passed, folder, store, port, config):
    """What an honest member acknowledges, when it has all but so many messages: (topic, offset)."""
    out, end = folder / "got.jsonl", time.monotonic() + 60
    more = ("--leader", f"127.0.0.1:{port}", "--state", folder, "--config", config, "--out", out)
    with Process(folder / "consumer.log", "node", "consumer", "$shared/g/#", "--store", store, *more) as consumer:
        while len(list_acknowledged(out)) < sum(COUNTS.values()) - passed:
            assert time.monotonic() < end, (len(list_acknowledged(out)), consumer.said)
            time.sleep(0.05)
        assert consumer.stop() == 0, consumer.said
    return list_acknowledged(out)


def list_acknowledged(out):
    lines = consumer_file.read_file(out)
    return {(one.stream.partition("/")[2], one.offset) for one in lines if one.what == consumer_file.ACK}


def until_out(host, liar):
    """It is no member any more; where the machine is so busy that the host gives the group up, nobody is."""
    ends = f"{liar.borrower} is no member any more", "does not lead it any more"
    host.until_said(*ends, behind=f"{liar.borrower} is a member")


@pytest.mark.long
def test_SS_409_what_the_owner_of_a_stream_says_counts_once_and_no_more_than_1000_ranges_are_kept(
    tmp_path, store, config
):
    odd = [(2 * number + 1, 2 * number + 1) for number in range(1_050)]
    with LeaderHost(tmp_path, store, "--config", config) as host, Liar(host.port, "liar", store=store) as liar:
        grants = liar.take(2)
        for part in (odd[:900], odd[:900], odd[400:]):
            liar.report("update_progress", *grants["b"], *part)
        for part in (((3, 6), (5, 9)), ((3, 9),)):
            liar.report("ping", *grants["a"], *part)
        until_out(host, liar)
        kept = {key: value["acked"] for key, value in records_of(store).items() if isinstance(value, dict)}
        got = read_all_but(1_000 + 7, tmp_path, store, host.port, config)
        assert host.stop() == 0, host.said
    assert sorted(len(one) for one in kept.values()) == [1, 1_000]
    passed = {("b", first) for first, _ in odd[:1_000]} | {("a", offset) for offset in range(3, 10)}
    assert got == {(topic, offset) for topic, count in COUNTS.items() for offset in range(count)} - passed
