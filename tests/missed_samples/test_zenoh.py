"""Real zenoh, on loopback: every scene in a process of its own, which is killed where it hangs."""

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zenoh_scenes
from scene_server import SceneServer

from statemachines.testing.process_harness import free_port

HERE = Path(__file__).parent
PATIENCE_S = 180


@pytest.fixture(scope="module")
def server() -> Iterator[SceneServer]:
    server = SceneServer("-m", "zenoh_scenes", folder=HERE)
    yield server
    server.close()


@pytest.mark.parametrize("name", sorted(zenoh_scenes.SCENES))
def test_over_real_zenoh(server: SceneServer, name: str) -> None:
    """It ends by itself, interpreter and all, and holds."""
    assert server.play(name) == "held\n"


def test_the_page_shows_what_happens() -> None:
    """The example of docs/zenoh.md prints what it says."""
    page = (HERE.parents[1] / "docs" / "zenoh.md").read_text(encoding="utf-8")
    program, printed = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "text"))
    assert program is not None
    assert printed is not None
    command = [sys.executable, "-c", program[1]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.stdout, done.stderr) == (printed[1], "")


@pytest.mark.long
def test_roles_of_processes(tmp_path: Path) -> None:
    """A router, a cache, a publisher, a subscriber: what was published before it came is printed, and logged."""
    endpoint = f"tcp/127.0.0.1:{free_port()}"
    with ExitStack() as stack:

        def node(role: str, *options: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "statemachines", "node", role, *options]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        def line(process: subprocess.Popen[str]) -> dict[str, Any]:
            assert process.stdout is not None
            found: dict[str, Any] = json.loads(process.stdout.readline() or "{}")
            return found

        stack.enter_context(killed_after(PATIENCE_S, stack))
        assert line(node("zenoh-router", "--listen", endpoint)) == {"listening": [endpoint]}
        there = ("--connect", endpoint, "--trace", "logs")
        assert line(node("cache", "--key", "k/*", *there)) == {"cache": "k/*"}
        (tmp_path / "lines").write_text("a\nb\nc\n")
        publisher = node("zenoh-publisher", "--key", "k/a", "--input", "lines", "--every", "0.1", *there)
        source = line(publisher)["publisher"]
        assert line(publisher) == {"published": 3, "next": 3}
        reader = node("zenoh-subscriber", "--key", "k/*", "--history", "2", *there)
        assert line(reader) == {"subscribed": "k/*"}
        for number, payload in ((1, "b"), (2, "c")):
            said = {"key": "k/a", "from": source, "number": number, "payload": payload, "recovered": True}
            assert line(reader) == said
        reader.send_signal(signal.SIGTERM)
        _, counts = reader.communicate(timeout=PATIENCE_S)
        assert json.loads(counts)["delivered"] == 2
        assert reader.returncode == 0
        log = (tmp_path / "logs" / "zenoh-subscriber-1~1.ndjson").read_text()
        assert '"event":"deliver"' in log


@contextmanager
def killed_after(seconds: float, stack: ExitStack) -> Iterator[None]:
    """Whoever waits for a line of a node that says nothing waits no longer than that."""
    timer = threading.Timer(seconds, stack.close)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
