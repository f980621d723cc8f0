"""Processes in which the made-up protocol of tests/made_up is installed."""

from __future__ import annotations

import os
from pathlib import Path

PLACE = Path(__file__).parents[1] / "made_up"


def environment(*more: Path) -> dict[str, str]:
    """Of a process that finds it by its entry point, and what is in the folders `more`."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*more, PLACE, PLACE / "installed")))}
