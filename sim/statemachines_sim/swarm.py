"""Swarm: a scenario of which every seed draws its own mixture, so that no kind of fault always hides another.

A run with all kinds of faults at once is always much the same run; one with a few of them, at other rates and with
another load, goes where that one never goes.  What a seed draws follows from the seed alone, and each thing is drawn
from a stream of its own: one more leaves all others as they are.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from statemachines_sim.protocol import Scenario, put, values
from statemachines_sim.run_settings import Bounds


def settle(scenario: Scenario, seed: int) -> Scenario:
    """The scenario that this seed makes of it, which is no swarm any more; itself, if it is none."""
    swarm = scenario.swarm
    if swarm is None:
        return scenario

    def chance(key: str) -> random.Random:
        return random.Random(f"{seed}/swarm/{key}")

    faults = {
        kind: bounds for kind, bounds in scenario.faults.items() if chance(f"faults.{kind}").random() < swarm.share
    }
    rates = chance("rates")
    settled = replace(
        scenario,
        swarm=None,
        faults=faults,
        rates=tuple(sorted(rates.sample(scenario.rates, rates.randint(1, len(scenario.rates))))),
    )
    known = values(settled)
    drawn = {key: _draw(chance(key), bounds, known[key]) for key, bounds in swarm.draw.items()}
    settled = put(settled, drawn) if drawn else settled
    return replace(settled, own=settled.sim.settle(settled.own, settled))


def draw_values(scenario: Scenario, seed: int) -> dict[str, object]:
    """What the seed drew, for people and for the run's parameters; empty if the scenario is no swarm."""
    if scenario.swarm is None:
        return {}
    settled = settle(scenario, seed)
    kinds = [kind for kind, (_, most) in settled.faults.items() if most]
    known = values(settled)
    return {"kinds": kinds, "rates": settled.rates, **{key: known[key] for key in scenario.swarm.draw}}


def _draw(chance: random.Random, bounds: Bounds, now: Any) -> Any:
    """A number between the bounds; for a range, how far it goes up."""
    low, high = bounds
    if isinstance(now, float):
        return round(chance.uniform(low, high), 3)
    drawn = chance.randint(int(low), int(high))
    return [now[0], max(now[0], drawn)] if is_range(now) else drawn


def is_range(value: Any) -> bool:
    """Whether a value is a range [low, high]."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, int) for one in value)
