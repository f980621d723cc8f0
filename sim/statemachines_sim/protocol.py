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
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from statemachines import registry
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
