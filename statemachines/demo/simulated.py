"""The simulated part of a demo: many seeds of a scenario, over all cores."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from statemachines.demo.protocol import Advance, DemoVerdict, Say

if TYPE_CHECKING:
    from statemachines_sim.world import RunOutcome


class SimulatedDemo(msgspec.Struct, frozen=True):
    """What it came to; `wrong` lists what does not hold."""

    runs: int
    faults: dict[str, int]
    rows: int
    seconds: float
    wrong: list[str]


def simulate(
    scenario: str, out: Path, seeds: int, say: Say, advance: Advance, too_tame: Callable[[RunOutcome], str]
) -> tuple[SimulatedDemo, list[RunOutcome]]:
    """Run it; `too_tame(outcome)` says what a run that shows too little lacks ("": nothing)."""
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import find_scenario

    say(f"simulated: {seeds} seeds of the scenario {scenario!r}")
    begin = time.monotonic()
    done = 0

    def progress(more: int) -> None:
        nonlocal done
        done += more
        advance(done, seeds)

    outcomes = campaign(
        find_scenario(scenario), range(seeds), out=out, processes=os.cpu_count() or 1, progress=progress
    )
    wrong = [f"seed {one.seed}: {one.monitor}: {one.detail}" for one in outcomes if not one.is_held]
    wrong += [f"seed {one.seed} was too tame: {lack}" for one in outcomes if (lack := too_tame(one))]
    faults: Counter[str] = Counter()
    for one in outcomes:
        faults.update(one.faults)
    rows = sum(one.rows for one in outcomes)
    return SimulatedDemo(len(outcomes), dict(sorted(faults.items())), rows, time.monotonic() - begin, wrong), outcomes


def verdict(came: SimulatedDemo, properties: str) -> DemoVerdict:
    """The line of the table: every monitor held in every run."""
    figure = f"{came.runs} runs, {sum(came.faults.values()):,} faults"
    return DemoVerdict("simulated", f"every monitor ({properties})", not came.wrong, figure)
