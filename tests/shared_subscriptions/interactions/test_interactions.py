"""Interactions: scripts whose every line is held against what the machines do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from interaction_stage import perform

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


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


def test_rewriting_is_refused_where_ci_is_set():
    command = [sys.executable, "-m", "pytest", "--gapless-rewrite", "--collect-only", "-q", __file__]
    done = subprocess.run(command, env={**os.environ, "CI": "1"}, capture_output=True, text=True)
    assert done.returncode == 4
    assert "--gapless-rewrite would make" in done.stderr
