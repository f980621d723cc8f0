"""The machine and test of README's "Test your own" run as they stand; a mistake in the machine is found."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "test_latch.py"


def run(path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)


def test_the_example_passes():
    done = run(EXAMPLE)
    assert done.returncode == 0, done.stdout
    assert "examples/test_latch.py" in (ROOT / "README.md").read_text()


@pytest.mark.long
def test_a_step_that_looks_at_the_clock_is_found(tmp_path):
    wrong = EXAMPLE.read_text().replace("knocks=record.knocks + 1", "knocks=now_ns % 7")
    path = tmp_path / "test_wrong.py"
    path.write_text(wrong)
    done = run(path)
    assert done.returncode == 1, done.stdout
    assert "Unlock" in done.stdout or "Knock" in done.stdout
