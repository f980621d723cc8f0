"""Lines: what the demo of losses publishes."""

from __future__ import annotations

import itertools
from pathlib import Path

from statemachines.kernel import ConfigurationError

LINES = 360
"""So many lines, of all publishers together."""
LONGEST = 120
"""Bytes of a line; what is longer is cut."""
OWN_SOURCE = Path(__file__).parents[2] / "sequence_windows"


def read_lines(given: Path | None) -> list[bytes]:
    """The lines that are published: at most `LINES`, short texts again and again until there are as many; each has a
    number before it.  Raises `ConfigurationError` where there are none."""
    place = given or OWN_SOURCE
    if not place.exists():
        raise ConfigurationError("--input", str(place), "is no file and no folder")
    files = sorted(place.rglob("*.py" if given is None else "*")) if place.is_dir() else [place]
    try:
        found = [line.strip()[:LONGEST] for file in files if file.is_file() for line in file.read_bytes().split(b"\n")]
    except OSError as error:
        raise ConfigurationError("--input", str(place), f"cannot be read: {error.strerror}") from error
    lines = [line for line in found if line]
    if not lines:
        raise ConfigurationError("--input", str(place), "has no line in it")
    cycle = itertools.islice(itertools.cycle(lines), LINES)
    return [b"%d %s" % (number, line) for number, line in enumerate(cycle)]
