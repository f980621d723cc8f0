"""Soak of conformance: implementations of others pass 1 000 seeds, and each planted mistake is found, with its time.

    python tools/soak_foreign.py --seeds 1000

It prints a line an implementation and a line a mistake, and the median of each.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import role_of
from statemachines.testing.conformance.tour import tour_of

TESTS: Final = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS))
from foreign_programs import FOREIGN, ForeignProgram  # noqa: E402
from node_mistakes import NODES, judge_node  # noqa: E402

sys.path.pop(0)

SEEDS: Final = 1_000
RUNS: Final = 400
"""A planted mistake is found within so many runs."""
WIRE_S: Final = 60.0
"""A planted mistake is found over the wire within so many seconds."""


def take_time(act: Callable[[], Any]) -> tuple[Any, float]:
    """What it returns, and after how many seconds."""
    begun = time.monotonic()
    return act(), time.monotonic() - begun


def find_mistakes(title: str, tries: Iterator[tuple[str, Callable[[], Any]]]) -> list[str]:
    """Print a line a mistake and the median; those that were not found."""
    took, missed = [], []
    for name, act in tries:
        verdict, seconds = take_time(act)
        is_found = verdict.outcome is ConformanceOutcome.FAIL
        took.append(seconds)
        missed += [] if is_found else [f"{title}: {name}"]
        print(f"  {'found' if is_found else 'NOT FOUND':9} {seconds:6.2f} s  {name}", flush=True)
    print(
        f"{title}: {len(took) - len(missed)} of {len(took)} found; median {statistics.median(took):.2f} s", flush=True
    )
    return missed


def try_foreign(program: ForeignProgram) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A run a mistake."""
    for mistake in program.mistakes:
        with tempfile.TemporaryDirectory() as folder:
            campaign = program.plant(mistake, Path(folder))
            yield mistake, lambda campaign=campaign: campaign.judge(RUNS)


def try_node(role: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A run a mistake."""
    for name in NODES[role].mistakes:
        yield name, lambda name=name: judge_node(role, name, seconds=WIRE_S, seed=1)


def soak_foreign(seeds: int) -> list[str]:
    """Print how all of them fare; what is wrong."""
    wrong: list[str] = []
    for one in FOREIGN:
        _, planned = take_time(lambda one=one: tour_of(role_of(one.role)))  # type: ignore[misc]
        print(f"{one.file}: the tour of its role is planned in {planned:.1f} s, once in a process", flush=True)
        verdict, seconds = take_time(lambda one=one: one.campaign().judge(seeds))  # type: ignore[misc]
        print(f"{one.file}: {verdict.outcome.value}, {seeds:,} seeds in {seconds:.1f} s", flush=True)
        wrong += [] if verdict.outcome is ConformanceOutcome.PASS else [f"{one.file}: {verdict.why}"]
        wrong += [f"{one.file}: not taken: {cell}" for cell in verdict.coverage.missed]
        wrong += find_mistakes(one.file, try_foreign(one))
    for role in NODES:
        verdict = judge_node(role, seconds=30.0, seed=1, tolerance_s=5.0)
        print(f"{role} over the wire: {verdict.outcome.value}, the shipped node", flush=True)
        wrong += [] if verdict.outcome is ConformanceOutcome.PASS else [f"{role} over the wire: {verdict.why}"]
        wrong += find_mistakes(f"{role} over the wire", try_node(role))
    return wrong


def main() -> int:
    """Exit code 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"runs of each implementation (default {SEEDS})")
    wrong = soak_foreign(parser.parse_args().seeds)
    for one in wrong:
        print(f"violation: {one}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
