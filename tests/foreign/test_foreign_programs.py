"""Programs that others could have written: they pass, every row is taken, and each mistake in them is found."""

from __future__ import annotations

import pytest
from foreign_programs import FOREIGN

from statemachines.testing.conformance.campaign import ConformanceOutcome

MISTAKES = [
    pytest.param(one, name, id=f"{one.file}: {name}", marks=[pytest.mark.long] * (name in one.slow))
    for one in FOREIGN
    for name in one.mistakes
]


@pytest.mark.parametrize("program", FOREIGN, ids=lambda one: one.file)
def test_a_foreign_program_passes_and_every_row_is_taken(program):
    verdict = program.campaign(program.quick).judge(program.runs)
    assert verdict.outcome is ConformanceOutcome.PASS, verdict
    assert verdict.coverage.is_whole
    assert verdict.coverage.missed == ()


@pytest.mark.parametrize(("program", "name"), MISTAKES)
def test_a_planted_mistake_is_found_and_its_run_is_short(tmp_path, program, name):
    campaign = program.plant(name, tmp_path)
    verdict = campaign.judge(400)
    assert verdict.outcome is ConformanceOutcome.FAIL
    assert 2 <= len(verdict.moves) <= program.longest
    again = campaign.replay(verdict.moves)
    assert (again.outcome, again.why) == (ConformanceOutcome.FAIL, verdict.why)
