"""Rows about campaigns: what a second process gains, against what two empty loops gain on this machine just then."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from time import perf_counter
from typing import Final

from statemachines_bench.row import Pair, Ratio, Row

SEEDS: Final = 80
"""Four jobs of a campaign, two for each process."""

TURNS: Final = 200_000_000
"""Turns of the empty loop: some seconds."""

PROCESSES: Final = 2


def campaign_gain() -> float:
    """How many times sooner a campaign is done by two processes than by one, their start included."""
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import named

    scenario = named("storm")

    def seconds(processes: int) -> float:
        began = perf_counter()
        campaign(scenario, range(SEEDS), processes=processes)
        return perf_counter() - began

    return seconds(1) / seconds(PROCESSES)


def loop_gain() -> float:
    """The same for a loop that does nothing; the processes run already."""
    with ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(spin, [1_000_000] * PROCESSES))

        def seconds(shares: list[int]) -> float:
            began = perf_counter()
            list(pool.map(spin, shares))
            return perf_counter() - began

        return seconds([TURNS]) / seconds([TURNS // PROCESSES] * PROCESSES)


def spin(turns: int) -> None:
    """An empty loop."""
    for _ in range(turns):
        pass


ROWS: Final = (
    Row(
        name="campaign-scale",
        about=f"a campaign of {SEEDS} stormy runs on two processes against one; beside it two empty loops against one",
        unit="times sooner",
        baseline_name="two empty loops",
        prepare=lambda: Pair(campaign_gain, loop_gain),
        ratio=Ratio.OURS_OVER_BASELINE,
        at_least=0.9,
        aim="2",
    ),
)
