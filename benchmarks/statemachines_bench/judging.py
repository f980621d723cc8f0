"""Rows about judging: every step legal and continuous, every stream with one owner, against Polars and DuckDB.

Both sides read the same Parquet files, as the simulator writes them, and give the same counts.  What Spark needs to
start is not in it: that is paid once a command.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from statemachines.kernel import GaplessError
from statemachines_bench.row import Measure, Pair, Ratio, Row

SEEDS: Final = 20
COPIES: Final = 20
FILES: Final = 4


def prepare(baseline: str) -> Pair:
    """Some seven million steps in four files; they are removed when nothing refers to the pair any more."""
    from statemachines.shared_subscriptions import MACHINES
    from statemachines_bench import judge_baselines
    from statemachines_bench.repeat import repeat
    from statemachines_sim.campaign import campaign
    from statemachines_sim.scenario import named

    directory = tempfile.TemporaryDirectory(prefix="gapless-judging-")
    short, long = Path(directory.name, "short"), Path(directory.name, "long")
    campaign(named("storm"), range(SEEDS), out=short, processes=1)
    rows = repeat(short, long, copies=COPIES, files=FILES)
    files = sorted(long.glob("trace-*.parquet"))

    def measure(judge: Callable[[list[Path], Any], dict[str, int]]) -> Measure:
        def run() -> float:
            begin = time.perf_counter_ns()
            wrong = judge(files, MACHINES)
            took = time.perf_counter_ns() - begin
            if any(wrong.values()):
                raise GaplessError(f"{judge.__name__} finds {wrong} in a trace where nothing is wrong")
            return took / rows

        run.directory = directory  # type: ignore[attr-defined]
        return run

    return Pair(measure(judge_baselines.our_judge), measure(getattr(judge_baselines, baseline)))


ROWS: Final = (
    Row(
        name="judge",
        about="conformance, continuity and exclusive ownership of a trace, on all cores, against Polars",
        unit="ns / row",
        baseline_name="Polars",
        prepare=lambda: prepare("polars_judge"),
        ratio=Ratio.OURS_OVER_BASELINE,
        at_most=1.5,
        aim="5 M steps/s on two cores",
    ),
    Row(
        name="judge-sql",
        about="conformance, continuity and exclusive ownership of a trace, on all cores, against DuckDB's SQL",
        unit="ns / row",
        baseline_name="DuckDB SQL",
        prepare=lambda: prepare("duckdb_judge"),
        ratio=Ratio.OURS_OVER_BASELINE,
        at_most=1.0,
    ),
)
