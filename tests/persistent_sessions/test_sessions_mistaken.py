"""Persistent sessions explored with mistakes: a rule of the source, what is assumed, planted bugs."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace
from mutants import without_rows

from statemachines.kernel import Row
from statemachines.persistent_sessions.request import RowFenced, RowUnclear
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.writer import WRITER
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.persistent_sessions import SPEC, collector_systems, forgetting
from statemachines_spec.persistent_sessions.counterexamples import ASSUMED, NOT_NEEDED

FOLDER = Path(__file__).parents[2] / "spec" / "persistent_sessions"


def broken(made):
    """What breaks first; of what must be met sooner or later only where everything else holds."""
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    assert result.ended in (COMPLETE, VIOLATED)
    found = {name for name, held in result.always.items() if not held}
    return found or {
        one.name for one in live(made, made.obligations, engine="plain", entries=entries) if not one.is_held
    }


@pytest.mark.parametrize("one", ASSUMED, ids=lambda one: one.name)
def test_what_is_assumed_is_needed(one):
    assert broken(one.system()) == {one.breaks}


@pytest.mark.parametrize(("system", "event"), [("unclear", RowUnclear), ("fenced-beside", RowFenced)])
def test_WRITES_a_writer_without_a_row_for_an_answer_waits_for_ever(system, event):
    gone = tuple(row for row in WRITER.declared if isinstance(row, Row) and row.on is event)
    with ExitStack() as stack:
        without_rows(stack, WRITER, gone)
        found = broken(replace(SPEC.system(system), origin=None))
    assert any(one.startswith("WRITES") for one in found)


def test_KEEPS_room_for_less_than_a_page_is_looked_at_while_the_client_is_still():
    """Shipped it is, and the row is taken that does; without the timer somebody waits for the client alone."""
    shipped = explore(SPEC.system("keeps"), engine="plain", hashing=False)
    row = next(line.number for line in RESUME.lines if line.clause == "PS-286")
    assert shipped.ended == COMPLETE
    assert (RESUME.full_name, row, "normal") in shipped.cells
    with plant_bug("persistent_sessions/keeps-and-waits"):
        found = explore(SPEC.system("keeps"), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == ["KEEPS"]


@pytest.mark.parametrize("name", collector_systems.ASSUMED)
def test_KEPT_VANISH_graces_that_end_too_early_are_missed(name):
    assert broken(collector_systems.without_graces(name)) == {collector_systems.ASSUMED[name][2]}


@pytest.mark.parametrize("name", forgetting.ASSUMED)
def test_PS_122_PS_123_what_the_transaction_that_forgets_must_do_is_missed(name):
    assert broken(forgetting.without(name)) == {forgetting.ASSUMED[name][2]}


@pytest.mark.parametrize("one", NOT_NEEDED, ids=lambda one: one.name)
def test_what_the_source_assumes_and_the_machines_do_not_need(one):
    assert broken(one.system()) == set()
