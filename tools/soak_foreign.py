"""Soak of conformance: implementations of others pass 1 000 seeds, and each planted mistake is found, with its time.

    python tools/soak_foreign.py --seeds 1000

It prints a line an implementation and a line a mistake, and the median of each.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from statemachines.testing.conformance.campaign import Campaign, ConformanceOutcome
from statemachines.testing.conformance.child_process import ChildProcess
from statemachines.testing.conformance.role import ConformanceRole, role_of
from statemachines.testing.conformance.tour import tour_of
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions

HERE: Final = Path(__file__).parent.parent / "tests" / "foreign"
sys.path.insert(0, str(HERE))
import bugs  # noqa: E402
import node_bugs  # noqa: E402
import session_bugs  # noqa: E402

sys.path.pop(0)

SEEDS: Final = 1_000
RUNS: Final = 400
"""A planted mistake is found within so many runs."""
WIRE_S: Final = 60.0
"""A planted mistake is found over the wire within so many seconds."""


class PlantedMistake(NamedTuple):
    """A mistake, and the `file` that has it."""

    name: str
    file: str
    right: str
    wrong: str


class ForeignImplementation(NamedTuple):
    """An implementation: its role, what runs it, its first file, and mistakes to be put into it."""

    role: str
    program: str
    file: str
    mistakes: tuple[PlantedMistake, ...]


def list_mistakes(found: dict[str, tuple[str, str]], file: str) -> tuple[PlantedMistake, ...]:
    """Those of one file."""
    return tuple(PlantedMistake(name, file, *texts) for name, texts in found.items())


FOREIGN: Final = (
    ForeignImplementation(
        "shared_subscriptions/borrower", sys.executable, "borrower.py", list_mistakes(bugs.PYTHON, "borrower.py")
    ),
    ForeignImplementation(
        "shared_subscriptions/borrower", "node", "borrower.js", list_mistakes(bugs.JAVASCRIPT, "borrower.js")
    ),
    ForeignImplementation(
        "sequence_windows/subscriber_window",
        "node",
        "subscriber_window.js",
        list_mistakes(bugs.WINDOW, "subscriber_window.js"),
    ),
    ForeignImplementation(
        "persistent_sessions/session",
        sys.executable,
        "session.py",
        tuple(PlantedMistake(name, file, right, wrong) for name, (_, file, right, wrong) in session_bugs.BUGS.items()),
    ),
)

NODES: Final = (
    ("shared_subscriptions/leader", node_bugs.LEADER, node_bugs.LEADER_COMMAND),
    ("persistent_sessions/session", node_bugs.SESSION, node_bugs.SESSION_COMMAND),
)
"""Shipped nodes over the wire: role, mistakes, arguments."""


def judge_foreign(one: ForeignImplementation, folder: Path, runs: int) -> Any:
    """The verdict of the implementation in this folder, by the whole role; its tour is planned once in a process."""
    command = (one.program, str(folder / one.file))
    return Campaign(role_of(one.role), lambda: ChildProcess(command)).judge(runs=runs)


def judge_node(role: ConformanceRole, command: tuple[str, ...], seconds: float, **options: Any) -> Any:
    """The verdict of a node over the wire."""
    run = WireRun(role, WireOptions(seconds=seconds, rate=40.0, seed=1, **options), command)
    return asyncio.run(run.judge(lambda address: None))


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


def try_foreign(one: ForeignImplementation) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A run a mistake."""
    for mistake in one.mistakes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file in (*HERE.glob("*.py"), *HERE.glob("*.js")):
                shutil.copy(file, folder)
            text = (folder / mistake.file).read_text()
            (folder / mistake.file).write_text(text.replace(mistake.right, mistake.wrong))
            yield mistake.name, lambda folder=folder: judge_foreign(one, folder, RUNS)


def try_node(role: str, mistakes: dict[str, Any], arguments: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """A run a mistake."""
    for name, planted in mistakes.items():
        command = (sys.executable, str(HERE / "planted_node.py"), *planted, *arguments)
        yield name, lambda command=command: judge_node(role_of(role), command, WIRE_S)


def soak_foreign(seeds: int) -> list[str]:
    """Print how all of them fare; what is wrong."""
    wrong: list[str] = []
    for one in FOREIGN:
        _, planned = take_time(lambda one=one: tour_of(role_of(one.role)))  # type: ignore[misc]
        print(f"{one.file}: the tour of its role is planned in {planned:.1f} s, once in a process", flush=True)
        verdict, seconds = take_time(lambda one=one: judge_foreign(one, HERE, seeds))  # type: ignore[misc]
        print(f"{one.file}: {verdict.outcome.value}, {seeds:,} seeds in {seconds:.1f} s", flush=True)
        wrong += [] if verdict.outcome is ConformanceOutcome.PASS else [f"{one.file}: {verdict.why}"]
        wrong += find_mistakes(one.file, try_foreign(one))
    for role, mistakes, arguments in NODES:
        command = (sys.executable, "-m", "statemachines", *arguments)
        verdict = judge_node(role_of(role), command, 30.0, tolerance_s=5.0)
        print(f"{role} over the wire: {verdict.outcome.value}, the shipped node", flush=True)
        wrong += [] if verdict.outcome is ConformanceOutcome.PASS else [f"{role} over the wire: {verdict.why}"]
        wrong += find_mistakes(f"{role} over the wire", try_node(role, mistakes, arguments))
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
