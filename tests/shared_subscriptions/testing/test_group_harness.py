"""The processes of a group: they start, are waited for, killed, stopped, and none outlives its harness."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.testing import process_harness
from statemachines.testing.process_harness import HarnessError, free_port
from statemachines.testing.shared_subscriptions.nodes import GroupHarness

README = Path(process_harness.__file__).with_name("README.md")


def test_nodes_start_are_killed_come_back_and_none_is_left(tmp_path):
    port = free_port()
    with GroupHarness(tmp_path) as nodes:
        leader = nodes.leader(listen=f"127.0.0.1:{port}")
        assert leader.address == f"127.0.0.1:{port}"
        assert nodes.kill("leader-1") is leader
        assert leader.exit_code == -9
        nodes.check_alive()  # it was we who killed it
        again = nodes.leader(listen=leader.address)
        assert again.address == leader.address
        assert again.read_output() == f"listening on {again.address}\n", "of its own part of the file"
        with pytest.raises(ConfigurationError, match="a process of this name runs"):
            nodes.leader()
        consumer = nodes.consumer("consumer-1", "$shared/g/#", again.address)
        consumer.stop()  # before it could say what is to be done on SIGTERM
        ready = nodes.consumer("consumer-2", "$shared/g/#", again.address)
        nodes.until(lambda: ready.began, "consumer-2 to begin")
        ready.stop()
    assert nodes.wrong == []
    assert ready.exit_code == 0
    assert None not in {node.exit_code for node in (leader, again, consumer, ready)}


def test_who_ends_by_itself_is_named_with_what_it_said(tmp_path):
    with GroupHarness(tmp_path) as nodes:
        bad = nodes.start("consumer", "consumer-1", "orders/#")
        assert bad.wait() == 2
        with pytest.raises(HarnessError, match=r"consumer-1 ended with 2; it said: .*must be \$shared"):
            nodes.until(lambda: False, "nothing")
    assert len(nodes.wrong) == 1


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "GroupHarness(" in block)
    (tmp_path / "README.md").write_text("one line\nanother\n")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(README), "exec"), {})
    assert "published 2 messages" in (tmp_path / "out" / "nodes" / "publisher-1.out").read_text()
