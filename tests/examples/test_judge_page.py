"""docs/judge_your_logs.md: its files are written into an empty folder, its commands say what they say there.

Numbers differ from run to run where processes are killed, so they are compared as "N"; those that matter are below.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from page_listings import mask, read_commands

from statemachines.cli import run
from statemachines_reports.foreign_log import judge_files, read_mapping

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "judge_your_logs.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
CODES = {"once.toml": 1, "--map events.toml": 1, "broken.ndjson": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder, beside which the examples are."""
    home, before = Path.cwd(), set(sys.modules)
    place = tmp_path_factory.mktemp("page")
    (place / "examples").symlink_to(ROOT / "examples")
    os.chdir(place)
    sys.path.insert(0, str(place))
    yield place
    sys.path.remove(str(place))
    os.chdir(home)
    if "shop" not in before:
        sys.modules.pop("shop", None)


def run_command(command):
    """What a command prints, and its exit code."""
    if not command.startswith("gapless"):
        command = command.replace("python ", f"{sys.executable} ", 1) if command.startswith("python ") else command
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
        return done.stdout + done.stderr, done.returncode
    line, _, target = command.partition(" > ")
    words = [
        name for word in shlex.split(line) for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])
    ]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words[1:])
    if target:
        Path(target).write_text(out.getvalue())
    return out.getvalue() + err.getvalue(), code


def test_every_listing_runs_and_every_command_says_what_the_page_says(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    said, shown = "", 0
    for language, name, text in BLOCK.findall(PAGE):
        if name:
            Path(name).write_text(text)
        elif language == "text":
            assert mask(text) in mask(said)
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(text, "page", "exec"), {})
            assert printed.getvalue().startswith("held {'duplicates': ")
        else:
            for command, lines in read_commands(text):
                said, code = run_command(command)
                assert code == next(
                    (one for part, one in CODES.items() if part in command and "judge" in command), 0
                ), said
                assert [line for line in lines if mask(line) not in mask(said)] == [], said
                shown += 1
    assert shown == 11


def test_kills_are_seen_as_duplicates_and_as_nothing_else(folder):
    """Each process that was killed had a batch of which it had acknowledged nothing."""
    logs = sorted((folder / "out" / "redis").glob("*.ndjson"))
    found = judge_files(logs, read_mapping(folder / "redis.toml"))
    counted = {one.name: one.found for one in found.checks}
    assert found.verdict == "held"
    assert counted["duplicates"] >= 4
    assert {name: count for name, count in counted.items() if count and name not in ("duplicates", "order")} == {}
    deliveries = sum(log.read_text().count('"deliver"') for log in logs)
    published = (folder / "out" / "redis" / "publisher.ndjson").read_text().count('"publish"')
    assert deliveries - counted["duplicates"] == published >= 600
