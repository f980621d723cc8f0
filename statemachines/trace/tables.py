"""Tables: the fingerprints of the tables that a trace is made with, one a protocol.

Append whole lines: to files that may be on a disk that becomes full.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from statemachines import catalogue
from statemachines.kernel import ConfigurationError, Fsm, GaplessError, name_of


def fingerprint(machines: tuple[Fsm[Any], ...]) -> str:
    """What identifies the tables: 16 hex digits over every line of every machine, child machines included."""
    digest = hashlib.sha256()
    seen: set[str] = set()
    for machine in machines:
        for fsm in machine.family():
            if fsm.full_name in seen:
                continue
            seen.add(fsm.full_name)
            for line in fsm.lines:
                sources = ",".join(str(state.value) for state in line.sources)
                dest = "" if line.dest is None else str(line.dest.value)
                row = (fsm.full_name, str(line.number), name_of(line.event), sources, dest, line.kind, line.clause)
                digest.update(("|".join((*row, line.guard_name, line.action_name)) + "\n").encode())
    return digest.hexdigest()[:16]


def list_fingerprints(protocols: Iterable[str]) -> dict[str, str]:
    """Protocol -> fingerprint of its tables as they are here; raises `ConfigurationError` for an unknown protocol."""
    return {name: fingerprint(catalogue.machines(name)) for name in protocols}


def join_fingerprints(where: str, tables: Iterable[dict[str, str]]) -> dict[str, str]:
    """The fingerprints of several runs or logs together; raises `ConfigurationError` where two are of other tables of
    one protocol, naming both."""
    found: dict[str, str] = {}
    for some in tables:
        for protocol, one in some.items():
            if found.setdefault(protocol, one) != one:
                rule = (
                    f"holds {protocol} of tables {found[protocol]} and of tables {one}: "
                    "what is judged together must be of one version; keep them apart"
                )
                raise ConfigurationError("trace", where, rule)
    return found


def describe_tables(tables: dict[str, str]) -> str:
    """The fingerprints as people read them."""
    return ", ".join(f"{one} of {protocol}" for protocol, one in sorted(tables.items())) or "none"


def check_tables(where: str, theirs: dict[str, str]) -> None:
    """A trace can only be judged by the tables that it was made with; raises `ConfigurationError` for others."""
    for protocol, ours in list_fingerprints(theirs).items():
        if theirs[protocol] != ours:
            rule = (
                f"was made with tables {theirs[protocol]} of {protocol}, these are {ours}: "
                "judge it with the version that made it"
            )
            raise ConfigurationError("trace", where, rule)


def append_whole(file: int, path: Path, data: bytes) -> None:
    """All of `data` is the operating system's when this returns; `file` is the open descriptor of `path`.

    Raises `GaplessError` where the disk is full or broken: then some of it may be there, and its last line be cut,
    which whoever reads such a file leaves out.
    """
    while data:
        try:
            data = data[os.write(file, data) :]
        except OSError as error:
            raise GaplessError(f"{path}: {error.strerror}; what was written before is there") from error
