"""Rows about judging: Spark tasks on whole-run files against Polars and DuckDB on the same files, 20 million steps.

All sides read the same Parquet files and give the same counts.  What Spark needs to start is not in it: that is paid
once a command.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import pyarrow as pa

from statemachines import catalogue
from statemachines.kernel import GaplessError
from statemachines_bench.harness import make_folder
from statemachines_bench.judge_baselines import Counts, duckdb_judge, our_judge, polars_judge
from statemachines_bench.repeat import repeat
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_reports.session import Session
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import find_scenario

SEEDS: Final = 35
"""Stormy runs, some 0.7 million steps."""

COPIES: Final = 30
"""The same under new run numbers: 20 million."""

FILES: Final = 10


@cache
def trace(size: Size) -> tuple[Path, ...]:
    """The files, made once and removed at the end."""
    directory = make_folder()
    seeds, copies, files = size.pick((SEEDS, COPIES, FILES), (1, 2, 2))
    campaign(find_scenario("storm"), range(seeds), out=directory / "once")
    repeat(directory / "once", directory / "many", copies=copies, files=files)
    return tuple(sorted((directory / "many").glob("trace-*.parquet")))


KEPT: Final = ExitStack()
"""What is kept from one measurement to the next."""


@cache
def session(size: Size) -> Any:
    """A Spark session that has run something before: its start is not measured."""
    opened = Session().__enter__()
    KEPT.callback(opened.__exit__)
    atexit.register(end_session)
    spark_judge(opened, trace(size)[:2])
    return opened


def end_session() -> None:
    """Nobody measures any more: a session that was kept ends."""
    session.cache_clear()
    KEPT.close()


def spark_judge(opened: Any, files: tuple[Path, ...]) -> Counts:
    """Every file judged in a Spark task of its own."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path in batch.column(0).to_pylist():
                wrong = our_judge([Path(path)], catalogue.machines("shared_subscriptions"))
                yield pa.record_batch([pa.array(list(wrong)), pa.array(wrong.values(), pa.int64())], ["check", "wrong"])

    names = opened._spark.sparkContext.parallelize([(str(path),) for path in files], len(files))
    judged = opened._spark.createDataFrame(names, "path string").mapInArrow(task, "check string, wrong bigint")
    return {line["check"]: line["sum(wrong)"] for line in judged.groupBy("check").sum("wrong").collect()}


def measure_seconds(judge: Callable[[], Counts]) -> float:
    """How long it takes; the trace is right, and a judge that says otherwise is not measured."""
    began = perf_counter()
    wrong = judge()
    spent = perf_counter() - began
    if any(wrong.values()):
        raise GaplessError(f"a judge finds {wrong} in a trace where nothing is wrong")
    return spent


def prepare(baseline: Callable[[list[Path], Any], Counts], size: Size) -> TurnPair:
    """Ours by Spark, the baseline in this process, which also has all cores."""
    files, opened = trace(size), session(size)
    return TurnPair(
        lambda: measure_seconds(lambda: spark_judge(opened, files)),
        lambda: measure_seconds(lambda: baseline(list(files), catalogue.machines("shared_subscriptions"))),
    )


ROWS: Final = (
    BenchRow(
        name="judge-steps",
        about="conformance, continuity, exclusivity and messages of 20 million steps: Spark tasks against Polars",
        unit="s",
        baseline_name="Polars",
        prepare=partial(prepare, polars_judge),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.0,
        aim="5 M steps/s",
    ),
    BenchRow(
        name="judge-steps-duckdb",
        about="conformance, continuity, exclusivity and messages of 20 million steps: Spark tasks against DuckDB's SQL",
        unit="s",
        baseline_name="DuckDB SQL",
        prepare=partial(prepare, duckdb_judge),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.0,
        aim="5 M steps/s",
    ),
)
