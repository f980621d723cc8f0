"""Lines: what the demo of the queue ships."""

from __future__ import annotations

from pathlib import Path

from statemachines.demo.input_lines import input_lines

LINES = 1_800
"""So many lines, of all writers together."""
LONGEST = 200
"""Bytes of a line; what is longer is cut."""


def read_lines(given: Path | None) -> list[bytes]:
    """The lines that are shipped, `LINES` of them.  Raises `ConfigurationError` where there are none."""
    return input_lines(given, LINES, LONGEST)
