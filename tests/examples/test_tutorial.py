"""The tutorial, run from its first block to its last exactly as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from statemachines.testing.process_harness import free_port

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "consumer_group.md"
BLOCK = re.compile(r"(?:`([\w.]+)`:\n\n)?```(\w+)\n(.*?)```", re.DOTALL)


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder in which every block was run: files are written, commands follow each other in one shell."""
    folder = tmp_path_factory.mktemp("tutorial")
    script = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for name, language, text in BLOCK.findall(TUTORIAL.read_text(encoding="utf-8")):
        assert language in ("python", "sh")
        if language == "python":
            assert name, "a file has a name"
            (folder / name).write_text(text, encoding="utf-8")
        else:
            script.append(text)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "LEADER": free_address()}
    command = ["bash", "-c", "\n".join(script)]
    with (folder / "said.txt").open("w") as said:
        ended = subprocess.run(command, cwd=folder, env=environment, stdout=said, stderr=said, timeout=300, check=False)
    assert ended.returncode == 0, (folder / "said.txt").read_text()
    return folder


@pytest.mark.long
def test_every_order_is_billed_though_a_worker_was_killed(folder):
    billed = [line.split() for line in (folder / "billed.txt").read_text().splitlines()]
    orders = {(topic, int(offset)) for topic, offset, _ in billed}
    names = ("ada", "bob", "cyd", "dan", "eve", "fay")
    assert orders == {(f"orders/{name}", number) for name in names for number in range(50)}
    workers = {worker for _, _, worker in billed}
    assert workers <= {"worker-1", "worker-2", "worker-3"}
    assert workers - {"worker-2"}, "others went on from where it was killed"
    said = (folder / "said.txt").read_text()
    assert "declared" in said.splitlines()
    assert f"all 300 orders are billed, {len(billed) - 300} of them twice" in said


@pytest.mark.long
def test_the_trace_of_the_service_holds(folder):
    summary = json.loads((folder / "report" / "summary.json").read_text())
    assert summary["held"]
    checks = {check["name"]: check for check in summary["checks"]}
    assert checks["acknowledged"]["checked"] == 300
    assert checks["exclusivity"]["checked"] >= 300
    assert (folder / "report" / "index.html").exists()
    assert summary["absent"] == []
    assert [line["fault"] for line in summary["fail_overs"]] == ["kill"]
    assert summary["fail_overs"][0]["measured"] >= 1
