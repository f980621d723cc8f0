"""Lines: what the demo of losses publishes."""

from __future__ import annotations

from pathlib import Path

from statemachines.demo.input_lines import input_lines

LINES = 360
"""So many lines, of all publishers together."""
LONGEST = 120
"""Bytes of a line; what is longer is cut."""


def read_lines(given: Path | None) -> list[bytes]:
    """The lines that are published, `LINES` of them, each with a number before it, so that no two are alike.

    Raises `ConfigurationError` where there are none.
    """
    return [b"%d %s" % (number, line) for number, line in enumerate(input_lines(given, LINES, LONGEST))]
