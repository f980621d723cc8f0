"""Fault: one entry of a fault schedule, as data; and how a seed draws a schedule.

A schedule alone decides what goes wrong: a run is its scenario, its seed and its schedule, and a failing one is shrunk
by leaving out entries.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from statemachines_sim.scenario import Range, Scenario

S = 1_000_000_000
"""Nanoseconds in a second."""

KINDS: Final = ("crash", "leader_crash", "pause", "partition", "loss", "duplicate", "hold_back", "store")

PROCESS_KINDS: Final = ("crash", "leader_crash", "pause")


class Fault(msgspec.Struct, frozen=True):
    """`kind` hits `target` (a node, "" = the network or the stores) from `at_ns` for `for_ns`; a partition cuts what
    `target` sends to `peer`; `rate`: the share of messages or requests that are hit."""

    kind: str
    at_ns: int
    for_ns: int
    target: str = ""
    peer: str = ""
    rate: float = 0.0


def draw(scenario: Scenario, seed: int) -> tuple[Fault, ...]:
    """The fault schedule of a seed, by time."""
    chance = random.Random(f"{seed}/faults")
    consumers = [f"consumer-{number + 1}" for number in range(scenario.members.consumers)]
    leaders = [f"leader-{number + 1}" for number in range(scenario.members.leaders)]
    faults: list[Fault] = []
    for kind in KINDS:
        bounds: Range = getattr(scenario.faults, kind)
        for _ in range(chance.randint(*bounds)):
            faults.append(_draw_one(kind, scenario, chance, consumers, leaders))
    return tuple(sorted(faults, key=lambda fault: (fault.at_ns, fault.kind, fault.target, fault.peer)))


def _draw_one(kind: str, scenario: Scenario, chance: random.Random, consumers: list[str], leaders: list[str]) -> Fault:
    end = int(scenario.phases.safety_s * S)
    at = chance.randrange(S, end)
    lasts = _duration(chance)
    match kind:
        case "crash":
            return Fault(kind, at, lasts, chance.choice(consumers))
        case "leader_crash":
            return Fault(kind, at, lasts, chance.choice(leaders))
        case "pause":
            return Fault(kind, at, lasts, chance.choice(consumers + leaders))
        case "partition":
            ends = [chance.choice(consumers), chance.choice(leaders)]
            chance.shuffle(ends)
            return Fault(kind, at, lasts, ends[0], ends[1])
        case _:
            return Fault(kind, at, lasts, rate=chance.choice((0.05, 0.2, 0.5, 0.9)))


def _duration(chance: random.Random) -> int:
    """From a blink to longer than any timeout, each order of magnitude as likely."""
    return int(S * 0.05 * 10 ** (chance.random() * 2.5))
