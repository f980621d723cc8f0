"""Rows about long traces: the whole command `gapless analyze`, with all its processes.

The rows are of 24 million rows of trace.  `GAPLESS_BENCH_TRACES=FOLDER` makes them rows of 98 million.  Their traces
take 1 GB there, and stay for the next time.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Final

from statemachines_bench.analysing import make_folder
from statemachines_bench.command_cost import CommandCost, measure_command
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

TRACES: Final = os.environ.get("GAPLESS_BENCH_TRACES", "")
NAME, COPIES = ("100m", 129) if TRACES else ("24m", 32)
"""A copy has 0.76 million rows."""

SEEDS: Final = 24
"""Runs of `storm` in one copy."""

FILES: Final = 13


START: Final = 0
"""So many copies mean one short run: what it takes is the start."""

LEAST_US: Final = 1e-6
"""Of traces in little the start decides what more rows take."""


@cache
def find_folder() -> Path:
    """Where the traces are."""
    return Path(TRACES) if TRACES else make_folder()


@cache
def make_trace(size: Size, copies: int) -> tuple[Path, int]:
    """A trace of so many copies, made where it is not there yet, and its rows."""
    from statemachines_bench.repeat import repeat
    from statemachines_reports.trace_set import TraceSet
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import find_scenario

    folder = find_folder() / size.value
    once, many = folder / "once", folder / f"copies-{copies}"
    seeds = size.pick(SEEDS, 1)
    if not once.exists():
        campaign(find_scenario("storm"), range(seeds), out=once)
    if copies == START and not many.exists():
        campaign(find_scenario("quiet"), range(1), out=many)
    if not many.exists():
        partial_folder = many.with_suffix(".partial")
        shutil.rmtree(partial_folder, ignore_errors=True)
        repeat(once, partial_folder, copies=copies, files=min(FILES, copies))
        partial_folder.rename(many)
    return many, TraceSet(many, folder / "out").rows


def measure_analysis(size: Size, copies: int, engine: str = "local") -> CommandCost:
    """What the command takes."""
    trace, _ = make_trace(size, copies)
    out = Path(tempfile.mkdtemp(dir=find_folder()))
    master = ["--master", "local[2]"] if engine == "spark" else []
    command = [sys.executable, "-m", "statemachines", "analyze", str(trace), "--out", str(out), "--engine", engine]
    cost = measure_command([*command, *master])
    shutil.rmtree(out)
    return cost


find_cost = cache(measure_analysis)
"""The same, measured once: for rows that ask for other values of the same command."""


def read_files(size: Size, copies: int) -> float:
    """Seconds for reading the same columns of the same files, and nothing else."""
    from statemachines_reports.columns import NEEDED, open_trace

    began = perf_counter()
    for path in sorted(make_trace(size, copies)[0].glob("trace-*.parquet")):
        with open_trace(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group, columns=list(NEEDED))
    return perf_counter() - began


def measure_slope_us(size: Size, fewer: int, more: int) -> float:
    """Microseconds of processor time that a row takes between two sizes."""
    rows = make_trace(size, more)[1] - make_trace(size, fewer)[1]
    spent_s = find_cost(size, more).processor_s - find_cost(size, fewer).processor_s
    return max(LEAST_US, spent_s / rows * 1e6)


def prepare_analysis(size: Size) -> TurnPair:
    """The command against reading."""
    make_trace(size, COPIES)
    return TurnPair(lambda: measure_analysis(size, COPIES, "auto").wall_s, lambda: read_files(size, COPIES))


def prepare_slope(size: Size) -> TurnPair:
    """Three sizes: the upper two against the lower two."""
    half, quarter = COPIES // 2, COPIES // 4
    return TurnPair(partial(measure_slope_us, size, half, COPIES), partial(measure_slope_us, size, quarter, half))


def prepare_memory(size: Size) -> TurnPair:
    """All rows against a quarter of them."""
    return TurnPair(
        lambda: find_cost(size, COPIES).memory_bytes / 1e9, lambda: find_cost(size, COPIES // 4).memory_bytes / 1e9
    )


def prepare_spark(size: Size) -> TurnPair:
    """Spark without its start, against this process."""
    start_s = measure_analysis(size, START, "spark").wall_s
    return TurnPair(
        lambda: abs(measure_analysis(size, COPIES, "spark").wall_s - start_s),
        lambda: measure_analysis(size, COPIES).wall_s,
    )


ROWS: Final = (
    BenchRow(
        name=f"analyze-{NAME}",
        about=f"the whole command `analyze` on {NAME} rows by the engine that it chooses",
        unit="s",
        baseline_name="reading its columns",
        prepare=prepare_analysis,
        ratio=RatioKind.OURS_OVER_BASELINE,
        aim="45 s for 100m",
    ),
    BenchRow(
        name=f"analyze-{NAME}-slope",
        about=f"processor time of a row in one process, from a half of {NAME} rows to all",
        unit="us",
        baseline_name="from a quarter to a half",
        prepare=prepare_slope,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.25,
    ),
    BenchRow(
        name=f"analyze-{NAME}-memory",
        about="memory of all processes of the command, as proportional set size",
        unit="GB",
        baseline_name="a quarter of the rows",
        prepare=prepare_memory,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=2.0,
        aim="2 GB",
    ),
    BenchRow(
        name=f"analyze-{NAME}-spark",
        about=f"the whole command on {NAME} rows with --engine spark and local[2], without the seconds of its start",
        unit="s",
        baseline_name="--engine local",
        prepare=prepare_spark,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=2.0,
    ),
)
