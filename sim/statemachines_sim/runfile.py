"""Run file: everything a run follows from, as JSON, so that it can be kept, sent and repeated."""

from __future__ import annotations

from pathlib import Path

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.trace import fingerprints
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Scenario


class RunFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run: its scenario, seed and fault schedule, what came out, and the tables it was made with."""

    scenario: Scenario
    seed: int
    schedule: tuple[Fault, ...]
    monitor: str = ""
    detail: str = ""
    fingerprints: dict[str, str] = {}


def write(path: Path, run: RunFile) -> None:
    """As indented JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(run), indent=2) + b"\n")


def read(path: Path) -> RunFile:
    """The run in a file; raises `ConfigurationError` for anything else."""
    try:
        run = msgspec.json.decode(path.read_bytes(), type=RunFile)
    except OSError as error:
        raise ConfigurationError("run file", str(path), f"cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ConfigurationError("run file", str(path), f"is not a run file: {error}") from error
    run.scenario.check()
    return run


def tables() -> dict[str, str]:
    """The fingerprints of the tables as they are."""
    return fingerprints(["shared_subscriptions"])
