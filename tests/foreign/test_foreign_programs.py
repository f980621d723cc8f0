"""Programs that others could have written: they pass, every row is taken, and each mistake in them is found."""

from __future__ import annotations

import pytest
from foreign_programs import FOREIGN
from long_cases import mark_long

from statemachines.testing.conformance.campaign import RUNS, ConformanceOutcome

MISTAKES = [
    pytest.param(one, name, id=f"{one.file}: {name}", marks=[pytest.mark.long] * (name in one.slow))
    for one in FOREIGN
    for name in one.mistakes
]
LONG_TOURS = ("borrower.py", "borrower.js", "session.py")
"""They take ten seconds and more; drawn runs take some three."""


@pytest.mark.parametrize("program", FOREIGN, ids=lambda one: one.file)
def test_a_foreign_program_passes_drawn_runs(program):
    verdict = program.campaign(program.quick).judge(RUNS, tour=False)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict


@pytest.mark.parametrize("program", mark_long(FOREIGN, *LONG_TOURS, name=lambda one: one.file))
def test_a_foreign_program_passes_the_tour_and_takes_every_row(program):
    verdict = program.campaign().judge(0)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict
    assert verdict.coverage.is_whole
    assert verdict.coverage.missed == ()


@pytest.mark.parametrize(("program", "name"), MISTAKES)
def test_a_planted_mistake_is_found_and_its_run_is_short(tmp_path, program, name):
    campaign = program.plant(name, tmp_path)
    verdict = campaign.judge(2 * RUNS)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert 2 <= len(verdict.moves) <= program.longest
    again = campaign.replay(verdict.moves)
    assert (again.outcome, again.why) == (ConformanceOutcome.FAIL, verdict.why)
