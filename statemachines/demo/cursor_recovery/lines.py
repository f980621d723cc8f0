"""Lines: what the demo of the queue ships."""

from __future__ import annotations

import itertools
from pathlib import Path

from statemachines.kernel import ConfigurationError

LINES = 1_800
"""So many lines, of all writers together."""
LONGEST = 200
"""Bytes of a line; what is longer is cut."""
OWN_SOURCE = Path(__file__).parents[2] / "kernel"


def read_lines(given: Path | None) -> list[bytes]:
    """The lines that are shipped: at most `LINES`, short ones again and again until there are as many."""
    place = given or OWN_SOURCE
    if not place.exists():
        raise ConfigurationError("--input", str(place), "is no file and no folder")
    files = sorted(place.rglob("*.py" if given is None else "*")) if place.is_dir() else [place]
    try:
        found = [line[:LONGEST] for file in files if file.is_file() for line in file.read_bytes().split(b"\n")]
    except OSError as error:
        raise ConfigurationError("--input", str(place), f"cannot be read: {error.strerror}") from error
    lines = [line for line in found if line.strip()]
    if not lines:
        raise ConfigurationError("--input", str(place), "has no line in it")
    return list(itertools.islice(itertools.cycle(lines), LINES))
