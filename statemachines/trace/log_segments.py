"""Log segments: a log in several files, `LIFE@NUMBER.ndjson`, each of which appears whole under its name.

A program that follows a running cluster reads files once.  So a node closes a segment by its size and by its age, and
renames it; until then its name ends in `.open`.  The segments of a life, joined in their order, are its log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.whole_file import name_file, write_whole

ENDING: Final = ".ndjson"
OPEN: Final = ".open"
"""Ends the name of a segment that a node still writes, or wrote when it was killed."""

NUMBERED: Final = re.compile(r"(?P<life>.+)@(?P<number>\d{6,})\.ndjson(?P<open>\.open)?")

RUN_END: Final = "run.end"
"""The file that ends a run: no node writes to its folder any more."""

BYTES_VARIABLE: Final = "GAPLESS_SEGMENT_BYTES"
SECONDS_VARIABLE: Final = "GAPLESS_SEGMENT_SECONDS"
"""In the environment: nodes write their logs in segments."""


class LogSegments(msgspec.Struct, frozen=True):
    """When a segment is closed: with the row that makes it as long as `size_bytes`, or `seconds` after its first."""

    size_bytes: int = 16 * 2**20
    seconds: float = 10.0


class SegmentName(msgspec.Struct, frozen=True):
    """What the name of a log file says; `number` is 0 for a log in one file."""

    life: str
    number: int = 0
    is_open: bool = False

    @property
    def file_name(self) -> str:
        """The name of the file."""
        part = f"@{self.number:06}" if self.number else ""
        return f"{self.life}{part}{ENDING}{OPEN if self.is_open else ''}"


def parse_name(path: Path) -> SegmentName:
    """What the name of a log file says."""
    found = NUMBERED.fullmatch(path.name)
    if found is None:
        return SegmentName(path.name.removesuffix(ENDING))
    return SegmentName(found["life"], int(found["number"]), found["open"] is not None)


def list_logs(directory: Path) -> dict[str, list[Path]]:
    """Life, as file names say -> the files of its log, in order."""
    for path in sorted(directory.glob(f"*{ENDING}.*z*")):
        raise ConfigurationError("trace log", str(path), "is packed, and is read as it was written: unpack it there")
    paths = [*directory.glob(f"*{ENDING}"), *directory.glob(f"*@*{ENDING}{OPEN}")]
    logs: dict[str, list[Path]] = {}
    for path in sorted(paths, key=lambda one: (parse_name(one).life, parse_name(one).number)):
        logs.setdefault(parse_name(path).life, []).append(path)
    return logs


def check_complete(paths: list[Path]) -> None:
    """The files of a log are one file, or segments from the first on without a hole, of which the last alone is open;
    raises `ConfigurationError` for any others."""
    names = [parse_name(path) for path in paths]
    if len(names) == 1 and not names[0].number:
        return
    for place, (path, name) in enumerate(zip(paths, names, strict=True), 1):
        if name.number == 0 or names[0].number == 0:
            rule = f"is there beside segments of the log of {name.life}: keep one of them"
            raise ConfigurationError("trace log", str(path), rule)
        if name.number != place:
            rule = f"comes after segment {place - 1} of {name.life}: restore those between, or take them out to the end"
            raise ConfigurationError("trace log", str(path), rule)
        if name.is_open and path is not paths[-1]:
            rule = f"was not closed, and segments of {name.life} follow it: restore it from a copy"
            raise ConfigurationError("trace log", str(path), rule)


def read_lines(paths: Iterable[Path], most: int) -> Generator[bytes, None, None]:
    """The lines of some files, one after the other, of at most so many bytes."""
    for path in paths:
        with name_file(path), path.open("rb") as file:
            yield from iter(lambda file=file: file.readline(most), b"")  # type: ignore[misc]


def find_segments(environment: Mapping[str, str] = os.environ) -> LogSegments | None:
    """The segments that the environment asks for (None: a log is one file); raises `ConfigurationError`."""
    size, seconds = environment.get(BYTES_VARIABLE, ""), environment.get(SECONDS_VARIABLE, "")
    if not size and not seconds:
        return None
    if size and not re.fullmatch(r"[1-9]\d{0,11}", size):
        raise ConfigurationError(BYTES_VARIABLE, size, "must be a whole number of bytes, 1 or more")
    if seconds and (not re.fullmatch(r"\d{1,6}(\.\d+)?", seconds) or not float(seconds)):
        raise ConfigurationError(SECONDS_VARIABLE, seconds, "must be a number of seconds above 0")
    default = LogSegments()
    return LogSegments(int(size or default.size_bytes), float(seconds or default.seconds))


def end_run(directory: Path) -> None:
    """Place the file that ends the run in a folder.  Call it when no node writes there any more."""
    write_whole(directory / RUN_END, b"")
