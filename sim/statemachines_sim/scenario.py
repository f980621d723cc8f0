"""Scenario: what a simulated run is made of, read from a TOML file.

Some keys are the same for every protocol; one section, named after the protocol, is of a type of its own:

    name = "storm"
    protocol = "lock_service"        # or "mine:PROTOCOL"

    [lock_service]
    holders = 4

    [faults]
    crash = [2, 3]

Times carry their unit in the name (`_ms`, `_s`).  A range `[low, high]` is drawn from the seed.  Everything that is not
said has the default below; an unknown key, a value of another type or out of its bounds is a `ConfigurationError` that
names the file, the key and the rule.

Check of a scenario: whether each of its values, and whatever a seed may draw, is possible.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines import registry
from statemachines.input_file import decode_input, read_input
from statemachines.kernel import ConfigurationError
from statemachines_sim.faults.fault_sampler import split_pair
from statemachines_sim.protocol import Scenario as Scenario
from statemachines_sim.protocol import from_plain as from_plain
from statemachines_sim.protocol import put, values
from statemachines_sim.protocol import sim_of as sim_of
from statemachines_sim.protocol import to_plain as to_plain
from statemachines_sim.run_settings import Net as Net
from statemachines_sim.run_settings import Phases as Phases
from statemachines_sim.run_settings import Range as Range
from statemachines_sim.run_settings import Swarm as Swarm
from statemachines_sim.run_settings import check_bounds as check_bounds
from statemachines_sim.run_settings import check_ranges as check_ranges
from statemachines_sim.run_settings import check_times as check_times
from statemachines_sim.swarm import is_range

FAULTS_A_SECOND: Final = 5
FAULTS_AT_LEAST: Final = 20
"""A safety phase has at most so many faults of a kind: so many a second, or so many in all where it is short."""

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""The name of a scenario is part of the names of files."""


def check_scenario(scenario: Scenario) -> Scenario:
    """The scenario itself; raises `ConfigurationError` where a value breaks a rule."""
    if not NAME.fullmatch(scenario.name):
        rule = "must be 1 to 100 letters, digits, '_', '-' or '.', and begin with none of the last two"
        raise ConfigurationError("name", scenario.name, rule)
    swarm = scenario.swarm or Swarm()
    check_bounds(
        ("network.tail", scenario.network.tail, 0, 1),
        ("network.tail_ms", scenario.network.tail_ms, 1, 3_600_000),
        ("phases.safety_s", scenario.phases.safety_s, 1, 86_400),
        ("phases.liveness_s", scenario.phases.liveness_s, 1, 86_400),
        ("swarm.share", swarm.share, 0, 1),
        ("event_ms", scenario.event_ms, 0, 1_000),
    )
    check_ranges(("network.delay_ms", scenario.network.delay_ms))
    for kind, bounds in scenario.faults.items():
        if kind not in scenario.kinds:
            raise registry.make_unknown_error("faults", kind, scenario.kinds)
        check_ranges((f"faults.{kind}", bounds))
        most = max(FAULTS_AT_LEAST, int(FAULTS_A_SECOND * scenario.phases.safety_s))
        if bounds[1] > most:
            rule = f"must be at most {most}: {FAULTS_A_SECOND} for each second of phases.safety_s"
            raise ConfigurationError(f"faults.{kind}", list(bounds), rule)
    if not scenario.rates or any(not 0 < rate <= 1 for rate in scenario.rates):
        raise ConfigurationError("rates", list(scenario.rates), "must be shares above 0 and at most 1")
    for name in scenario.out_of_scope:
        if name not in scenario.sim.properties:
            known = ", ".join(scenario.sim.properties)
            raise ConfigurationError("out_of_scope", name, f"must be one of {known}")
    scenario.sim.check(scenario.own, scenario)
    _check_pairs(scenario)
    _check_targets(scenario)
    if scenario.swarm is not None:
        _check_swarm(scenario, scenario.swarm)
    return scenario


def _check_pairs(scenario: Scenario) -> None:
    """Both ends are there, and of a role that talks to itself there are two."""
    cast = scenario.sim.cast(scenario.own)
    count = {role.name: len(role.exposed_nodes) for role in cast}
    nodes = [node for role in cast for node in role.exposed_nodes]
    known = (*count, *nodes, *(fixture.name for fixture in scenario.sim.devices(scenario.own)))
    for text in scenario.unreachable:
        ends = split_pair(text)
        for end in ends:
            if end not in known:
                raise registry.make_unknown_error("unreachable", end, known, "write ROLE -> ROLE")
        if not {*ends} & {*count, *nodes} or any(count.get(end, 1) < ends.count(end) for end in ends):
            raise ConfigurationError("unreachable", text, "needs two ends, one of them a node or a role of some")


def _check_targets(scenario: Scenario) -> None:
    """Faults need somebody to hit."""
    for kind, (low, high) in scenario.faults.items():
        if high and not scenario.kinds[kind].possible(scenario.sim.sampler(scenario, kind, Random(0), high)):
            rule = "hits nobody; take it out, or let somebody whom it hits take part from the beginning"
            raise ConfigurationError(f"faults.{kind}", [low, high], rule)


def _check_swarm(scenario: Scenario, swarm: Swarm) -> None:
    """Whatever a seed draws is a scenario."""
    known = values(replace(scenario, swarm=None))
    for key, (low, high) in swarm.draw.items():
        if key not in known:
            raise registry.make_unknown_error("swarm.draw", key, known)
        if not _is_number(known[key]) and not is_range(known[key]):
            raise ConfigurationError(f"swarm.draw.{key}", [low, high], "is of a key that is no number and no range")
        if low > high:
            raise ConfigurationError(f"swarm.draw.{key}", [low, high], "must be a range [low, high] with low <= high")
        for bound in (low, high):
            _check_end(scenario, key, bound, known[key], [low, high])


def _check_end(scenario: Scenario, key: str, bound: float, now: Any, bounds: list[float]) -> None:
    whole = bound if isinstance(now, float) else int(bound)
    value: Any = [min(now[0], whole), whole] if is_range(now) else whole
    try:
        check_scenario(put(replace(scenario, swarm=None), {key: value}))
    except ConfigurationError as error:
        raise ConfigurationError(f"swarm.draw.{key}", bounds, f"at {bound:g}: {error.key} {error.rule}") from error


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


SEED_MAX: Final = 2**63 - 1
"""Seeds stand in a trace as whole numbers of 64 bits."""


def read(path: Path) -> Scenario:
    """The scenario in a file."""
    data = read_input(path, "scenario")
    plain = decode_input(path, "scenario", "a scenario", data, msgspec.toml.decode)
    try:
        return check_scenario(from_plain(plain))
    except msgspec.MsgspecError as error:
        raise ConfigurationError("scenario", str(path), f"is not a scenario: {error}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path.name}: {error.key}", error.value, error.rule) from error


def list_shipped() -> dict[str, Path]:
    """`protocol/name` -> file of the scenarios that come with all protocols that can be loaded."""
    found: dict[str, Path] = {}
    for one in registry.protocols():
        if "sim" in one.areas:
            found |= {f"{one.name}/{name}": path for name, path in list_shipped_with(one.name).items()}
    return found


def list_shipped_with(protocol: str) -> dict[str, Path]:
    """Name -> file of the scenarios that come with a protocol: in its package, or beside it in a checkout."""
    place = sim_of(protocol).scenarios
    if not place:
        return {}
    package, _, path = place.partition(":")
    inside = Path(str(files(package)))
    found: dict[str, Path] = {}
    for folder in (inside.parent / path, inside / path):
        found |= {one.stem: one for one in sorted(folder.glob("*.toml"))}
    return dict(sorted(found.items()))


def find_scenario(name: str) -> Scenario:
    """A shipped scenario by its name (`storm`, `PROTOCOL/storm`), or the one in a file.

    Raises `ConfigurationError` for an unknown name, and for a short one that several protocols have.
    """
    if name == "-" or name.endswith(".toml") or _is_input(name):
        return read(Path(name))
    known = list_shipped()
    if name in known:
        return read(known[name])
    found = [one for one in known if one.partition("/")[2] == name]
    if len(found) > 1:
        raise ConfigurationError("scenario", name, f"several protocols have one: say {' or '.join(found)}")
    if found:
        return read(known[found[0]])
    names = known if "/" in name else tuple(one.partition("/")[2] for one in known)
    lost = "".join(f"; protocol {one} does not load" for one in registry.find_broken())
    raise registry.make_unknown_error(
        "scenario", name, names, f"`gapless simulate list` lists them; or give a .toml file{lost}"
    )


def _is_input(name: str) -> bool:
    """Whether there is a file, a pipe or a device of this name."""
    try:
        return Path(name).exists() and not Path(name).is_dir()
    except (OSError, ValueError):  # longer than a name may be, or with a null character
        return False


def check_seeds(first: int, count: int = 1) -> range:
    """So many seeds from `first` on; raises `ConfigurationError` for one that no trace can hold."""
    if not 0 <= first <= SEED_MAX - count + 1:
        raise ConfigurationError("seed", first, f"must lie between 0 and {SEED_MAX - count + 1}")
    return range(first, first + count)
