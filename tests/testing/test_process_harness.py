"""The process harness: processes of any program start, are waited for, killed, stopped, and none outlives it."""

from __future__ import annotations

import os
import subprocess
import sys

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


def test_who_ends_by_itself_is_named_with_what_it_said(nodes):
    bad = nodes.start("server", "server-1", "--broken")
    assert bad.wait() == 1
    with pytest.raises(HarnessError, match="server-1 ended with 1; it said: no such thing as --broken"):
        nodes.until(lambda: False, "nothing")
    assert len(nodes.close()) == 1


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


def lives(pid):
    """Whether there is such a process (a zombie, too)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
