"""The page and its tests name the same clauses."""

from __future__ import annotations

import re
from pathlib import Path

from statemachines import catalogue

HERE = Path(__file__).parent
PAGE = catalogue.page("cursor_recovery")


def clauses():
    return set(re.findall(r"^- \*\*(CR-\d\d)\*\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_every_row_and_invariant_names_a_clause_of_the_page():
    used = {line.clause for machine in catalogue.machines("cursor_recovery") for line in machine.lines}
    used |= {invariant.clause for machine in catalogue.machines("cursor_recovery") for invariant in machine.invariants}
    assert used <= clauses()


def test_every_clause_has_a_test_that_is_named_after_it():
    tests = "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("test_*.py")))
    names = " ".join(re.findall(r"^def (test_\w+)", tests, re.MULTILINE))
    assert clauses() - {found.replace("_", "-") for found in re.findall(r"CR_\d\d", names)} == set()
    assert len(clauses()) > 20


def test_every_decision_that_a_clause_names_is_there():
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"CR-D\d+", text)) == set(re.findall(r"^- \*\*(CR-D\d+) ", text, re.MULTILINE))
