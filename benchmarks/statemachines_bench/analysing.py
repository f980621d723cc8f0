"""Rows about short analyses, and about campaigns: Spark on all cores against this process and its workers.

The Spark session has run something before: its start is paid once a command, and is not in these rows.  The page is not
in them either.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Final

from statemachines_bench.judge_baselines import polars_judge
from statemachines_bench.judging import measure_seconds, session
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

SMALL_SEEDS: Final = 16
"""Some 0.6 million rows."""

RUNS: Final = 1_000
"""Of a campaign without faults."""

MESSAGES: Final = 20
"""Of each run: some hundredths of a second."""


@cache
def make_small_trace(size: Size) -> Path:
    """A folder with 0.6 million rows."""
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import find_scenario

    directory = make_folder()
    campaign(find_scenario("storm"), range(size.pick(SMALL_SEEDS, 1)), out=directory)
    return directory


def make_folder() -> Path:
    """A folder that is removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="gapless-bench-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def time_analysis(trace: Path, *, spark: bool | None) -> float:
    """Seconds for opening, judging, tables and summary."""
    from statemachines_reports.pipeline import analyze

    out = make_folder()
    began = perf_counter()
    assert analyze(trace, out, spark=spark).is_held
    return perf_counter() - began


def time_campaign(run: Callable[[Path], object]) -> float:
    """Seconds for a campaign that writes its trace."""
    out = make_folder()
    began = perf_counter()
    run(out)
    spent = perf_counter() - began
    shutil.rmtree(out)
    return spent


def prepare_small(size: Size) -> TurnPair:
    """The engine that is chosen by the rows against Polars, which does three of the checks and nothing else."""
    from statemachines import catalogue

    trace = make_small_trace(size)
    files, machines = sorted(trace.glob("trace-*.parquet")), catalogue.machines("shared_subscriptions")
    return TurnPair(
        lambda: time_analysis(trace, spark=None), lambda: measure_seconds(lambda: polars_judge(files, machines))
    )


def prepare_campaign(size: Size) -> TurnPair:
    """Tasks of Spark against two processes."""
    from statemachines_sim.campaign import campaign
    from statemachines_sim.campaign_spark import run_campaign
    from statemachines_sim.override import override
    from statemachines_sim.scenario import find_scenario

    scenario = override(find_scenario("quiet"), (f"shared_subscriptions.load.messages={MESSAGES}",))
    opened, seeds = session(size), range(size.pick(RUNS, 2))
    return TurnPair(
        lambda: time_campaign(lambda out: list(run_campaign(opened, scenario, seeds, out=out))),
        lambda: time_campaign(lambda out: campaign(scenario, seeds, out=out)),
    )


ROWS: Final = (
    BenchRow(
        name="analyze-small",
        about="a whole analysis of 0.6 million rows by the engine that they choose; beside it Polars with three checks",
        unit="s",
        baseline_name="Polars, three checks",
        prepare=prepare_small,
        ratio=RatioKind.OURS_OVER_BASELINE,
        aim="2.5 s",
    ),
    BenchRow(
        name="campaign-spark",
        about=f"a campaign of {RUNS} runs with its trace: tasks of Spark, started before, against two processes",
        unit="s",
        baseline_name="--engine local",
        prepare=prepare_campaign,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.15,
    ),
)
