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

SEEDS: Final = range(3)
STEP_BYTES: Final = 10.0
"""The room that a step may take, everything else of its run included."""


def measure_runs(seeds: range, traced: bool) -> float:
    """Milliseconds a run: without a row, or with its trace written as Parquet."""
    from statemachines.trace.parquet import TraceWriter
    from statemachines_sim.campaign import run_row
    from statemachines_sim.scenario import find_scenario
    from statemachines_sim.world import World

    scenario = find_scenario("storm")

    def write(directory: str) -> None:
        with TraceWriter(Path(directory), "storm") as writer:
            for number, seed in enumerate(seeds):
                world = World(scenario, seed)
                writer.add(run_row(scenario, world.run(), number), world.rows)

    def run() -> None:
        for seed in seeds:
            World(scenario, seed, trace=False).run()

    with tempfile.TemporaryDirectory(prefix="gapless-bench-") as directory:
        return ns_per_event(partial(write, directory) if traced else run, len(seeds)) / 1e6


def prepare_cost(size: Size) -> TurnPair:
    """The same runs with a trace and without."""
    seeds = size.pick(SEEDS, range(1))
    return TurnPair(partial(measure_runs, seeds, True), partial(measure_runs, seeds, False))


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
        prepare=prepare_cost,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=1.4,
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
