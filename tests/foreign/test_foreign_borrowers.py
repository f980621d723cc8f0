"""Borrowers that others wrote, in Python and in JavaScript: they pass, and ten mistakes and more in each are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from statemachines.testing.conformance.campaign import RUNS, Campaign, ConformanceOutcome
from statemachines.testing.conformance.child_process import ChildProcess
from statemachines.testing.conformance.role import role_of

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from bugs import JAVASCRIPT, LATER, PYTHON, WINDOW  # noqa: E402

sys.path.pop(0)

ROLE = role_of("shared_subscriptions/borrower")
COMMANDS = {"borrower.py": sys.executable, "borrower.js": "node"}
BUGS = [("borrower.py", name) for name in PYTHON] + [
    pytest.param("borrower.js", name, marks=[pytest.mark.long] * (number > 2)) for number, name in enumerate(JAVASCRIPT)
]
"""`make soak` looks for most of the mistakes in JavaScript: no two of them are the same."""


def campaign(path):
    command = (COMMANDS[f"borrower{path.suffix}"], str(path))
    return Campaign(ROLE, lambda: ChildProcess(command))


@pytest.mark.long
@pytest.mark.parametrize("file", COMMANDS)
def test_a_foreign_borrower_passes_and_every_row_is_taken(file):
    """In `make test` they pass over the wire.  Fields that are only passed on are seen by drawn grants."""
    verdict = campaign(HERE / file).judge(runs=RUNS)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict
    assert verdict.coverage.missed == ()
    assert verdict.coverage.rows == verdict.coverage.taken == 95
    assert verdict.coverage.pairs_taken > 150


@pytest.mark.parametrize(("file", "bug"), BUGS)
def test_a_planted_bug_is_found_and_its_run_is_short(tmp_path, file, bug):
    right, wrong = {**PYTHON, **JAVASCRIPT}[bug]
    text = (HERE / file).read_text()
    assert text.count(right) == 1
    path = tmp_path / file
    path.write_text(text.replace(right, wrong))
    verdict = campaign(path).judge(runs=400)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert 2 <= len(verdict.moves) <= 8
    again = campaign(path).replay(verdict.moves)
    assert (again.outcome, again.why) == (ConformanceOutcome.FAIL, verdict.why)


def test_half_of_the_bugs_show_only_later():
    assert {*PYTHON, *JAVASCRIPT, *WINDOW} >= LATER
    assert len(LATER) >= 10
    assert (len(PYTHON), len(JAVASCRIPT)) == (13, 10)
