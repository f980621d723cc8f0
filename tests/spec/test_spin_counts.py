"""SPIN, on Promela generated from the entries, counts the states and transitions that the walkers count."""

from __future__ import annotations

import pytest
from lock_toy import lock_system
from toy_system import backwards, quiet_before_note, toy

from statemachines.kernel import GaplessError
from statemachines_spec.explorer import promela
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import explore

SYSTEMS = {
    "declared machines": lambda: lock_system(asks=1, crashes=1),
    "ordered": lambda: toy({"in_flight": 3, "ordered": True}, last=3, each=2),
    "orders and budgets": lambda: toy({"in_flight": 2}, last=3, hushes=1, orders=(quiet_before_note(),)),
    "an observer": lambda: toy({"in_flight": 3, "duplicating": False}, last=3, observed=True),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_spin_counts_the_same(name, tmp_path):
    entries = Entries(SYSTEMS[name]())
    result = explore(entries.system, engine="plain", entries=entries)
    counts = promela.judge(entries, tmp_path)
    assert (counts.states, counts.transitions) == (result.states, result.transitions)


def test_entries_that_are_not_complete_are_noticed(tmp_path):
    entries = Entries(toy({"in_flight": 2}, properties=(backwards(),), observed=True))
    with pytest.raises(GaplessError, match="no entry for event"):
        promela.judge(entries, tmp_path)


def test_a_tool_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    entries = Entries(toy({"in_flight": 1}))
    with pytest.raises(GaplessError, match="spin is not installed"):
        promela.judge(entries, tmp_path)
