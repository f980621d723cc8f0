"""What a protocol says about itself to the simulator, and the scenarios of it.

A protocol gives one value, a `SimProtocol`, at the place that its registration names as the area `sim`.  All of it has
defaults: a protocol without stores has no devices, one without liveness goals a watch that misses nothing.

    class LockSim(SimProtocol[Section]):
        name = "lock_service"
        section = Section                                    # its part of a scenario file
        properties = ("S1", "L1")
        def cast(self, own): return (machine_role("server", SERVER, ServerRecord), ...)
        def watch(self, own, judge): return LockWatch(judge)

    SIM = LockSim()

Keys: the values of a scenario by their paths, as settings and swarms name them.

A key is looked for in what is the same for every protocol (`faults.crash`, `network.tail`), then in the section of its
protocol (`configuration.exclusive`, or in full `PROTOCOL.configuration.exclusive`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from random import Random
from typing import Any, Final, Generic, TypeVar

import msgspec

from statemachines import registry
from statemachines.input_file import convert_input
from statemachines.kernel import ConfigurationError
from statemachines_sim.cluster import Fixture, Role, SimCluster, Watch
from statemachines_sim.faults import NEUTRAL, FaultKind
from statemachines_sim.faults.fault_sampler import FaultSampler
from statemachines_sim.judge import Judge
from statemachines_sim.run_settings import RunSettings
from statemachines_sim.units import S as SECOND

S = TypeVar("S", bound=msgspec.Struct)


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The section of a protocol that has none."""


class SimProtocol(Generic[S]):
    """Base of what a protocol says to the simulator.

    `section`: the type of its part of a scenario file, with a default for every key; `properties`: the names its watch
    judges; `faults`: kinds of its own beside those of every protocol; `scenarios`: a folder of scenario files that come
    with it, `package:path`.
    """

    name: str = "nothing"
    section: type[S] = Nothing  # type: ignore[assignment]
    properties: tuple[str, ...] = ()
    faults: tuple[FaultKind, ...] = ()
    scenarios: str = ""

    def check(self, own: S, scenario: Scenario) -> None:
        """Raises `ConfigurationError` where a value of the section breaks a rule."""

    def settle(self, own: S, scenario: Scenario) -> S:
        """The section as it runs, after a swarm has drawn: bounded by what can be dealt with in the time there is."""
        return own

    def cast(self, own: S) -> tuple[Role, ...]:
        """Who takes part."""
        return ()

    def devices(self, own: S) -> tuple[Fixture, ...]:
        """What they ask."""
        return ()

    def longest_ns(self, own: S) -> int:
        """The longest timeout that a process may sleep through: a long pause is longer."""
        return 20 * SECOND

    def play(self, own: S, world: SimCluster, chance: Random) -> None:
        """Plan the load: `world.after(ns, do, ...)`."""

    def watch(self, own: S, judge: Judge) -> Watch:
        """Who judges a run."""
        return Watch(judge)

    def facts(self, own: S, scenario: Scenario) -> Mapping[str, object]:
        """What judges of the trace must know beside the settings."""
        return {}

    @property
    def kinds(self) -> dict[str, FaultKind]:
        """Name -> kind, of every kind of fault that a scenario of it may draw."""
        return {kind.name: kind for kind in (*NEUTRAL, *self.faults)}

    def sampler(self, scenario: Scenario, kind: str, chance: Random, count: int) -> FaultSampler:
        """What the `count` faults of a kind are drawn from."""
        own: Any = scenario.own
        return FaultSampler(scenario, self.cast(own), self.devices(own), self.longest_ns(own), kind, chance, count)


NOTHING: SimProtocol[Nothing] = SimProtocol()
"""A protocol without roles or devices: what a world by hand begins with."""


class Scenario(RunSettings, frozen=True):
    """One scenario: the settings of a run, and what their protocol says of them."""

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
        return self.sim.kinds


@cache
def sim_of(protocol: str) -> SimProtocol[Any]:
    """What a protocol, by its name or `module:ATTRIBUTE`, says to the simulator."""
    name = registry.protocol(protocol).name
    sim = registry.load_area(name, "sim")
    if not isinstance(sim, SimProtocol) or sim.name != name:
        called = getattr(sim, "name", type(sim).__name__)
        raise ConfigurationError("protocol", name, f"its area sim must be a SimProtocol of that name, not {called!r}")
    return sim


FIXED = ("name", "about", "protocol")
"""What says which scenario it is."""


class Common(RunSettings, frozen=True, kw_only=True):
    """What a scenario file says of every protocol, as it stands there: the protocol by its name."""

    protocol: str


KEYS: Final = tuple(key for key in RunSettings.__struct_fields__ if key != "own")


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
        raise registry.make_unknown_error("key", key, (*KEYS, sim.name), f"keys of the protocol stand in [{sim.name}]")
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


def values(scenario: Scenario) -> dict[str, Any]:
    """Every key and its value."""
    plain = to_plain(scenario)
    own = plain.pop(scenario.sim.name)
    plain["faults"] = {kind: [0, 0] for kind in scenario.kinds} | plain["faults"]
    found = dict(_leaves(own)) | dict(_leaves(plain))
    return {key: value for key, value in found.items() if key not in FIXED}


def put(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """The scenario with these values; every key is known.  Raises `msgspec.ValidationError` for one of a wrong type."""
    plain = to_plain(scenario)
    name = scenario.sim.name
    own = plain[name]
    for key, value in changes.items():
        path, last = _split(key.removeprefix(f"{name}."))
        common = path[0] in plain if path else last in plain
        section = plain if common and not key.startswith(f"{name}.") else own
        for one in path:
            section = section[one]
        section[last] = value
    changed = from_plain(plain)
    return msgspec.structs.replace(changed, protocol=scenario.protocol)


def settings(scenario: Scenario) -> dict[str, Any]:
    """The whole scenario as judges of a trace read it: the protocol's section beside the common keys."""
    plain = to_plain(scenario)
    own: dict[str, Any] = plain.pop(scenario.sim.name)
    return own | plain


def _split(key: str) -> tuple[list[str], str]:
    *path, last = key.split(".")
    return path, last


def _leaves(section: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}{name}.")
        elif not isinstance(value, dict):
            yield f"{path}{name}", value
