"""Rows about campaigns: what a second process gains, against what two empty loops gain on this machine just then."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter
from typing import Final

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

SEEDS: Final = 80
"""Four jobs of a campaign, two for each process: enough that their start weighs little."""

TURNS: Final = 100_000_000
"""Turns of the empty loop: some seconds."""

PROCESSES: Final = 2


class Gains:
    """How many times sooner two processes are done than one: `campaign`, their start included; `loop`, an empty one in
    processes that run already.  Both are found together, in turns."""

    def __init__(self, size: Size) -> None:
        self._loop = 1.0
        self._seeds, self._turns = size.pick((SEEDS, TURNS), (2, 1_000))

    def campaign(self) -> float:
        """Measure both; the gain of the campaign."""
        spent: list[tuple[float, float]] = []
        with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
            list(pool.map(spin, [1_000_000] * PROCESSES))
            for processes in (1, PROCESSES):
                shares = [self._turns // processes] * processes
                loop = measure_seconds(lambda shares=shares: list(pool.map(spin, shares)))  # type: ignore[misc]
                spent.append((loop, measure_seconds(lambda processes=processes: run(self._seeds, processes))))  # type: ignore[misc]
        alone, together = spent
        self._loop = alone[0] / together[0]
        return alone[1] / together[1]

    def loop(self) -> float:
        """The gain of the loop in the same turns."""
        return self._loop


def run(seeds: int, processes: int) -> None:
    """A campaign, as `gapless campaign` runs it."""
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import find_scenario

    campaign(find_scenario("storm"), range(seeds), processes=processes)


def measure_seconds(work: Callable[[], object]) -> float:
    """How long it takes."""
    began = perf_counter()
    work()
    return perf_counter() - began


def spin(turns: int) -> None:
    """An empty loop."""
    for _ in range(turns):
        pass


def prepare(size: Size) -> TurnPair:
    """Ours measures both."""
    gains = Gains(size)
    return TurnPair(gains.campaign, gains.loop)


ROWS: Final = (
    BenchRow(
        name="campaign-scale",
        about=f"a campaign of {SEEDS} stormy runs on two processes against one; beside it two empty loops against one",
        unit="times sooner",
        baseline_name="two empty loops",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_least=0.9,
        aim="2",
    ),
)
