"""The process harness: processes of any program start, are waited for, killed, stopped, and none outlives it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import types

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.testing import process_harness
from statemachines.testing.process_harness import HarnessError, ProcessHarness, free_port

PROGRAM = """
import pathlib, signal, sys
role, *more = sys.argv[1:]
name, state = (more[more.index(option) + 1] for option in ("--name", "--state"))
if "--broken" in more:
    sys.exit("no such thing as --broken")
signal.signal(signal.SIGTERM, lambda *_: (print("goodbye", flush=True), sys.exit(0)))
pathlib.Path(state, f"{name}.life").open("a").write("1")
print(f"{role}: here at {name}:7", flush=True)
while "--once" not in more:
    signal.pause()
"""


@pytest.fixture
def nodes(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with ProcessHarness(tmp_path / "nodes", program=(sys.executable, str(program)), common=("--x", "1")) as harness:
        yield harness


def test_a_process_is_waited_for_until_it_has_said_its_line(nodes):
    node = nodes.start("server", "server-1", says="here at ")
    assert (node.role, node.name, node.address) == ("server", "server-1", "server-1:7")
    assert node.read_output() == "server: here at server-1:7\n"
    with pytest.raises(ConfigurationError, match="a process of this name runs"):
        nodes.start("server", "server-1")


def test_whoever_is_killed_may_come_back_under_its_name(nodes):
    first = nodes.start("server", "server-1", says="here at ")
    assert nodes.kill("server-1") is first
    assert first.exit_code == -9
    assert not lives(first.pid)
    nodes.check_alive()  # it was we who killed it
    again = nodes.start("server", "server-1", says="here at ")
    assert again.read_output() == "server: here at server-1:7\n", "of its own part of the file"
    nodes.close()
    assert nodes.wrong == []
    assert (again.exit_code, lives(again.pid)) == (0, False)


def test_roles_end_in_the_opposite_order_in_which_they_came(nodes, monkeypatch):
    ended = []
    reap = process_harness.NodeProcess.reap
    monkeypatch.setattr(process_harness.NodeProcess, "reap", lambda node: (ended.append(node.name), reap(node))[1])
    for role, name in (("server", "server-1"), ("client", "client-1"), ("server", "server-2"), ("client", "client-2")):
        nodes.start(role, name, says="here at ")
    nodes.close()
    assert ended == ["client-1", "client-2", "server-1", "server-2"]


def test_whoever_stands_still_is_woken_to_end(nodes):
    node = nodes.start("server", "server-1", says="here at ")
    node.stop()
    nodes.close()
    assert nodes.wrong == []
    assert node.read_output().endswith("goodbye\n")


def test_who_ends_by_itself_is_named_with_what_it_said(nodes):
    bad = nodes.start("server", "server-1", "--broken")
    assert bad.wait() == 1
    with pytest.raises(HarnessError, match="server-1 ended with 1; it said: no such thing as --broken"):
        nodes.until(lambda: False, "nothing")
    assert len(nodes.close()) == 1


def test_an_interrupt_that_comes_while_a_process_is_begun_leaves_none(nodes, monkeypatch):
    begun = []

    def popen(*arguments, **options):
        begun.append(subprocess.Popen(*arguments, **options))
        signal.raise_signal(signal.SIGINT)
        return begun[0]

    monkeypatch.setattr(process_harness, "subprocess", types.SimpleNamespace(**vars(subprocess) | {"Popen": popen}))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # workers of pytest-xdist ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            nodes.start("server", "server-1", says="here at ")
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.undo()
    nodes.close()
    assert begun[0].poll() is not None


def test_who_is_to_end_by_itself_may(nodes):
    assert nodes.start("job", "job-1", "--once", ends=True).wait() == 0
    nodes.check_alive()
    assert nodes.start("job", "job-2", "--once").wait() == 0
    with pytest.raises(HarnessError, match="job-2 ended with 0"):
        nodes.check_alive()


def test_what_never_comes_is_named(nodes):
    nodes.start("server", "server-1", says="here at ")
    with pytest.raises(HarnessError, match=r"waited 0\.05 s for a miracle; server-1 said: nothing"):
        nodes.until(lambda: False, "a miracle", patience_s=0.05)


def test_who_does_not_stop_is_killed_and_named(nodes, monkeypatch):
    monkeypatch.setattr(process_harness, "STOP_S", 0.2)
    node = nodes.start("server", "server-1", says="here at ")
    monkeypatch.setattr(node, "resume", lambda: None)
    node.stop()
    assert nodes.close() == ["server-1 did not stop on SIGTERM"]
    assert not lives(node.pid)


def test_a_port_is_given_to_one_alone_here_and_in_other_processes(monkeypatch):
    mine = [free_port() for _ in range(5)]
    assert len(set(mine)) == 5
    monkeypatch.setattr(process_harness, "PORTS", (mine[0], mine[0] + 1))
    with pytest.raises(HarnessError, match="100 of them were taken"):
        free_port()
    program = (
        f"from statemachines.testing import process_harness as p; p.PORTS = ({mine[0]}, {mine[0] + 1}); p.free_port()"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "100 of them were taken" in other.stderr


def test_a_free_port_is_not_one_that_the_system_gives_away():
    port = free_port()
    assert 20_000 <= port < 32_000
    with socket.create_server(("127.0.0.1", port)):
        pass


def lives(pid):
    """Whether there is such a process (a zombie, too)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
