"""Rows about analyses and campaigns: Spark on all cores against this process and its workers, short traces and long.

The Spark session of `campaign-spark` has run something before: its start is paid once a command, and is not in that
row.  The page is not in `analyze-small` either.  The long traces have 24 million rows, and the whole command `gapless
analyze` is measured with all its processes.  `GAPLESS_BENCH_TRACES=FOLDER` makes them 98 million rows.  Their traces
take 1 GB there, and stay for the next time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Final, NamedTuple

from statemachines import catalogue
from statemachines.kernel import GaplessError
from statemachines_bench.harness import compare, make_folder, read_cpu_s
from statemachines_bench.judge_baselines import polars_judge
from statemachines_bench.judging import measure_seconds, session
from statemachines_bench.repeat import repeat
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_reports.columns import NEEDED, open_trace
from statemachines_reports.pipeline import analyze
from statemachines_reports.trace_set import TraceSet
from statemachines_sim.campaign import campaign
from statemachines_sim.campaign_spark import run_campaign
from statemachines_sim.override import override
from statemachines_sim.scenario import find_scenario

SMALL_SEEDS: Final = 16
"""Some 0.6 million rows."""

RUNS: Final = 1_000
"""Of a campaign without faults."""

MESSAGES: Final = 20
"""Of each run: some hundredths of a second."""

TRACES: Final = os.environ.get("GAPLESS_BENCH_TRACES", "")
NAME, COPIES = ("100m", 129) if TRACES else ("24m", 32)
"""A copy has 0.76 million rows."""

HALF, QUARTER = COPIES // 2, COPIES // 4
SEEDS: Final = 24
"""Runs of `storm` in one copy."""

FILES: Final = 13

START: Final = 0
"""So many copies mean one short run: what it takes is the start."""

LEAST_US: Final = 1e-6
"""Of traces in little the start decides what more rows take."""

LOOK_S: Final = 0.3
"""So often the processes of a command are looked at."""


# -- short ----------------------------------------------------------------------------------------------------------


@cache
def make_small_trace(seeds: range) -> tuple[Path]:
    """A folder with 0.6 million rows."""
    folder = make_folder()
    campaign(find_scenario("storm"), seeds, out=folder)
    return (folder,)


def time_analysis(trace: Path) -> float:
    """Seconds for opening, judging, tables and summary, by the engine that is chosen by the rows."""
    out = make_folder()
    began = perf_counter()
    assert analyze(trace, out, spark=None).is_held
    return perf_counter() - began


def time_polars(trace: Path) -> float:
    """Seconds of Polars, which does three of the checks and nothing else."""
    files, machines = sorted(trace.glob("trace-*.parquet")), catalogue.machines("shared_subscriptions")
    return measure_seconds(lambda: polars_judge(files, machines))


def time_campaign(run: Callable[[Path], object]) -> float:
    """Seconds for a campaign that writes its trace."""
    out = make_folder()
    began = perf_counter()
    run(out)
    spent = perf_counter() - began
    shutil.rmtree(out)
    return spent


def prepare_campaign(size: Size) -> TurnPair:
    """Tasks of Spark against two processes."""
    scenario = override(find_scenario("quiet"), (f"shared_subscriptions.load.messages={MESSAGES}",))
    opened, seeds = session(size), range(size.pick(RUNS, 2))
    return TurnPair(
        lambda: time_campaign(lambda out: list(run_campaign(opened, scenario, seeds, out=out))),
        lambda: time_campaign(lambda out: campaign(scenario, seeds, out=out)),
    )


# -- a command ------------------------------------------------------------------------------------------------------


class CommandCost(NamedTuple):
    """Of one command with all processes below it; memory is the greatest sum of the proportional set sizes."""

    wall_s: float
    processor_s: float
    memory_bytes: int


def measure_command(*command: str) -> CommandCost:
    """Run the command; raises `GaplessError` where it fails."""
    began = perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most, spent_s = 0, dict[int, float]()
    while process.poll() is None:
        pids = list_processes(process.pid)
        most = max(most, sum(map(read_memory_bytes, pids)))
        spent_s |= {pid: read_spent_s(pid) or spent_s.get(pid, 0.0) for pid in pids}
        sleep(LOOK_S)
    if process.returncode:
        raise GaplessError(f"{' '.join(command)} ended with {process.returncode}")
    return CommandCost(perf_counter() - began, sum(spent_s.values()), most)


def list_processes(pid: int) -> set[int]:
    """A process and all below it."""
    found = {pid}
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found |= {below for child in path.read_text().split() for below in list_processes(int(child))}
        except OSError:
            continue  # it has ended
    return found


def read_memory_bytes(pid: int) -> int:
    """The proportional set size of a process; 0: it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def read_spent_s(pid: int) -> float:
    """What a process has spent itself so far; 0: it has ended."""
    try:
        return read_cpu_s(pid)
    except OSError:
        return 0.0


# -- long -----------------------------------------------------------------------------------------------------------


@cache
def find_folder() -> Path:
    """Where the traces are."""
    return Path(TRACES) if TRACES else make_folder()


@cache
def make_trace(size: Size, copies: int) -> tuple[Path, int]:
    """A trace of so many copies, made where it is not there yet, and its rows."""
    folder = find_folder() / size.value
    once, many = folder / "once", folder / f"copies-{copies}"
    if not once.exists():
        campaign(find_scenario("storm"), range(size.pick(SEEDS, 1)), out=once)
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
    cost = measure_command(*command, *master)
    shutil.rmtree(out)
    return cost


find_cost = cache(measure_analysis)
"""The same, measured once: for rows that ask for other values of the same command."""


def read_files(size: Size) -> float:
    """Seconds for reading the same columns of the same files, and nothing else."""
    began = perf_counter()
    for path in sorted(make_trace(size, COPIES)[0].glob("trace-*.parquet")):
        with open_trace(path) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group, columns=list(NEEDED))
    return perf_counter() - began


def measure_slope_us(size: Size, fewer: int, more: int) -> float:
    """Microseconds of processor time that a row takes between two sizes."""
    rows = make_trace(size, more)[1] - make_trace(size, fewer)[1]
    spent_s = find_cost(size, more).processor_s - find_cost(size, fewer).processor_s
    return max(LEAST_US, spent_s / rows * 1e6)


def measure_memory_gb(size: Size, copies: int) -> float:
    """Memory of all processes."""
    return find_cost(size, copies).memory_bytes / 1e9


def prepare_long(size: Size) -> TurnPair:
    """The command against reading."""
    make_trace(size, COPIES)
    return TurnPair(lambda: measure_analysis(size, COPIES, "auto").wall_s, partial(read_files, size))


def prepare_slope(size: Size) -> TurnPair:
    """Three sizes: the upper two against the lower two."""
    return TurnPair(partial(measure_slope_us, size, HALF, COPIES), partial(measure_slope_us, size, QUARTER, HALF))


def prepare_memory(size: Size) -> TurnPair:
    """All rows against a quarter of them."""
    return TurnPair(partial(measure_memory_gb, size, COPIES), partial(measure_memory_gb, size, QUARTER))


def prepare_spark(size: Size) -> TurnPair:
    """Spark without its start, against this process."""
    start_s = measure_analysis(size, START, "spark").wall_s
    return TurnPair(
        lambda: abs(measure_analysis(size, COPIES, "spark").wall_s - start_s),
        lambda: measure_analysis(size, COPIES).wall_s,
    )


ROWS: Final = (
    BenchRow(
        name="analyze-small",
        about="a whole analysis of 0.6 million rows by the engine that they choose; beside it Polars with three checks",
        unit="s",
        baseline_name="Polars, three checks",
        prepare=compare(time_analysis, time_polars, (range(SMALL_SEEDS),), (range(1),), make_small_trace),
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
    BenchRow(
        name=f"analyze-{NAME}",
        about=f"the whole command `analyze` on {NAME} rows by the engine that it chooses",
        unit="s",
        baseline_name="reading its columns",
        prepare=prepare_long,
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
