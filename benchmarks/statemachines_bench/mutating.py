"""Rows about mutants: how many are judged in an hour."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, Final

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

if TYPE_CHECKING:
    from statemachines_spec.mutants.campaign import CampaignScope
    from statemachines_spec.mutants.mutant import Mutant

PROTOCOL: Final = "cursor_recovery"
DIRECTED_SYSTEMS: Final = ("left by the dead", "alone", "one of each", "two readers")
SAMPLE, SEED = 60, 1


def an_hour(field: CampaignScope, some: list[Mutant], jobs: int) -> float:
    """Mutants an hour, by the clock: what the processes make ready before included."""
    from statemachines_spec.mutants.campaign import CampaignHead, CampaignResults, judge_mutants

    with TemporaryDirectory() as folder:
        results = CampaignResults(Path(folder) / "verdicts.jsonl", CampaignHead(PROTOCOL, ""))
        began = perf_counter()
        done = sum(1 for _ in judge_mutants(field, some, results, jobs, lambda text: None))
        return done / (perf_counter() - began) * 3600


def prepare(size: Size) -> TurnPair:
    from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape, pick_mutants

    directed_systems, sample = size.pick((DIRECTED_SYSTEMS, SAMPLE), (DIRECTED_SYSTEMS[:1], 4))
    field = CampaignScope(CampaignShape(PROTOCOL, directed_systems))
    some = pick_mutants(field.mutants, (), (), sample, SEED)
    return TurnPair(lambda: an_hour(field, some, 2), lambda: an_hour(field, some, 1))


ROWS = (
    BenchRow(
        name="mutants",
        about=f"mutants of a queue judged in an hour by two processes: {SAMPLE} in {len(DIRECTED_SYSTEMS)} systems, "
        "what is made ready before included",
        unit="mutants / h",
        baseline_name="one process",
        prepare=prepare,
        ratio=RatioKind.OURS_OVER_BASELINE,
    ),
)
