"""A stranger who lies about what is acknowledged in a group whose order is relaxed: raw frames against a leader host.

A member is believed about the streams that it was granted, within what is stored.  Nothing else that it says counts.

Several lives of one name, as real processes: the newest wins, and no two of them deliver one stream at a time.
"""

import contextlib
import itertools
import signal
import sqlite3

import msgspec
import pytest
from stage import TENTH

from statemachines.drivers.shared_subscriptions import consumer_file
from tests.real.carried_workload import declare_group, publish_lines
from tests.real.outside import LeaderHost, Process, Stranger
from tests.waiting import until

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
    out = folder / "got.jsonl"
    more = ("--leader", f"127.0.0.1:{port}", "--state", folder, "--config", config, "--out", out)
    with Process(folder / "consumer.log", "node", "consumer", "$shared/g/#", "--store", store, *more) as consumer:
        until(lambda: len(list_acknowledged(out)) >= sum(COUNTS.values()) - passed, lambda: consumer.said)
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


TOPICS = ("a", "b", "c")
SUPERSEDED = 4


class Group:
    """A store with a group, a leader host, and members that note what they get; times are a tenth."""

    def __init__(self, folder):
        self.folder = folder
        self.store = folder / "messages.db"
        self.config = folder / "group.toml"
        self.config.write_text("".join(f"{key} = {value}\n" for key, value in TENTH.items()))
        self.published = 0
        self.members = []
        declare_group(self.store, config=self.config)
        self.host = LeaderHost(folder, self.store, "--config", self.config)
        self.publish(200)

    def publish(self, count=20):
        """More messages in every topic."""
        for topic in TOPICS:
            publish_lines(self.store, [f"{topic} {self.published + number}" for number in range(count)], topic)
        self.published += count

    def member(self, name, state="state"):
        """A consumer process under this name; its file is the attribute `out`."""
        number = len(self.members)
        out = self.folder / f"got-{number}.txt"
        options = ("--name", name, "--out", out, "--state", self.folder / state, "--config", self.config)
        where = ("--store", self.store, "--leader", f"127.0.0.1:{self.host.port}", "--batch", "1", "--work-ms", "5")
        process = Process(self.folder / f"member-{number}.log", "node", "consumer", "$shared/g/#", *where, *options)
        process.out = out
        self.members.append(process)
        return process

    def said(self):
        """By all processes."""
        return [one.said for one in (self.host, *self.members)]

    def until(self, holds, what):
        """Wait, while more is published now and then."""
        looks = itertools.count(1)
        until(holds, lambda: (what, self.said()), meanwhile=lambda: next(looks) % 50 or self.publish(10))

    def acknowledged(self):
        """How many different messages are acknowledged by anybody."""
        return len({(said[1], said[3]) for one in self.members for said in lines_of(one) if said[0] == "ack"})

    def until_all_is_read(self):
        until(lambda: self.acknowledged() >= self.published * len(TOPICS), self.said)

    def close(self):
        for one in (*self.members, self.host):
            one.__exit__()


@pytest.fixture
def group(tmp_path):
    group = Group(tmp_path)
    yield group
    group.close()


def lines_of(member):
    """What it has noted so far, but for a line that is not whole: [what, stream, grant, offset, digest, owner, at]."""
    data = member.out.read_bytes() if member.out.exists() else b""
    return [msgspec.json.decode(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def got(member):
    return [said for said in lines_of(member) if said[0] == "got"]


def has_all(member):
    """It has got something of every topic."""
    return {said[1].partition("/")[2] for said in got(member)} == set(TOPICS)


def together(members):
    """Streams that two processes delivered in turns: that either got between two messages of one owner of the other."""
    wrong = []
    for one, other in itertools.permutations(members, 2):
        for owner, stream in {(said[5], said[1]) for said in got(one)}:
            times = [said[6] for said in got(one) if (said[5], said[1]) == (owner, stream)]
            wrong += [said for said in got(other) if said[1] == stream and times[0] <= said[6] <= times[-1]]
    return wrong


def test_of_two_processes_under_one_name_the_newer_lives_and_the_older_is_told(group):
    older = group.member("c1")
    group.until(lambda: got(older), "the first to get something")
    newer = group.member("c1", "another")
    assert older.child.wait(60) == SUPERSEDED, older.said
    assert "newer life of c1" in older.said
    group.until(lambda: has_all(newer), "the newer to get all")
    group.until_all_is_read()
    assert together(group.members) == []
    assert newer.stop() == 0, newer.said


@pytest.mark.long
def test_a_stopped_process_that_was_replaced_delivers_nothing_when_it_goes_on(group):
    older = group.member("c1")
    group.until(lambda: got(older), "the first to get something")
    older.child.send_signal(signal.SIGSTOP)
    newer = group.member("c1")
    group.until(lambda: has_all(newer), "the newer to get all")
    before = len(got(older))
    older.child.send_signal(signal.SIGCONT)
    assert older.child.wait(60) == SUPERSEDED, older.said
    assert len(got(older)) <= before + 1, "what it was about to note when it was stopped"
    group.until_all_is_read()
    assert newer.stop() == 0, newer.said


@pytest.mark.long
def test_a_node_whose_state_was_lost_gets_its_streams_again(group):
    first = group.member("c1", "lost")
    group.until(lambda: got(first), "the first to get something")
    first.child.kill()
    first.child.wait()
    (group.folder / "lost" / "c1.life").unlink()
    second = group.member("c1", "lost")
    group.publish()
    group.until_all_is_read()
    owners = [{said[5].partition("/")[0] for said in got(one)} for one in group.members]
    assert not owners[0] & owners[1], "another life"
    assert second.stop() == 0, second.said
