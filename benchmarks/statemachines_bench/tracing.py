"""Rows about the trace of simulated runs: what making and writing it costs, and how large it is.

The runs are those of a campaign: stormy ones, with every monitor on.
"""

from __future__ import annotations

import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Final

from statemachines_bench.measure import ns_per_event
from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair
from statemachines_bench.shared_runs import SharedRuns

SEEDS: Final = range(3)
NONE, ROWS_MADE, WRITTEN = range(3)
"""What a run of three measures of a trace: nothing, its rows made, its rows written, too."""

STEP_BYTES: Final = 10.0
"""The room that a step may take, everything else of its run included."""


def measure_runs(size: Size, traced: bool, written: bool) -> float:
    """Milliseconds a run: with rows or without, written as Parquet or dropped."""
    seeds = size.pick(SEEDS, range(1))
    from statemachines.trace.parquet import TraceWriter
    from statemachines_sim.campaign import run_row
    from statemachines_sim.scenario import find_scenario
    from statemachines_sim.world import World

    scenario = find_scenario("storm")

    def write(directory: str) -> None:
        with TraceWriter(Path(directory), "storm") as writer:
            for number, seed in enumerate(seeds):
                world = World(scenario, seed, trace=traced)
                writer.add(run_row(scenario, world.run(), number), world.rows)

    def run() -> None:
        for seed in seeds:
            World(scenario, seed, trace=traced).run()

    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as directory:
        return ns_per_event(partial(write, directory) if written else run, len(seeds)) / 1e6


@cache
def share_runs(size: Size) -> SharedRuns[tuple[float, float, float]]:
    """The three one behind the other."""
    return SharedRuns(
        lambda: (measure_runs(size, False, False), measure_runs(size, True, False), measure_runs(size, True, True))
    )


def prepare_cost(ours: int, baseline: int, size: Size) -> TurnPair:
    """Two of the three."""
    shared = share_runs(size)
    return TurnPair(shared.read(lambda values: values[ours]), shared.read(lambda values: values[baseline]))


@cache
def bytes_per_step(size: Size) -> float:
    """Bytes of the trace files of a stormy campaign, over its steps: the same each time, so found once."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import find_scenario

    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as directory:
        campaign(find_scenario("storm"), size.pick(range(20), range(1)), out=Path(directory), processes=1)
        room = steps = 0
        for path in Path(directory).glob("trace-*.parquet"):
            room += path.stat().st_size
            kinds = {str(one["values"]): one["counts"] for one in _count_kinds(pq, pc, path)}
            steps += kinds["step"] + kinds["timer"]
    return room / steps


def _count_kinds(pq, pc, path: Path) -> list[dict[str, int]]:  # type: ignore[no-untyped-def]
    kinds = pq.read_table(path, columns=["kind"]).column("kind").cast("string")
    found: list[dict[str, int]] = pc.value_counts(kinds).to_pylist()
    return found


ROWS: Final = (
    BenchRow(
        name="trace-cost",
        about="whole stormy runs with their trace made and written as Parquet, against the same runs without a row",
        unit="ms / run",
        baseline_name="no trace",
        prepare=partial(prepare_cost, WRITTEN, NONE),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.4,
    ),
    BenchRow(
        name="trace-rows",
        about="the part of it that is making the rows: kept in memory, and dropped",
        unit="ms / run",
        baseline_name="no trace",
        prepare=partial(prepare_cost, ROWS_MADE, NONE),
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="trace-write",
        about="the part of it that is writing them: made and written, against made and dropped",
        unit="ms / run",
        baseline_name="rows made and dropped",
        prepare=partial(prepare_cost, WRITTEN, ROWS_MADE),
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
    BenchRow(
        name="trace-size",
        about="the trace files of 20 stormy runs, without data, sends and everything else included",
        unit="bytes / step",
        baseline_name=f"{STEP_BYTES:g} bytes",
        prepare=lambda size: TurnPair(lambda: bytes_per_step(size), lambda: STEP_BYTES),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.0,
    ),
)
