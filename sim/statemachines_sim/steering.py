"""Steering: which seeds of a swarm a campaign runs next, by what its runs have covered so far.

A run covers rows of tables, pairs of rows that one instance takes one after the other, and pairs of a fault and a state
that it hits.  What few runs cover is rare.  Half of the next seeds are drawn uniformly.  The other half have the fault
kinds and values with which runs covered rare things.  Each run still follows from its seed alone, so `replay` and
`simulate --seed` make it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from statemachines.kernel import ConfigurationError
from statemachines.trace import TraceRow
from statemachines.trace.row import ROW
from statemachines_sim.scenario import Scenario
from statemachines_sim.swarm import draw_values

Item = tuple[str, ...]
"""What a run may cover: a row, a pair of rows, or a fault and a state."""

Trait = tuple[str, object]
"""What a seed draws: whether a kind of fault takes part, and in which quarter of its bounds a value lies."""

CANDIDATES: Final = 8
"""For each seed that is chosen, so many are looked at."""

REMEMBERED: Final = 400
"""Runs whose coverage decides."""

T_NODE, T_MACHINE, T_INSTANCE, T_KIND, T_EVENT, T_DEST, T_ROW = (
    [column.name for column in ROW].index(name)
    for name in ("node", "machine", "instance", "kind", "event", "dest", "row")
)


def list_covered(rows: Iterable[TraceRow]) -> frozenset[Item]:
    """Everything that a run covers."""
    found: set[Item] = set()
    latest: dict[str, str] = {}
    states: dict[str, dict[str, Item]] = {}
    for row in rows:
        kind, node, machine = row[T_KIND], row[T_NODE], row[T_MACHINE]
        if kind == "fault":
            found |= {(row[T_EVENT], *state) for state in states.get(node, {}).values()}
        elif kind in ("step", "timer") and row[T_ROW] >= 0:
            instance, number = row[T_INSTANCE], str(row[T_ROW])
            found |= {(machine, number), (machine, latest.get(instance, ""), number)}
            latest[instance] = number
            states.setdefault(node, {})[instance] = (machine, row[T_DEST])
    return frozenset(found)


def list_traits(scenario: Scenario, seed: int) -> tuple[Trait, ...]:
    """What the seed of a swarm draws."""
    assert scenario.swarm is not None
    drawn = draw_values(scenario, seed)
    kinds = drawn.pop("kinds")
    assert isinstance(kinds, list)
    traits: list[Trait] = [(kind, kind in kinds) for kind in scenario.faults]
    for key, (low, high) in scenario.swarm.draw.items():
        value = drawn[key]
        number = value[1] if isinstance(value, list | tuple) else value
        assert isinstance(number, int | float)
        traits.append((key, int(4 * (number - low) / (high - low or 1))))
    return tuple(traits)


class SeedSteering:
    """Chooses the seeds of a campaign, from `first` on, with what `note` says of those before."""

    def __init__(self, scenario: Scenario, first: int = 0) -> None:
        if scenario.swarm is None:
            raise ConfigurationError("--steer", scenario.name, "is no swarm, so every seed draws the same mixture")
        self._scenario = scenario
        self._candidates: dict[int, tuple[Trait, ...]] = {}
        self._next = first
        self._covered: list[tuple[tuple[Trait, ...], frozenset[Item]]] = []
        self._counts: Counter[Item] = Counter()

    def note(self, seed: int, covered: frozenset[Item]) -> None:
        """A run with this seed is done."""
        self._covered.append((list_traits(self._scenario, seed), covered))
        self._counts.update(covered)

    def choose(self, count: int) -> tuple[int, ...]:
        """The next seeds, each once."""
        while len(self._candidates) < CANDIDATES * count:
            self._candidates[self._next] = list_traits(self._scenario, self._next)
            self._next += 1
        worth = dict(self._weigh_traits())
        ranked = sorted(self._candidates, key=lambda seed: -sum(worth.get(one, 0.0) for one in self._candidates[seed]))
        steered = ranked[: count // 2] if worth else []
        uniform = [seed for seed in sorted(self._candidates) if seed not in steered][: count - len(steered)]
        chosen = (*steered, *uniform)
        self._candidates = {seed: traits for seed, traits in self._candidates.items() if seed not in chosen}
        return chosen

    def _weigh_traits(self) -> Iterator[tuple[Trait, float]]:
        """How much more of what is rare the runs with a trait have covered than all runs have."""
        if not self._covered:
            return
        rarity = {item: 1 / count for item, count in self._counts.items()}
        recent = [(traits, sum(rarity[item] for item in items)) for traits, items in self._covered[-REMEMBERED:]]
        mean = sum(amount for _, amount in recent) / len(recent)
        amounts: dict[Trait, list[float]] = {}
        for traits, amount in recent:
            for trait in traits:
                amounts.setdefault(trait, []).append(amount)
        for trait, some in amounts.items():
            yield trait, (sum(some) - mean * len(some)) / (len(some) + 1)
