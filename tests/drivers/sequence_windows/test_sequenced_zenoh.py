"""Sequence windows over real zenoh, on loopback: every scene in a process of its own, killed where it hangs."""

import subprocess
import sys
from pathlib import Path

import pytest
import sequenced_scenes

HERE = Path(__file__).parent
PATIENCE_S = 180


@pytest.mark.parametrize("name", sorted(sequenced_scenes.SCENES))
def test_sequenced_over_real_zenoh(name: str) -> None:
    """It ends by itself, interpreter and all, and holds."""
    command = [sys.executable, "-X", "faulthandler", str(HERE / "sequenced_scenes.py"), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "held\n"
