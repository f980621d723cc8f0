"""The simulated part of a demo: many seeds of a scenario, over all cores."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from statemachines.demo.protocol import DemoClaim, DemoStage, DemoStep, Figures

if TYPE_CHECKING:
    from statemachines_sim.world import RunOutcome


def make_simulation(
    scenario: str, title: str, properties: str, said: str, least: dict[str, int], share: int = 1
) -> DemoStep:
    """The step of a demo.

    Args:
        scenario: What is simulated.
        title: Of its trace on the page.
        properties: Which its monitors judge.
        said: What the runs came to, a format over the sums of what `least` names.
        least: What each run must have at least: of what its watch counts, `faults`, and `kinds` of faults.
        share: One of so many runs that are asked for is made.
    """

    run = partial(simulate, scenario=scenario, least=least, share=share)
    claim = DemoClaim(
        f"every monitor ({properties})", "{runs} runs, {faults:,} faults", holds=lambda figures: not figures["wrong"]
    )
    return DemoStep("simulated", run, f"{{runs}} runs, {said}; {{struck}}", (claim,), title, folder="")


def simulate(stage: DemoStage, scenario: str, least: dict[str, int], share: int) -> Figures:
    """Run it; a run that shows too little is wrong, too."""
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import find_scenario

    seeds = max(stage.seeds // share, 1)
    stage.tell(f"{seeds} seeds of the scenario {scenario!r}")
    done = 0

    def progress(more: int) -> None:
        nonlocal done
        done += more
        stage.advance(done, seeds)

    outcomes = campaign(
        find_scenario(scenario), range(seeds), out=stage.out, processes=os.cpu_count() or 1, progress=progress
    )
    wrong = [f"seed {one.seed}: {one.monitor}: {one.detail}" for one in outcomes if not one.is_held]
    wrong += [f"seed {one.seed} was too tame: {lack}" for one in outcomes if (lack := describe_lack(one, least))]
    kinds = sum((Counter(one.faults) for one in outcomes), Counter[str]())
    return {
        **{name: sum(count_shown(one)[name] for one in outcomes) for name in least},
        "runs": len(outcomes),
        "faults": kinds.total(),
        "kinds": dict(sorted(kinds.items())),
        "struck": ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        "rows": sum(one.rows for one in outcomes),
        "wrong": wrong,
    }


def count_shown(outcome: RunOutcome) -> dict[str, int]:
    """What a run had, and how many faults, of how many kinds."""
    return {**outcome.tally, "faults": sum(outcome.faults.values()), "kinds": len(outcome.faults)}


def describe_lack(outcome: RunOutcome, least: dict[str, int]) -> str:
    """What a run has too little of ("": nothing)."""
    shown = count_shown(outcome)
    return ", ".join(f"{shown[name]} {name}" for name, count in least.items() if shown[name] < count)
