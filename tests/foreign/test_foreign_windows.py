"""The window of a receiver that others wrote in JavaScript: it passes, and ten mistakes in it are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from statemachines.testing.conformance.campaign import Campaign, ConformanceOutcome
from statemachines.testing.conformance.child_process import ChildProcess
from statemachines.testing.conformance.role import role_of

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from bugs import LATER, WINDOW  # noqa: E402

sys.path.pop(0)

FILE = HERE / "subscriber_window.js"
ROLE = role_of("sequence_windows/subscriber_window")


def campaign(path):
    return Campaign(ROLE, lambda: ChildProcess(("node", str(path))))


def test_a_foreign_window_passes_and_every_row_is_taken():
    verdict = campaign(FILE).judge(runs=20)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict
    assert verdict.coverage.missed == ()
    assert verdict.coverage.rows == verdict.coverage.taken == 43


@pytest.mark.parametrize("bug", WINDOW)
def test_a_planted_bug_is_found_and_its_run_is_short(tmp_path, bug):
    right, wrong = WINDOW[bug]
    text = FILE.read_text()
    assert text.count(right) == 1
    path = tmp_path / FILE.name
    path.write_text(text.replace(right, wrong))
    verdict = campaign(path).judge(runs=100)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert 3 <= len(verdict.moves) <= 8
    again = campaign(path).replay(verdict.moves)
    assert (again.outcome, again.why) == (ConformanceOutcome.FAIL, verdict.why)


def test_half_of_the_bugs_show_only_later():
    assert (len(WINDOW), len(WINDOW.keys() & LATER)) == (10, 6)
