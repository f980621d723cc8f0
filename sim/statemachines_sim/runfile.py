"""Run file: everything a run follows from, as JSON, so that it can be kept, sent and repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from statemachines import registry
from statemachines.kernel import ConfigurationError
from statemachines.trace import fingerprints
from statemachines.whole_file import write_whole
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Scenario, from_plain, to_plain


class RunFile(msgspec.Struct, frozen=True):
    """A run: its scenario, seed and fault schedule, what came out, and the tables it was made with."""

    scenario: Scenario
    seed: int
    schedule: tuple[Fault, ...]
    monitor: str = ""
    detail: str = ""
    fingerprints: dict[str, str] = {}


class _Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The same as it stands in a file."""

    scenario: dict[str, Any]
    seed: int
    schedule: tuple[Fault, ...]
    monitor: str = ""
    detail: str = ""
    fingerprints: dict[str, str] = {}


def write(path: Path, run: RunFile) -> None:
    """As indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = msgspec.structs.asdict(run) | {"scenario": to_plain(run.scenario)}
    write_whole(path, msgspec.json.format(msgspec.json.encode(_Plain(**fields)), indent=2) + b"\n")


def read(path: Path) -> RunFile:
    """The run in a file; raises `ConfigurationError` for anything else."""
    try:
        plain = msgspec.json.decode(path.read_bytes(), type=_Plain)
        scenario = from_plain(plain.scenario).check()
    except OSError as error:
        raise ConfigurationError("run file", str(path), f"cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigurationError("run file", str(path), f"is not a run file: {error}") from error
    for fault in plain.schedule:
        if fault.kind not in scenario.kinds:
            raise registry.unknown(f"{path.name}: fault", fault.kind, scenario.kinds)
    return RunFile(**(msgspec.structs.asdict(plain) | {"scenario": scenario}))


def tables(protocol: str) -> dict[str, str]:
    """The fingerprints of the tables of a protocol, and of those that it rests on, as they are."""
    return fingerprints([protocol, *registry.protocol(protocol).rests_on])
