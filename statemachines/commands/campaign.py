"""`gapless campaign`: many seeds of a scenario, over local processes or on Spark."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.commands.progress import bar
from statemachines.commands.simulation import (
    JSON,
    LIST,
    SEED_MAX,
    ScenarioName,
    Set,
    TraceTo,
    keep_failure,
    show_scenarios,
)
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json
from statemachines.spark.spark_settings import SparkSettings, read_settings
from statemachines.whole_file import check_folder, store_path

if TYPE_CHECKING:
    from statemachines_sim.scenario import Scenario
    from statemachines_sim.world import RunOutcome

SEEDS_MAX: Final = 1_000_000
"""Of one campaign."""


class CampaignEngine(StrEnum):
    """Where the runs of a campaign are made."""

    LOCAL = "local"
    SPARK = "spark"


def campaign(
    scenario: ScenarioName,
    seeds: Annotated[int, typer.Option(min=1, max=SEEDS_MAX, help="How many seeds.")] = 200,
    first: Annotated[int, typer.Option("--from", min=0, max=SEED_MAX - 2 * SEEDS_MAX, help="The first seed.")] = 0,
    processes: Annotated[int, typer.Option(min=1, max=256, help="Local processes.")] = 2,
    trace: TraceTo = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the files that an earlier campaign has left in --trace.")
    ] = False,
    steer: Annotated[
        bool, typer.Option("--steer", help="Of a swarm: choose seeds by what few runs have covered so far.")
    ] = False,
    engine: Annotated[
        CampaignEngine, typer.Option(help="Over processes of this machine (local), or in tasks of Spark.")
    ] = CampaignEngine.LOCAL,
    master: Annotated[str, typer.Option(metavar="URL", help="Spark's master; else what Spark is set to.")] = "",
    conf: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; repeatable.")] = None,
    settings: Set = None,
    json: JSON = False,
) -> None:
    """Run many seeds of a scenario over local processes or on Spark, and print what they came to.

    The trace that --trace writes is judged by `gapless analyze DIR`; the same seeds under another setting (--set) are
    compared by `gapless analyze DIR DIR`.  The first failure is shrunk and kept as a file that `replay` repeats.

    A file of the trace appears when its 20 runs are done.  `--resume` goes on where a campaign was broken off: it keeps
    each file that these seeds would write again.  On Spark the trace goes to a folder that all executors share, and is
    the same byte for byte.

    `--steer` is for swarms, scenarios of which each seed draws its own mixture.  Half of the seeds are those whose
    mixtures have covered rare rows, pairs of rows, and faults in states.  They are chosen 40 at a time.

    Exit code 1 if a property is violated; 3 if interrupted: what was done by then is counted, and its trace kept.
    """
    from statemachines_sim.campaign import campaign_parts, steered_parts
    from statemachines_sim.override import override
    from statemachines_sim.scenario import find_scenario
    from statemachines_sim.schedule import draw

    if scenario == LIST:
        show_scenarios()
        return
    begin_work()
    spark = read_settings(master, conf or ())
    if spark.all_settings and engine is CampaignEngine.LOCAL:
        raise ConfigurationError("--engine", "local", "takes no --master and no --conf: give --engine spark")
    if resume and trace is None:
        raise ConfigurationError("--resume", True, "needs the folder of the campaign to resume: give --trace")
    if steer and (resume or engine is CampaignEngine.SPARK):
        other = "--resume" if resume else "--engine spark"
        raise ConfigurationError(
            "--steer", True, f"chooses seeds by runs before them, and has no {other}: leave one out"
        )
    given = tuple(settings or ())
    chosen = override(find_scenario(scenario), given)
    if trace is not None:
        trace = store_path(trace, "--trace")
        check_folder(trace, "--trace")
    numbers = range(first, first + seeds)
    if engine is CampaignEngine.SPARK:
        parts = run_on_spark(chosen, numbers, trace, given, resume, spark)
    elif steer:
        parts = steered_parts(chosen, numbers, out=trace, processes=processes, settings=given)
    else:
        parts = campaign_parts(chosen, numbers, out=trace, processes=processes, settings=given, is_resumed=resume)
    if not json:
        print(f"scenario {chosen.name}, seeds {first} to {first + seeds - 1}{''.join(f', {one}' for one in given)}")
    outcomes: list[RunOutcome] = []
    with bar("seeds") as advance, suppress(KeyboardInterrupt):
        for done in parts:
            outcomes += done
            advance(len(outcomes), seeds)
    outcomes.sort(key=lambda outcome: outcome.seed)
    failed = [outcome for outcome in outcomes if not outcome.is_held]
    print(plain_json(outcomes)) if json else print(totals(outcomes))
    if failed:
        for outcome in failed[1:10]:
            print(f"seed {outcome.seed}: {outcome.monitor}: {outcome.detail}", file=sys.stderr)
        keep_failure(chosen, failed[0], draw(chosen, failed[0].seed))
        raise typer.Exit(Exit.VIOLATED)
    end_if((len(outcomes) < seeds, Exit.INCONCLUSIVE, f"interrupted after {len(outcomes)} of {seeds} seeds"))


def run_on_spark(
    scenario: Scenario,
    seeds: range,
    trace: Path | None,
    settings: tuple[str, ...],
    is_resumed: bool,
    spark: SparkSettings,
) -> Iterator[list[RunOutcome]]:
    """The outcomes of a campaign on Spark, some at a time.

    Args:
        trace: Where the trace goes.
        settings: What was set of the scenario.
        is_resumed: Files that are there are kept.
        spark: What is set of Spark.
    """
    from statemachines.spark.spark_session import SharedSpark
    from statemachines_sim.campaign_spark import run_campaign

    with SharedSpark(spark) as session:
        yield from run_campaign(session, scenario, seeds, out=trace, settings=settings, is_resumed=is_resumed)


def totals(outcomes: list[RunOutcome]) -> str:
    """A campaign in a few lines."""
    if not outcomes:
        return "no run has come to its end"
    faults = Counter[str]()
    for outcome in outcomes:
        faults.update(outcome.faults)
    held = sum(outcome.is_held for outcome in outcomes)
    counted = [
        f"{name} {sum(outcome.tally[name] for outcome in outcomes)} "
        f"(at least {min(outcome.tally[name] for outcome in outcomes)} a run)"
        for name in outcomes[0].tally
    ]
    injected = [sum(outcome.faults.values()) for outcome in outcomes]
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(faults.items())) or "none"
    return "\n".join(
        (
            f"{held} of {len(outcomes)} runs held",
            *([", ".join(counted)] if counted else []),
            f"{sum(injected)} faults (at least {min(injected)} a run): {listed}",
            f"{sum(outcome.lasted_ns for outcome in outcomes) / 3.6e12:.1f} h simulated, "
            f"{sum(outcome.rows for outcome in outcomes)} rows of trace",
        )
    )
