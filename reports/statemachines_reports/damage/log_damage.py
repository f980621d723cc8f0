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
OTHER_STORE: Final = "another-store"

Lines = list[bytes]


def _cut_half(lines: Lines) -> Lines:
    return lines[: 1 + len(lines) // 2]


def _tear(lines: Lines) -> Lines:
    middle = len(lines) // 2
    return [*lines[:middle], lines[middle][: len(lines[middle]) // 2]]


def _change_head(change: Callable[[dict[str, Any]], None]) -> Callable[[Lines], Lines]:
    def act(lines: Lines) -> Lines:
        head = msgspec.json.decode(lines[0], type=dict[str, Any])
        change(head)
        return [msgspec.json.encode(head) + b"\n", *lines[1:]]

    return act


def _name_run(head: dict[str, Any]) -> None:
    head["run"] = OTHER_RUN


def _name_store(head: dict[str, Any]) -> None:
    head["stores"] = dict.fromkeys(head.get("stores") or head["fingerprints"], OTHER_STORE)


ACTS: Final[dict[str, Callable[[Lines], Lines]]] = {
    "log-missing": lambda lines: [],
    "log-halved": _cut_half,
    "log-twice": lambda lines: lines,
    "log-torn": _tear,
    "log-of-another-run": _change_head(_name_run),
    "two-stores": _change_head(_name_store),
}
"""Kind -> the lines of the log that it hits, as they are then."""


def damage_logs(directory: Path, kind: str, seed: int, out: Path) -> str:
    """Copy the logs of a run to `out`, one of them damaged, which the seed draws; where, in words."""
    paths = sorted(directory.glob("*.ndjson"))
    if not paths:
        raise ConfigurationError(
            "--kind", kind, f"damages logs, and {directory} holds none (*.ndjson): name their folder"
        )
    path = Random(f"{kind}/{seed}").choice(paths)
    read_log(path)
    shutil.copytree(directory, out, dirs_exist_ok=True)
    lines = ACTS[kind](path.read_bytes().splitlines(keepends=True))
    to = out / (f"copy-of-{path.name}" if kind == "log-twice" else path.name)
    if lines:
        to.write_bytes(b"".join(lines))
    else:
        to.unlink()
    return f"{kind}: {path.name}"
