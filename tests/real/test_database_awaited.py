"""A PostgreSQL that is not there when nodes start, against real processes: they wait, say so, and go on (SS-261)."""

import signal

import pytest

from statemachines.testing.postgres import PostgresServer
from statemachines.testing.process_harness import free_port
from tests.real.outside import Process, read_acknowledged
from tests.waiting import until

LINES = 20
SECRET = "hunter2secret"
WAITS = "waits for its store"


@pytest.fixture
def server():
    with PostgresServer() as server:
        yield server


@pytest.mark.long
def test_SS_261_nodes_that_start_before_their_database_go_on_when_it_comes(server, tmp_path):
    store = server.database("late").replace("postgres@", f"postgres:{SECRET}@")
    server.stop(signal.SIGINT)
    port, lines, out = free_port(), tmp_path / "lines.txt", tmp_path / "got.jsonl"
    lines.write_text("\n".join(f"line {number}" for number in range(LINES)))
    given = ("--store", store)
    at = ("--listen", f"127.0.0.1:{port}", "--state", tmp_path)
    reads = ("--leader", f"127.0.0.1:{port}", "--state", tmp_path, "--out", out, "--start", "beginning")
    with (
        Process(tmp_path / "declare.log", "group", "declare", "$shared/g/#", *given, "--start", "beginning") as declare,
        Process(tmp_path / "leader.log", "node", "leader", *given, *at) as leader,
        Process(tmp_path / "consumer.log", "node", "consumer", "$shared/g/#", *given, *reads) as consumer,
        Process(tmp_path / "publisher.log", "node", "publisher", *given, "--input", lines, "--state", tmp_path) as pub,
    ):
        everybody = (declare, leader, consumer, pub)
        for one in everybody:
            one.until_said(WAITS)
            assert one.child.poll() is None, one.said
        server.start()
        assert declare.child.wait(60) == 0, declare.said
        assert pub.child.wait(60) == 0, pub.said
        until(lambda: read_acknowledged(out) == set(range(LINES)), lambda: consumer.said)
        assert (consumer.stop(), leader.stop()) == (0, 0)
        for one in everybody:
            assert SECRET not in one.said
