"""Schedule: how a seed draws what goes wrong.

A schedule alone decides what goes wrong: a run is its scenario, its seed and its schedule, and a failing one is shrunk
by leaving out entries.  Each kind is drawn from a random stream of its own: a kind more or less leaves all others as
they are.
"""

from __future__ import annotations

import random

from statemachines_sim.fault import Fault
from statemachines_sim.protocol import Scenario
from statemachines_sim.swarm import settle


def draw(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """The fault schedule of a seed, by time."""
    scenario = settle(scenario, seed)
    faults: list[Fault] = []
    for name, bounds in scenario.faults.items():
        chance = random.Random(f"{seed}/faults/{name}")
        count = chance.randint(*bounds)
        pot = scenario.sim.sampler(scenario, name, chance, count)
        faults.extend(scenario.kinds[name].draw(pot.shuffle()) for _ in range(count))
    return tuple(sorted(faults, key=lambda fault: (fault.at_ns, fault.kind, fault.target, fault.peer)))
