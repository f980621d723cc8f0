"""Rows about mutants: how many are judged in an hour."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Final

from statemachines_bench.row import Pair, Ratio, Row, Size

if TYPE_CHECKING:
    from statemachines_spec.mutants.campaign import Field
    from statemachines_spec.mutants.mutant import Mutant

PROTOCOL: Final = "cursor_recovery"
HUNTS: Final = ("left by the dead", "alone", "one of each", "two readers")
SAMPLE, SEED = 60, 1


def an_hour(field: Field, some: list[Mutant], jobs: int) -> float:
    """Mutants an hour, by the clock: what the processes make ready before included."""
    from statemachines_spec.mutants.campaign import Head, Results, judge_mutants

    with TemporaryDirectory() as folder:
        results = Results(Path(folder) / "verdicts.jsonl", Head(PROTOCOL, ""))
        began = perf_counter()
        done = sum(1 for _ in judge_mutants(field, some, results, jobs, lambda text: None))
        return done / (perf_counter() - began) * 3600


def prepare(size: Size) -> Pair:
    from statemachines_spec.mutants.campaign import Field, Shape, pick_mutants

    hunts, sample = size.pick((HUNTS, SAMPLE), (HUNTS[:1], 4))
    field = Field(Shape(PROTOCOL, hunts))
    some = pick_mutants(field.mutants, (), (), sample, SEED)
    return Pair(lambda: an_hour(field, some, 2), lambda: an_hour(field, some, 1))


ROWS = (
    Row(
        name="mutants",
        about=f"mutants of a queue judged in an hour by two processes: {SAMPLE} in {len(HUNTS)} hunts, "
        "what is made ready before included",
        unit="mutants / h",
        baseline_name="one process",
        prepare=prepare,
        ratio=Ratio.OURS_OVER_BASELINE,
    ),
)
