"""Noticing: whether the other judges notice a mutant: simulation, Hypothesis, and the tests of a protocol.

Each has some seconds, and none knows what it looks for.  A search that raises has noticed as well.  Tests are run by a
pytest of its own, in which the mutant is planted before anything is collected.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from statemachines.testing.finding import search, searches_of
from statemachines_spec.mutants.judging import OutOfTime, limited
from statemachines_spec.mutants.mutant import Mutant, Unmade, plant

TESTS: Final = "tests"
JUDGES: Final = ("simulation", "hypothesis", TESTS)
VARIABLE: Final = "GAPLESS_MUTANT"
"""Protocol and name of the mutant that a pytest plants, with a space between."""


class Notice(msgspec.Struct, frozen=True):
    """`what` a judge noticed of the mutant `name` ("": nothing, within its time)."""

    name: str
    judge: str
    what: str


def judges_of(protocol: str, tests: Sequence[Path]) -> tuple[str, ...]:
    """The judges that the protocol has: where nothing is simulated, nothing is noticed by simulation."""
    searches = searches_of(protocol)
    there = {"simulation": searches.scenarios, "hypothesis": searches.driven, TESTS: tests}
    return tuple(judge for judge in JUDGES if there[judge])


def notice(protocol: str, mutant: Mutant, judge: str, seconds: float, tests: Sequence[Path] = ()) -> Notice:
    """Let one judge look at one mutant; `tests`: files or folders for pytest."""
    if judge == TESTS:
        return Notice(mutant.name, judge, _tested(protocol, mutant.name, seconds, tests))
    try:
        with plant(mutant), limited(2 * seconds):
            return Notice(mutant.name, judge, search(protocol, judge, cpu_s=seconds).what)
    except (OutOfTime, Unmade):
        return Notice(mutant.name, judge, "")
    except Exception as error:  # it is noticed, whatever it is
        return Notice(mutant.name, judge, type(error).__name__)


def _tested(protocol: str, name: str, seconds: float, tests: Sequence[Path]) -> str:
    """The first test that fails; a pytest that is not done in time has noticed nothing."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "statemachines.testing.planting", "-p", "no:randomly"]
    environment = {**os.environ, VARIABLE: f"{protocol} {name}"}
    try:
        done = subprocess.run(
            [*command, *map(str, tests)], env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) \S*?([^/\s]+)(?: |$)", done.stdout, re.MULTILINE)
    if failed:
        return failed[1]
    return "" if done.returncode == 0 else f"pytest ended with {done.returncode}"
