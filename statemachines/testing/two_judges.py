"""Two judges: the monitors of the simulator, and the judge of its trace, asked about the same runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from statemachines.trace.parquet import TraceWriter
from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import run_row
from statemachines_sim.scenario import Scenario
from statemachines_sim.world import World


def list_disagreements(scenarios: Iterable[Scenario], seeds: Iterable[int], folder: Path) -> list[str]:
    """One line for each run of which one says "held" and the other does not; none: they agree.  A property that the
    scenario puts out of scope, or does not promise, is broken for neither.  Files go to `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    runs = [(scenario, seed) for scenario in scenarios for seed in seeds]
    outcomes = []
    with TraceWriter(folder / "trace", "twice") as writer:
        for number, (scenario, seed) in enumerate(runs):
            world = World(scenario, seed)
            outcomes.append(world.run())
            writer.add(run_row(world.scenario, outcomes[-1], number, schedule=world.schedule), world.rows)
    wrong: dict[int, set[str]] = {}
    for line in analyze(folder / "trace", folder / "report", spark=False).tables["findings"]:
        if line["promised"] and line["check"] != "monitors":
            wrong.setdefault(line["run"], set()).add(line["check"])
    return [
        f"{scenario.name}, seed {seed}: monitors: {outcome.monitor or 'held'}; "
        f"judge: {', '.join(sorted(wrong.get(number, ()))) or 'held'}"
        for number, ((scenario, seed), outcome) in enumerate(zip(runs, outcomes, strict=True))
        if (number in wrong) == outcome.is_held
    ]
