"""Log damage: the logs of a real run of which one is missing, cut, there twice, or of another run or store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.trace.log import read_log

OTHER_RUN: Final = "another-run"
THIS_RUN: Final = "this-run"
OTHER_STORE: Final = "another-store"

Lines = list[bytes]


def _cut_half(lines: Lines) -> Lines:
    return lines[: 1 + len(lines) // 2]


def _tear(lines: Lines) -> Lines:
    middle = len(lines) // 2
    return [*lines[:middle], lines[middle][: len(lines[middle]) // 2]]


def _name_run(lines: Lines, name: str = "") -> Lines:
    """Its head names this run; "": its own, or one where it names none."""
    head = msgspec.json.decode(lines[0], type=dict[str, Any])
    head["run"] = name or head.get("run") or THIS_RUN
    return [msgspec.json.encode(head) + b"\n", *_without_checksum(lines[1:])]


def _move_to_other_store(lines: Lines) -> Lines:
    """Its head and its lines of stores name another."""
    found = []
    for line in lines:
        if b'"stores":{' in line:
            named = msgspec.json.decode(line, type=dict[str, Any])
            if "kind" not in named:
                named["stores"] = dict.fromkeys(named["stores"], OTHER_STORE)
                line = msgspec.json.encode(named) + b"\n"
        found.append(line)
    return _without_checksum(found)


def _without_checksum(lines: Lines) -> Lines:
    """The end says how many rows there are, as the damage would have left it, and no checksum betrays the damage."""
    return [
        b'{"end":%d}\n' % msgspec.json.decode(line)["end"] if line.startswith(b'{"end":') else line for line in lines
    ]


ACTS: Final[dict[str, Callable[[Lines], Lines]]] = {
    "log-missing": lambda lines: [],
    "log-halved": _cut_half,
    "log-twice": lambda lines: lines,
    "log-torn": _tear,
    "log-of-another-run": lambda lines: _name_run(lines, OTHER_RUN),
    "two-stores": _move_to_other_store,
}
"""Kind -> the lines of the log that it hits, as they are then."""


def damage_logs(directory: Path, kind: str, seed: int, out: Path) -> str:
    """Copy the logs of a run to `out`, one of them damaged, which the seed draws; where, in words."""
    paths = sorted(directory.glob("*.ndjson"))
    if not paths:
        raise ConfigurationError(
            "--kind", kind, f"damages logs, and {directory} holds none (*.ndjson): name their folder"
        )
    logs = [read_log(path) for path in paths]
    over_store = [Path(log.path) for log in logs if log.stores]
    path = Random(f"{kind}/{seed}").choice(over_store if kind == "two-stores" and over_store else paths)
    shutil.copytree(directory, out, dirs_exist_ok=True)
    for other in paths if kind == "log-of-another-run" else ():
        (out / other.name).write_bytes(b"".join(_name_run(other.read_bytes().splitlines(keepends=True))))
    lines = ACTS[kind](path.read_bytes().splitlines(keepends=True))
    to = out / (f"copy-of-{path.name}" if kind == "log-twice" else path.name)
    if lines:
        to.write_bytes(b"".join(lines))
    else:
        to.unlink()
    return f"{kind}: {path.name}"
