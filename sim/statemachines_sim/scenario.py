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
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from statemachines import registry
from statemachines.input_file import convert_input, decode_input, read_input
from statemachines.kernel import ConfigurationError
from statemachines_sim.faults import FaultKind, kinds_of
from statemachines_sim.faults.fault_sampler import FaultSampler, split_pair
from statemachines_sim.protocol import SimProtocol

Range = tuple[int, int]
Bounds = tuple[float, float]

MOST: Final = 1_000_000

FAULTS_A_SECOND: Final = 5
FAULTS_AT_LEAST: Final = 20
"""A safety phase has at most so many faults of a kind: so many a second, or so many in all where it is short."""

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
"""The name of a scenario is part of the names of files."""

SEED_MAX: Final = 2**63 - 1
"""Seeds stand in a trace as whole numbers of 64 bits."""


class Net(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The network between faults.  A share `tail` of the messages is held back for up to `tail_ms`, others overtake;
    with `fifo` nothing overtakes between the same two nodes, as over a connection."""

    delay_ms: Range = (1, 5)
    tail: float = 0.02
    tail_ms: int = 600
    fifo: bool = False


class Swarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What each seed draws for itself: which kinds of faults take part, which of the rates, and the values of any keys
    (`draw`: key -> the least and the most; of a key that is a range, how far it goes up)."""

    share: float = 0.5
    """The chance of each kind of fault in `[faults]` to take part."""
    draw: dict[str, Bounds] = {}


class Phases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults fall in the safety phase; then everything heals, and the liveness properties must come true in time."""

    safety_s: float = 40.0
    liveness_s: float = 120.0


class Scenario(msgspec.Struct, frozen=True):
    """One scenario.  `protocol`: its name, `module:ATTRIBUTE`, or what it says to the simulator itself; `own`: the
    section of that protocol (None: as it is by default)."""

    name: str
    protocol: Any
    own: Any = None
    about: str = ""
    network: Net = Net()
    faults: dict[str, Range] = {}
    """How many faults of each kind a seed draws for the safety phase."""
    rates: tuple[float, ...] = (0.05, 0.2, 0.5, 0.9)
    """The shares of messages or requests that a fault hits: each fault has one of these."""
    phases: Phases = Phases()
    swarm: Swarm | None = None
    unreachable: tuple[str, ...] = ()
    """What faults of that kind are drawn from: `ROLE -> ROLE`; a device or a single node may stand for one role."""
    out_of_scope: tuple[str, ...] = ()
    """Properties that the faults of this scenario may break, being beyond what the protocol promises to bear: they are
    counted, and end no run."""
    event_ms: float = 0.0
    """How long the loop of a process takes for each event: a message, an answer, timers that are due.  Events that
    arrive meanwhile wait, and timers with patience fire after them."""

    def __post_init__(self) -> None:
        if self.own is None:
            msgspec.structs.force_setattr(self, "own", self.sim.section())

    @property
    def sim(self) -> SimProtocol[Any]:
        """What its protocol says to the simulator."""
        return sim_of(self.protocol) if isinstance(self.protocol, str) else self.protocol

    @property
    def kinds(self) -> dict[str, FaultKind]:
        """Every kind of fault that it may draw."""
        return kinds_of(self.sim)

    def check(self) -> Scenario:
        """Itself; raises `ConfigurationError` where a value breaks a rule."""
        if not NAME.fullmatch(self.name):
            rule = "must be 1 to 100 letters, digits, '_', '-' or '.', and begin with none of the last two"
            raise ConfigurationError("name", self.name, rule)
        swarm = self.swarm or Swarm()
        check_bounds(
            ("network.tail", self.network.tail, 0, 1),
            ("network.tail_ms", self.network.tail_ms, 1, 3_600_000),
            ("phases.safety_s", self.phases.safety_s, 1, 86_400),
            ("phases.liveness_s", self.phases.liveness_s, 1, 86_400),
            ("swarm.share", swarm.share, 0, 1),
            ("event_ms", self.event_ms, 0, 1_000),
        )
        check_ranges(("network.delay_ms", self.network.delay_ms))
        for kind, bounds in self.faults.items():
            if kind not in self.kinds:
                raise registry.unknown("faults", kind, self.kinds)
            check_ranges((f"faults.{kind}", bounds))
            most = max(FAULTS_AT_LEAST, int(FAULTS_A_SECOND * self.phases.safety_s))
            if bounds[1] > most:
                rule = f"must be at most {most}: {FAULTS_A_SECOND} for each second of phases.safety_s"
                raise ConfigurationError(f"faults.{kind}", list(bounds), rule)
        if not self.rates or any(not 0 < rate <= 1 for rate in self.rates):
            raise ConfigurationError("rates", list(self.rates), "must be shares above 0 and at most 1")
        for name in self.out_of_scope:
            if name not in self.sim.properties:
                known = ", ".join(self.sim.properties)
                raise ConfigurationError("out_of_scope", name, f"must be one of {known}")
        self.sim.check(self.own, self)
        self._check_pairs()
        self._check_targets()
        if self.swarm is not None:
            from statemachines_sim.swarm import check_swarm

            check_swarm(self)
        return self

    def _check_pairs(self) -> None:
        """Both ends are there, and of a role that talks to itself there are two."""
        cast = self.sim.cast(self.own)
        count = {role.name: len(role.exposed_nodes) for role in cast}
        nodes = [node for role in cast for node in role.exposed_nodes]
        known = (*count, *nodes, *(fixture.name for fixture in self.sim.devices(self.own)))
        for text in self.unreachable:
            ends = split_pair(text)
            for end in ends:
                if end not in known:
                    raise registry.unknown("unreachable", end, known, "write ROLE -> ROLE")
            if not {*ends} & {*count, *nodes} or any(count.get(end, 1) < ends.count(end) for end in ends):
                raise ConfigurationError("unreachable", text, "needs two ends, one of them a node or a role of some")

    def _check_targets(self) -> None:
        """Faults need somebody to hit."""
        for kind, (low, high) in self.faults.items():
            if high and not self.kinds[kind].possible(FaultSampler(self, kind, Random(0), high)):
                rule = "hits nobody; take it out, or let somebody whom it hits take part from the beginning"
                raise ConfigurationError(f"faults.{kind}", [low, high], rule)


class Common(msgspec.Struct, frozen=True):
    """What a scenario file says of every protocol, as it stands there."""

    name: str
    protocol: str
    about: str = ""
    network: Net = Net()
    faults: dict[str, Range] = {}
    rates: tuple[float, ...] = (0.05, 0.2, 0.5, 0.9)
    phases: Phases = Phases()
    swarm: Swarm | None = None
    unreachable: tuple[str, ...] = ()
    out_of_scope: tuple[str, ...] = ()
    event_ms: float = 0.0


KEYS: Final = Common.__struct_fields__


def from_plain(plain: dict[str, Any]) -> Scenario:
    """The scenario of what a file says; raises `ConfigurationError`, or `msgspec.ValidationError` for a wrong type."""
    common = convert_input({key: value for key, value in plain.items() if key in KEYS}, Common)
    sim = sim_of(common.protocol)
    for key in plain:
        if key in KEYS or key == sim.name:
            continue
        if key in registry.names():
            rule = f"is a section of another protocol: the scenario says protocol = {common.protocol!r}"
            raise ConfigurationError(key, "...", rule)
        raise registry.unknown("key", key, (*KEYS, sim.name), f"keys of the protocol stand in [{sim.name}]")
    own = convert_input(plain.get(sim.name, {}), sim.section)
    return Scenario(own=own, **{key: getattr(common, key) for key in KEYS})


def to_plain(scenario: Scenario) -> dict[str, Any]:
    """What a file would say; `from_plain` is its inverse."""
    sim = scenario.sim
    plain: dict[str, Any] = {
        key: msgspec.to_builtins(getattr(scenario, key)) for key in KEYS if key not in ("protocol", "swarm")
    }
    plain["protocol"] = scenario.protocol if isinstance(scenario.protocol, str) else sim.name
    if scenario.swarm is not None:
        plain["swarm"] = msgspec.to_builtins(scenario.swarm)
    plain[sim.name] = msgspec.to_builtins(scenario.own)
    return plain


@cache
def sim_of(protocol: str) -> SimProtocol[Any]:
    """What a protocol, by its name or `module:ATTRIBUTE`, says to the simulator."""
    name = registry.protocol(protocol).name
    sim = registry.area(name, "sim")
    if not isinstance(sim, SimProtocol) or sim.name != name:
        called = getattr(sim, "name", type(sim).__name__)
        raise ConfigurationError("protocol", name, f"its area sim must be a SimProtocol of that name, not {called!r}")
    return sim


def read(path: Path) -> Scenario:
    """The scenario in a file."""
    data = read_input(path, "scenario")
    plain = decode_input(path, "scenario", "a scenario", data, msgspec.toml.decode)
    try:
        return from_plain(plain).check()
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
    raise registry.unknown("scenario", name, names, f"`gapless simulate list` lists them; or give a .toml file{lost}")


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


def check_bounds(*bounded: tuple[str, float, float, float]) -> None:
    """Each (key, value, least, most); raises `ConfigurationError`."""
    for name, value, low, high in bounded:
        if not low <= value <= high:
            raise ConfigurationError(name, value, f"must lie between {low} and {high}")


def check_ranges(*ranges: tuple[str, Range]) -> None:
    """Each (key, range); raises `ConfigurationError`."""
    for name, (low, high) in ranges:
        if not 0 <= low <= high <= MOST:
            raise ConfigurationError(name, [low, high], "must be a range [low, high] with 0 <= low <= high")


def check_times(scenario: Scenario, *times: tuple[str, tuple[float, ...]]) -> None:
    """Each (key, seconds) must lie in the safety phase; raises `ConfigurationError`."""
    for name, some in times:
        if any(not 0 <= at < scenario.phases.safety_s for at in some):
            raise ConfigurationError(name, list(some), "must lie in the safety phase")
