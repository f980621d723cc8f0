"""Swarm: a scenario of which every seed draws its own mixture, so that no kind of fault always hides another.

A run with all kinds of faults at once is always much the same run; one with a few of them, at other rates and with
another load, goes where that one never goes.  What a seed draws follows from the seed alone, and each thing is drawn
from a stream of its own: one more leaves all others as they are.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from statemachines_sim.scenario import Range, Scenario, Swarm


def settle(scenario: Scenario, seed: int) -> Scenario:
    """The scenario that this seed makes of it, which is no swarm any more; itself, if it is none."""
    swarm = scenario.swarm
    if swarm is None:
        return scenario

    def chance(key: str) -> random.Random:
        return random.Random(f"{seed}/swarm/{key}")

    def pick(key: str, bounds: Range | None, otherwise: int) -> int:
        return otherwise if bounds is None else chance(key).randint(*bounds)

    counts = {
        kind: _count(chance(f"faults.{kind}"), getattr(scenario.faults, kind), swarm)
        for kind in scenario.faults.__struct_fields__
    }
    load, (delay_low, delay_high) = scenario.load, scenario.network.delay_ms
    work_low, work_high = load.work_ms
    rates = chance("rates")
    settled = replace(
        scenario,
        swarm=None,
        faults=replace(scenario.faults, **counts),
        rates=tuple(sorted(rates.sample(scenario.rates, rates.randint(1, len(scenario.rates))))),
        members=replace(
            scenario.members, consumers=pick("members.consumers", swarm.consumers, scenario.members.consumers)
        ),
        load=replace(
            load,
            messages=pick("load.messages", swarm.messages, load.messages),
            topics=pick("load.topics", swarm.topics, load.topics),
            batch=pick("load.batch", swarm.batch, load.batch),
            take=pick("load.take", swarm.take, load.take),
            work_ms=(work_low, max(work_low, pick("load.work_ms", swarm.work_ms, work_high))),
        ),
        network=replace(
            scenario.network,
            delay_ms=(delay_low, max(delay_low, pick("network.delay_ms", swarm.delay_ms, delay_high))),
            tail=scenario.network.tail if swarm.tail is None else round(chance("network.tail").uniform(*swarm.tail), 3),
        ),
    )
    most = affordable(settled)
    return replace(settled, load=replace(settled.load, messages=min(settled.load.messages, most)))


def affordable(scenario: Scenario) -> int:
    """How many messages the consumers can deal with in half of the time of a run: more would break L5 without any
    fault of the protocol."""
    load = scenario.load
    half_ms = 500 * (scenario.phases.safety_s + scenario.phases.liveness_s)
    return int(half_ms * 2 / max(sum(load.work_ms), 1) * min(load.take, load.batch) * scenario.members.consumers)


def drawn(scenario: Scenario, seed: int) -> dict[str, object]:
    """What the seed drew, for people and for the run's parameters; empty if the scenario is no swarm."""
    if scenario.swarm is None:
        return {}
    settled = settle(scenario, seed)
    kinds = [kind for kind in settled.faults.__struct_fields__ if getattr(settled.faults, kind)[1]]
    return {
        "kinds": kinds,
        "rates": settled.rates,
        "consumers": settled.members.consumers,
        "messages": settled.load.messages,
        "topics": settled.load.topics,
        "batch": settled.load.batch,
        "take": settled.load.take,
        "work_ms": settled.load.work_ms,
        "delay_ms": settled.network.delay_ms,
        "tail": settled.network.tail,
    }


def _count(chance: random.Random, bounds: Range, swarm: Swarm) -> Range:
    """How many faults of a kind this seed has: none, if the kind takes no part."""
    takes_part = chance.random() < swarm.share
    return bounds if takes_part else (0, 0)
