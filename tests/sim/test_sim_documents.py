"""The tables of faults are those of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from statemachines import registry
from statemachines_sim.faults import NEUTRAL, table
from statemachines_sim.scenario import find_scenario, list_shipped, list_shipped_with, sim_of

HOME = Path(__file__).parents[2]

SIMULATED = [sim_of(one.name) for one in registry.protocols() if "sim" in one.areas]


def test_the_page_has_the_kinds_of_faults_as_they_are():
    assert table(NEUTRAL) in (HOME / "sim" / "README.md").read_text()


@pytest.mark.parametrize("sim", SIMULATED, ids=lambda sim: sim.name)
def test_the_page_of_a_protocol_has_its_kinds_of_faults_as_they_are(sim):
    assert table(sim.faults) in (HOME / "sim" / "scenarios" / sim.name / "README.md").read_text()


@pytest.mark.parametrize("sim", SIMULATED, ids=lambda sim: sim.name)
def test_every_kind_is_named_once_and_its_own_are_drawn_by_some_shipped_scenario(sim):
    names = [kind.name for kind in (*NEUTRAL, *sim.faults)]
    assert len(names) == len(set(names)) == len(sim.kinds)
    drawn = {kind for name in list_shipped_with(sim.name) for kind in find_scenario(f"{sim.name}/{name}").faults}
    assert {kind.name for kind in sim.faults} <= drawn <= set(names)


def test_every_kind_of_all_protocols_is_drawn_by_some_shipped_scenario():
    drawn = {kind for name in list_shipped() for kind in find_scenario(name).faults}
    assert {kind.name for kind in NEUTRAL} <= drawn


def test_no_two_shipped_scenarios_have_the_same_short_name():
    names = [name.partition("/")[2] for name in list_shipped()]
    assert sorted(names) == sorted(set(names))
