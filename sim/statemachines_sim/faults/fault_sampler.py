"""FaultSampler: what the faults of one kind are drawn from: their times, and who may be hit."""

from __future__ import annotations

import random
from typing import TypeVar

from statemachines_sim.cluster import Fixture, Role, Tolerance
from statemachines_sim.run_settings import RunSettings
from statemachines_sim.units import S

T = TypeVar("T")

BEGIN_NS = S
"""Faults begin after the first second."""


def split_pair(text: str) -> tuple[str, str]:
    """`consumer -> leader`: who does not reach whom."""
    one, _, other = text.partition("->")
    return one.strip(), other.strip()


class FaultSampler:
    """For the kind `kind`, of which a seed draws `count`.  `at_ns`, `for_ns`: of the fault that is drawn now;
    `longest_ns`: the longest timeout of the protocol."""

    def __init__(
        self,
        scenario: RunSettings,
        cast: tuple[Role, ...],
        fixtures: tuple[Fixture, ...],
        longest_ns: int,
        kind: str,
        chance: random.Random,
        count: int,
    ) -> None:
        self.scenario = scenario
        self.kind = kind
        self.chance = chance
        self.count = count
        self.end_ns = int(scenario.phases.safety_s * S)
        self.at_ns = self.for_ns = 0
        self._cast = cast
        self._fixtures = fixtures
        self.longest_ns = longest_ns

    def shuffle(self) -> FaultSampler:
        """Another fault: when it begins, and how long it lasts, from a blink to longer than most timeouts, each order
        of magnitude as likely."""
        self.at_ns = self.chance.randrange(BEGIN_NS, max(BEGIN_NS + 1, self.end_ns))
        self.for_ns = int(S * 0.05 * 10 ** (self.chance.random() * 2.5))
        return self

    def nodes(self) -> list[str]:
        """Every node that says that this kind hits it."""
        return [node for role in self._cast if self.kind in role.faults for node in role.exposed_nodes]

    def everybody(self) -> list[str]:
        """Every node that takes part from the beginning."""
        return [node for role in self._cast for node in role.exposed_nodes]

    def devices(self) -> list[str]:
        """Every device that says so."""
        return [fixture.name for fixture in self._fixtures if self.kind in fixture.faults]

    def targets(self) -> list[str]:
        """Both."""
        return self.nodes() + self.devices()

    def target(self) -> str:
        """One of them."""
        return self.chance.choice(self.targets())

    def rate(self) -> float:
        """The share that is hit."""
        return self.chance.choice(self.scenario.rates)

    def sides(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The nodes of each two roles (or of a role, and a device) of which one says that it talks to the other; where
        no role says so, everybody talks to everybody."""
        cast = {role.name: role for role in self._cast if self.kind in role.faults}
        names: dict[str, tuple[str, ...]] = {fixture.name: (fixture.name,) for fixture in self._fixtures}
        names |= {name: role.exposed_nodes for name, role in cast.items()}
        sides = [(role.exposed_nodes, names.get(other, ())) for role in cast.values() for other in role.talks_to]
        if not any(role.talks_to for role in cast.values()):
            sides = [(tuple(self.targets()), tuple(self.targets()))]
        return [(one, other) for one, other in sides if one and other and len({*one, *other}) > 1]

    def ends(self) -> tuple[str, str]:
        """Two nodes that talk to each other, in either order."""
        sides = self.sides()
        one, other = sides[0] if len(sides) == 1 else self.chance.choice(sides)
        first = self.chance.choice(one)
        ends = [first, self.chance.choice([node for node in other if node != first] or [one[0]])]
        self.chance.shuffle(ends)
        return ends[0], ends[1]

    def one_way(self) -> tuple[str, str]:
        """Who does not reach whom: of a pair that the scenario names at least one end is a single node, or a device; of
        the other role it may be all nodes."""
        ends = list(split_pair(self.chance.choice(self.scenario.unreachable)))
        cast = {role.name: role.exposed_nodes for role in self._cast}
        roles = [at for at in (0, 1) if ends[at] in cast]
        one_only = len(roles) == 1 and not {*ends} & {node for nodes in cast.values() for node in nodes}
        single = self.chance.choice(roles) if roles else -1
        for at in roles:
            others = [node for node in cast[ends[at]] if node != ends[1 - at]]
            is_one = one_only or (len(roles) == 2 and at == single) or ends[0] == ends[1]
            if is_one or self.chance.randrange(2):
                ends[at] = self.chance.choice(others)
        return ends[0], ends[1]

    def tolerance(self, target: str) -> Tolerance:
        """How wrong the clock of `target` may be."""
        for fixture in self._fixtures:
            if fixture.name == target:
                return fixture.clock
        return next(role.clock for role in self._cast if target in role.exposed_nodes)
