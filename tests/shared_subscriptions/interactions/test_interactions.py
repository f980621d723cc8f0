"""Interactions: scripts whose every line is held against what the machines do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from interaction_stage import perform

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
NUMBERS = {20, 21, 22, 23, 24, 26, 27, 28, 33}
"""The scenarios of the protocol page that are told here."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_what_happens_is_what_the_script_says(path, pytestconfig):
    script = path.read_text()
    happened = perform(script)
    if pytestconfig.getoption("--gapless-rewrite"):
        path.write_text(happened)
    else:
        assert happened == script, (
            f"{path.name}: other things happen; if they are right, run pytest with --gapless-rewrite"
        )


def test_every_scenario_that_belongs_here_is_here():
    assert {int(path.stem.split("-")[0]) for path in SCRIPTS} >= NUMBERS


def test_rewriting_is_refused_where_ci_is_set():
    command = [sys.executable, "-m", "pytest", "--gapless-rewrite", "--collect-only", "-q", __file__]
    done = subprocess.run(command, env={**os.environ, "CI": "1"}, capture_output=True, text=True)
    assert done.returncode == 4
    assert "--gapless-rewrite would make" in done.stderr


def test_another_outcome_fails_and_rewriting_repairs_it(tmp_path):
    script = "start consumer-1\n    something else\n"
    happened = perform(script)
    assert happened != script
    assert perform(happened) == happened


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("dance consumer-1", "is no input"),
        ("quietly", "is no input"),
        ("deliver 7", "does not fit"),
        ("start", "does not fit"),
        ("say a~1/1 leader-1 pong", "does not fit"),
        ("say a~1/1 leader-1 leader_wanted wings=2", "has no wings"),
    ],
)
def test_what_is_no_input_is_named_with_its_line(line, why):
    with pytest.raises(ValueError, match=f"line 2: .*{why}"):
        perform(f"# a comment\n{line}\n")


def test_a_stage_repeats_itself():
    lines = ["start consumer-1", "run 3000", "publish a 5", "run 6000", "take consumer-1 3", "ack consumer-1"]
    assert perform("\n".join(lines)) == perform("\n".join(lines))
