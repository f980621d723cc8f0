"""Input lines: the lines of the user's file or folder, or of our own source, that a part of the demo sends."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import msgspec

from statemachines.kernel import ConfigurationError

OWN_SOURCE = Path(__file__).parents[1] / "kernel"


class LineOptions(msgspec.Struct, frozen=True):
    """The options of a demo that sends lines."""

    input: Annotated[
        str, msgspec.Meta(description="PATH: a text file or folder whose lines are sent (default: our own source)")
    ] = ""

    @property
    def place(self) -> Path | None:
        """Where the lines are; None: our own source."""
        return Path(self.input) if self.input else None

    def check(self) -> None:
        """Raises `ConfigurationError` where there is no line."""
        input_lines(self.place, 1, 1)


def input_lines(given: Path | None, wanted: int, longest: int) -> list[bytes]:
    """`wanted` lines, again and again from the first where there are fewer; each cut to `longest` bytes, none blank.

    Raises `ConfigurationError` where there is no line, or nothing that can be read.
    """
    place = given or OWN_SOURCE
    if not place.exists():
        raise ConfigurationError("--input", str(place), "is no file and no folder")
    files = sorted(place.rglob("*.py" if given is None else "*")) if place.is_dir() else [place]
    try:
        found = [line[:longest] for file in files if file.is_file() for line in file.read_bytes().split(b"\n")]
    except OSError as error:
        raise ConfigurationError("--input", str(place), f"cannot be read: {error.strerror}") from error
    lines = [line for line in found if line.strip()]
    if not lines:
        raise ConfigurationError("--input", str(place), "has no line in it")
    return list(itertools.islice(itertools.cycle(lines), wanted))
