"""A PostgreSQL that answers nobody: who works on it can be told to end, and goes on where it goes on."""

import signal
from contextlib import ExitStack

import pytest
from carried_workload import declare_group
from outside import LeaderHost, Process, read_acknowledged, standing_still
from stage import TENTH

from statemachines.drivers.signals import GAVE_UP
from statemachines.testing.postgres import PostgresServer
from tests.waiting import pause, until

GOOD = (0, GAVE_UP, 130)
"""In good order, or as by SIGKILL, which is said; it is waited for much longer than either takes.  130: a publisher
that was ended before it had stored everything."""
LINES = 400
STILL_S = 4
"""Longer than any lease, any claim and any patience with a store, in tenths of their defaults."""


@pytest.fixture(scope="module")
def server():
    with PostgresServer() as server:
        yield server


class Group:
    """A leader host, a consumer and a publisher of `LINES` lines, of which some have been read."""

    def __init__(self, folder, url, **times):
        self.folder, self.got = folder, folder / "got.jsonl"
        config = folder / "group.toml"
        config.write_text("".join(f"{name} = {value}\n" for name, value in times.items()))
        self.given = ("--store", url, "--config", config)
        (folder / "lines.txt").write_text("".join(f"{line}\n" for line in range(LINES)))

    def __enter__(self):
        declare_group(self.given[1], config=self.given[3])
        with ExitStack() as stack:
            _, url, *options = self.given
            leader = stack.enter_context(LeaderHost(self.folder, url, *options))
            reading = ("--leader", f"127.0.0.1:{leader.port}", "--out", self.got, "--state", self.folder)
            consumer = Process(self.folder / "c.log", "node", "consumer", "$shared/g/#", *self.given, *reading)
            self.processes = [stack.enter_context(self.publish()), stack.enter_context(consumer), leader]
            self.wait_for(20)
            self._left = stack.pop_all()
        return self

    def __exit__(self, *_):
        self._left.close()

    def publish(self):
        """A publisher of the lines."""
        publishing = ("--input", self.folder / "lines.txt", "--rate", "200", "--state", self.folder)
        return Process(self.folder / "p.log", "node", "publisher", *self.given[:2], *publishing)

    def wait_for(self, count):
        """So many lines, or more, are acknowledged."""
        until(lambda: len(read_acknowledged(self.got)) >= count, lambda: [process.said for process in self.processes])


def ended(processes):
    """What they ended with when they were told to."""
    for process in processes:
        process.child.send_signal(signal.SIGTERM)
    codes = [process.child.wait(120) for process in processes]
    for process, code in zip(processes, codes, strict=True):
        assert "Traceback" not in process.said
        assert ("does not end in good order" in process.said) == (code == GAVE_UP), process.said
    return codes


@pytest.mark.long
def test_a_node_of_sessions_ends_while_its_database_stands_still(server, tmp_path):
    url = server.database("sessions")
    role = ("node", "sessions", "--store", url, "--name", "a", "--listen", "127.0.0.1:0")
    with Process(tmp_path / "a.log", *role) as node:
        assert "listening on" in node.child.stdout.readline(), node.said
        with standing_still(url):
            (code,) = ended([node])
        assert code in GOOD


@pytest.mark.long
def test_a_group_goes_on_when_its_database_does_and_ends_while_it_stands_still(server, tmp_path):
    url = server.database("group")
    with Group(tmp_path, url, **TENTH) as group:
        with standing_still(url):
            pause(STILL_S, "the database stands still")
        group.wait_for(LINES)
        assert read_acknowledged(group.got) == set(range(LINES))
        publisher, *others = group.processes
        assert publisher.child.wait(60) == 0, publisher.said
        with group.publish() as another:
            group.wait_for(LINES + 20)
            with standing_still(url):
                codes = ended([another, *others])
    assert all(code in GOOD for code in codes), codes
