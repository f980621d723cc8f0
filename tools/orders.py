"""Orders: the suite again and again in other orders, with other numbers of workers, and what came out differently.

    python tools/orders.py                          the whole suite: three orders on a quiet machine
    python tools/orders.py --load 4                 the same while four processes keep the processors busy
    python tools/orders.py tests/kernel tests/cli   some of it

No test may depend on luck, on what ran before it, on the worker it runs in, or on how fast the machine is.  Each run
has its own: as collected on three workers, backwards in one process, shuffled over two.  The tests whose verdict is not
the same in all runs are named with their verdicts; so are those that failed everywhere.  What each run said is kept in
out/orders/.  Exit code 1: some verdict differs, or is not that the test passed; 2: a run came to no verdicts at all.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

OUT = Path("out/orders")
GOOD = "passed"
MISSING = "did not run"


class Run(NamedTuple):
    """One way to run the tests."""

    name: str
    arguments: tuple[str, ...]


RUNS = (
    Run("given-3", ("-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")),  # as `make test` does
    Run("reverse-0", ("-n", "0", "--order", "reverse")),
    Run("shuffled-2", ("-n", "2", "--order", "seed:{seed}")),
)

Verdicts = dict[str, str]
"""Test -> passed, failed, error or skipped."""

BUSY = "while True: pass"


@contextmanager
def load_processors(processes: int) -> Iterator[None]:
    """In the block so many processes do nothing, as fast as they can."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def play(run: Run, tests: Sequence[str], seed: int) -> Verdicts:
    """Run the tests so; what became of each."""
    report = OUT / f"{run.name}.xml"
    report.unlink(missing_ok=True)
    arguments = [one.format(seed=seed) for one in run.arguments]
    command = [sys.executable, "-m", "pytest", "-m", "not long", "-q", *arguments, "--junitxml", str(report), *tests]
    with (OUT / f"{run.name}.txt").open("w") as said:
        subprocess.run(command, stdout=said, stderr=said, check=False)
    return read(report) if report.exists() else {}


def read(report: Path) -> Verdicts:
    """The verdicts of a run; a test that failed in any part of it has failed."""
    verdicts: Verdicts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        verdict = {"failure": "failed"}.get(bad[0], bad[0]) if bad else GOOD
        if verdicts.get(name, GOOD) == GOOD:
            verdicts[name] = verdict
    return verdicts


def compare_verdicts(came: dict[str, Verdicts]) -> tuple[list[str], list[str]]:
    """A line for each test whose verdicts differ, and for each that has the same in all runs, and did not pass."""
    names = sorted({name for verdicts in came.values() for name in verdicts})
    differing, bad = [], []
    for name in names:
        verdicts = {run: found.get(name, MISSING) for run, found in came.items()}
        if len(set(verdicts.values())) > 1:
            differing.append(f"{name}: {', '.join(f'{run} {verdict}' for run, verdict in verdicts.items())}")
        elif GOOD not in verdicts.values():
            bad.append(f"{name}: {next(iter(verdicts.values()))} in all of them")
    return differing, bad


def main() -> int:
    """Every run, then the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="files or folders (default: all)")
    parser.add_argument("--load", type=int, default=0, help="processes that keep the machine busy (default 0)")
    parser.add_argument("--seed", type=int, default=1, help="of the shuffled order (default 1)")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    came: dict[str, Verdicts] = {}
    for run in RUNS:
        began = time.monotonic()
        with load_processors(given.load):
            verdicts = came[run.name] = play(run, given.tests, given.seed)
        good = sum(verdict == GOOD for verdict in verdicts.values())
        spent = time.monotonic() - began
        print(f"{run.name}: {good} of {len(verdicts)} passed, {spent:.0f} s, load {given.load}", flush=True)
        if not verdicts:
            print(f"no verdicts: see {OUT / run.name}.txt", file=sys.stderr)
            return 2
    differing, bad = compare_verdicts(came)
    print("\n".join((*differing, *bad, f"{len(differing)} verdicts differ; {len(bad)} others are not: {GOOD}")))
    return 1 if differing or bad else 0


if __name__ == "__main__":
    sys.exit(main())
