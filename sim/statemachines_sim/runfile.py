"""Run file: everything a run follows from, as JSON, so that it can be kept, sent and repeated."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines import registry
from statemachines.input_file import decode_input, read_input
from statemachines.kernel import ConfigurationError
from statemachines.trace import list_fingerprints
from statemachines.whole_file import make_folder, name_file, write_whole
from statemachines_sim.fault import Fault
from statemachines_sim.scenario import Scenario, check_bounds, check_scenario, check_seeds, from_plain, to_plain

MOST_NS: Final = 2**62
"""Nanoseconds, or another amount, of a fault."""


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
    make_folder(path.parent, "run file")
    write_whole(path, encode(run))


def encode(run: RunFile) -> bytes:
    """As it stands in a file."""
    fields = msgspec.structs.asdict(run) | {"scenario": to_plain(run.scenario)}
    return msgspec.json.format(msgspec.json.encode(_Plain(**fields)), indent=2) + b"\n"


def keep(folder: Path, run: RunFile) -> Path:
    """Write it into the folder, under a name of its own: no file that is there is overwritten, and the same run is kept
    once.  Returns where it is; raises `ConfigurationError` or `OSError` where nothing can be kept."""
    data = encode(run)
    make_folder(folder, "run file")
    for number in count(1):
        path = folder / f"{run.scenario.name}-{run.seed}{f'.{number}' if number > 1 else ''}.json"
        if path.is_file() and path.read_bytes() == data:
            return path
        try:
            with name_file(path), path.open("xb"):
                pass
        except FileExistsError:
            continue
        write_whole(path, data)
        return path
    raise AssertionError


def read(path: Path, data: bytes | None = None) -> RunFile:
    """The run in a file, or in its bytes where they are read already; raises `ConfigurationError` for anything else."""
    if data is None:
        data = read_input(path, "run file")
    plain = decode_input(path, "run file", "a run file", data, partial(msgspec.json.decode, type=_Plain))
    try:
        scenario = check_scenario(from_plain(plain.scenario))
        check_seeds(plain.seed)
        known = _names_of(scenario, plain.seed)
        for fault in plain.schedule:
            _check_fault(scenario, fault, known)
    except msgspec.MsgspecError as error:
        raise ConfigurationError("run file", str(path), f"is not a run file: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}: {error.key}", error.value, error.rule) from error
    return RunFile(**(msgspec.structs.asdict(plain) | {"scenario": scenario}))


def _names_of(scenario: Scenario, seed: int) -> list[str]:
    """The nodes and devices of a run."""
    from statemachines_sim.swarm import settle

    settled = settle(scenario, seed)
    nodes = [node for role in settled.sim.cast(settled.own) for node in role.nodes]
    return nodes + [fixture.name for fixture in settled.sim.devices(settled.own)]


def _check_fault(scenario: Scenario, fault: Fault, known: list[str]) -> None:
    """A fault that may have been written by hand; `known`: whom it may name, if it is of a neutral kind."""
    if fault.kind not in scenario.kinds:
        raise registry.make_unknown_error("fault", fault.kind, scenario.kinds)
    own = scenario.kinds[fault.kind] in scenario.sim.faults
    for name in () if own else ("target", "peer"):
        node = getattr(fault, name)
        if node and node not in known:
            raise registry.make_unknown_error(f"{name} of a fault {fault.kind}", node, known)
    check_bounds(
        ("at_ns", fault.at_ns, 0, MOST_NS),
        ("for_ns", fault.for_ns, 0, MOST_NS),
        ("rate", fault.rate, 0, 1),
        ("amount", fault.amount, -MOST_NS, MOST_NS),
    )


def tables(protocol: str) -> dict[str, str]:
    """The fingerprints of the tables of a protocol, and of those that it rests on, as they are."""
    return list_fingerprints([protocol, *registry.protocol(protocol).rests_on])
