"""Two judges: the monitors of the simulator, and the judge of its trace, asked about the same runs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from statemachines_reports.pipeline import analyze
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import Scenario


def disagreements(scenario: Scenario, seeds: Iterable[int], folder: Path) -> list[str]:
    """One line for each of these seeds of which one says "held" and the other does not; none: they agree.  A property
    that the scenario puts out of scope, or does not promise, is broken for neither.  Files go to `folder`."""
    found = []
    for seed in seeds:
        shutil.rmtree(folder, ignore_errors=True)
        (outcome,) = campaign(scenario, range(seed, seed + 1), out=folder / "trace", processes=1)
        checks = analyze(folder / "trace", folder / "report", spark=False).checks
        wrong = [check.name for check in checks if not check.held and check.name != "monitors"]
        if bool(wrong) == outcome.is_held:
            monitor = outcome.monitor or "held"
            found.append(f"{scenario.name}, seed {seed}: monitors: {monitor}; judge: {', '.join(wrong) or 'held'}")
    return found
