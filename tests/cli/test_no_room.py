"""A disk that is full: one line that names the file, exit code 2, and nothing half-written; what was there stays."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from statemachines import cli

PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace of some runs."""
    folder = tmp_path_factory.mktemp("whole") / "trace"
    few = "shared_subscriptions.load.messages=20"
    assert cli.run(["campaign", "quiet", "--seeds", "3", "--set", few, "--trace", str(folder)]) == cli.Exit.HELD
    return folder


def gapless(*arguments, room, cwd):
    """The command where no file may be larger than so many bytes, as if the disk were full then."""

    def bound():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    return subprocess.run(
        [sys.executable, "-B", "-m", "statemachines", *map(str, arguments)],
        cwd=cwd,
        preexec_fn=bound,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def check(done, name):
    assert done.returncode == cli.Exit.USAGE, done.stderr
    (line,) = (one for one in done.stderr.splitlines() if one.startswith("error: "))
    assert name in line
    assert "File too large" in line
    assert "Traceback" not in done.stderr


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def test_a_trace_of_a_run(tmp_path):
    few = ("--set", "shared_subscriptions.load.messages=20")
    check(gapless("simulate", "quiet", *few, "--trace", "t", room=1_000, cwd=tmp_path), "trace-quiet-")
    assert files(tmp_path) == []


def test_a_trace_of_a_campaign(tmp_path):
    few = ("--set", "shared_subscriptions.load.messages=20")
    check(gapless("campaign", "quiet", "--seeds", "3", *few, "--trace", "t", room=1_000, cwd=tmp_path), "quiet-")
    assert files(tmp_path) == []


def test_tables_summary_and_page_of_an_analysis(tmp_path, trace):
    out = tmp_path / "out"
    assert cli.run(["analyze", str(trace), "--engine=local", "--out", str(out)]) == cli.Exit.HELD
    before = {name: (out / name).read_bytes() for name in files(out)}
    sizes = {name: len(data) for name, data in before.items()}
    largest_table = max(size for name, size in sizes.items() if name.startswith("tables"))
    assert largest_table < sizes["summary.json"] < sizes["index.html"], "so each is the first that finds no room"
    rooms = {2_000: "tables", largest_table + 1: "summary.json", sizes["summary.json"] + 1: "index.html"}
    for room, name in rooms.items():
        check(gapless("analyze", trace, "--engine=local", "--out", out, room=room, cwd=tmp_path), name)
        assert files(out) == sorted(before)
        assert (out / name).is_dir() or (out / name).read_bytes() == before[name]


def test_a_certificate(tmp_path):
    system = ("check", "sequence_windows", "--system", "advisories", "--engine", "plain")
    check(gapless(*system, "--certify", "c", room=100, cwd=tmp_path), "advisories")
    assert files(tmp_path) == []
