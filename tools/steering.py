"""Steering compared with uniform drawing: what is covered, and after how many runs each planted bug is found.

    python tools/steering.py --runs 60 --repeats 10                 a line for each protocol
    python tools/steering.py --runs 60 --bugs shared_subscriptions  a line for each of its bugs instead

Every repeat has seeds of its own.  The medians of all repeats are printed, uniform before steered.
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from functools import cache
from statistics import median

from statemachines_sim.override import override
from statemachines_sim.scenario import Scenario, find_scenario
from statemachines_sim.steering import Item, SeedSteering, list_covered
from statemachines_sim.world import World
from statemachines_spec.bug import plant_bug
from statemachines_spec.protocol import of_protocol

SWARMS = ("cursor_recovery/any_queue", "missed_samples/anything", "persistent_sessions/any_sessions",
          "sequence_windows/any_weather", "shared_subscriptions/swarm")  # fmt: skip
BATCH = 10
STRIDE = 100_000
"""Between the first seeds of two repeats."""


class Comparison:
    """Runs of one swarm, with a bug or none, each made once."""

    def __init__(self, scenario: Scenario, bug: str = "") -> None:
        self._scenario = scenario
        self._bug = bug
        self.run = cache(self._run)

    def _run(self, seed: int) -> tuple[str, frozenset[Item]]:
        with plant_bug(self._bug) if self._bug else nullcontext():
            world = World(self._scenario, seed)
            return world.run().monitor, list_covered(world.rows)

    def follow(self, first: int, runs: int, *, is_steered: bool) -> tuple[int, int, int]:
        """Pairs of rows, all items, and the number of the run in which the bug is found (0: in none)."""
        steering = SeedSteering(self._scenario, first)
        covered: set[Item] = set()
        for begin in range(0, runs, BATCH):
            seeds = steering.choose(BATCH) if is_steered else tuple(range(first + begin, first + begin + BATCH))
            for place, seed in enumerate(seeds):
                what, items = self.run(seed)
                covered |= items
                steering.note(seed, items)
                if what and self._bug:
                    return 0, 0, begin + place + 1
        pairs = sum(len(item) == 3 and item[2].isdecimal() for item in covered)
        return pairs, len(covered), 0


def compare(name: str, bug: str, runs: int, repeats: int, settings: tuple[str, ...]) -> None:
    """One line."""
    comparison = Comparison(override(find_scenario(name), settings), bug)
    found = [
        [comparison.follow(number * STRIDE, runs, is_steered=steered) for number in range(repeats)]
        for steered in (False, True)
    ]
    if bug:
        medians = [median(at or runs + 1 for _, _, at in some) for some in found]
        missed = [sum(not at for _, _, at in some) for some in found]
        print(f"{bug}: found in run {medians[0]:g} and {medians[1]:g}, missed {missed[0]} and {missed[1]}", flush=True)
        return
    pairs, items = ([median(one[place] for one in some) for some in found] for place in (0, 1))
    wins = sum(more[1] > less[1] for less, more in zip(*found, strict=True))
    print(f"{name}: {pairs[0]:g} and {pairs[1]:g} pairs of rows, {items[0]:g} and {items[1]:g} in all, "
          f"steered ahead in {wins} of {repeats}", flush=True)  # fmt: skip


def main() -> None:
    """The lines that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--bugs", nargs="*", default=[], help="bugs, or protocols all of whose bugs are planted")
    parser.add_argument("--only", nargs="*", default=[], help="swarms")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    for name in given.only or SWARMS:
        protocol = name.partition("/")[0]
        bugs = [f"{protocol}/{bug.name}" for bug in of_protocol(protocol).bugs]
        planted = [bug for bug in bugs if {protocol, bug} & set(given.bugs)]
        for bug in planted if given.bugs else [""]:
            compare(name, bug, given.runs, given.repeats, tuple(given.set))


if __name__ == "__main__":
    main()
