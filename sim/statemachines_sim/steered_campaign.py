"""Steered campaign: its seeds are chosen round by round, by what the rounds before have covered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from statemachines.workers import open_workers
from statemachines_sim.campaign import SEEDS_PER_FILE, CampaignJob, check_sendable, list_jobs, run_worlds
from statemachines_sim.scenario import Scenario
from statemachines_sim.steering import Item, SeedSteering, list_covered
from statemachines_sim.world import RunOutcome

ROUND: Final = 2 * SEEDS_PER_FILE
"""Seeds that are chosen together: however many processes there are, they are the same."""


def steered_parts(
    scenario: Scenario, seeds: range, *, out: Path | None = None, processes: int = 2, settings: tuple[str, ...] = ()
) -> Iterator[list[RunOutcome]]:
    """As `campaign_parts`, with as many seeds as these, from the first of them on, and others left out."""
    steering = SeedSteering(scenario, seeds.start)
    with open_workers(processes) if processes > 1 else nullcontext() as pool:
        for begin in range(0, len(seeds), ROUND):
            chosen = steering.choose(min(ROUND, len(seeds) - begin))
            jobs = list(list_jobs(scenario, chosen, out, begin, settings))
            check_sendable(jobs[0])
            for found in map(run_covered, jobs) if pool is None else pool.map(run_covered, jobs):
                for outcome, covered in found:
                    steering.note(outcome.seed, covered)
                yield [outcome for outcome, _ in found]


def run_covered(job: CampaignJob) -> list[tuple[RunOutcome, frozenset[Item]]]:
    """The outcomes of a job, each with what its run has covered."""
    return [(outcome, list_covered(world.rows)) for world, outcome in run_worlds(job)]
