"""Fault: one entry of a fault schedule, as data; and how a seed draws a schedule.

A schedule alone decides what goes wrong: a run is its scenario, its seed and its schedule, and a failing one is shrunk
by leaving out entries.  Each kind is drawn from a random stream of its own: a kind more or less leaves all others as
they are.  What a kind does stands in `faults/`, one place for each.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from statemachines_sim.scenario import Scenario


class Fault(msgspec.Struct, frozen=True):
    """`kind` hits `target` (a node or a device, "" = the network or all stores) from `at_ns` for `for_ns`; a partition
    cuts what `target` sends to `peer`; `rate`: the share of messages or requests that are hit; `amount`: how much, in
    the unit of the kind."""

    kind: str
    at_ns: int
    for_ns: int
    target: str = ""
    peer: str = ""
    rate: float = 0.0
    amount: int = 0


def draw(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """The fault schedule of a seed, by time."""
    from statemachines_sim.faults.fault_sampler import FaultSampler
    from statemachines_sim.swarm import settle

    scenario = settle(scenario, seed)
    faults: list[Fault] = []
    for name, bounds in scenario.faults.items():
        chance = random.Random(f"{seed}/faults/{name}")
        count = chance.randint(*bounds)
        pot = FaultSampler(scenario, name, chance, count)
        faults.extend(scenario.kinds[name].draw(pot.shuffle()) for _ in range(count))
    return tuple(sorted(faults, key=lambda fault: (fault.at_ns, fault.kind, fault.target, fault.peer)))
