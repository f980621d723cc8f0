"""The tables of faults are those of the code, and no neutral file of the simulator names a protocol."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from statemachines import registry
from statemachines_sim.faults import NEUTRAL, table
from statemachines_sim.scenario import find_scenario, list_shipped, list_shipped_with, sim_of

HOME = Path(__file__).parents[2]
SOURCES = HOME / "sim" / "statemachines_sim"
PROTOCOLS = tuple(one.name for one in registry.protocols())
OURS = {"consumer", "borrower", "leader", "assignment", "subscription"}
"""Words that only one protocol uses."""
FILES = sorted(file for file in SOURCES.rglob("*.py") if not {*file.relative_to(SOURCES).parts} & {*PROTOCOLS})
COMMAND = HOME / "statemachines" / "commands" / "simulation.py"


def words(tree):
    """Every name and every string that is no docstring, in its words."""
    documents = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
            yield from re.findall("[a-z]+", node.value)
        elif isinstance(node, ast.Name | ast.Attribute | ast.arg):
            found = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", "")
            yield from found.lower().split("_")


@pytest.mark.parametrize("file", [*FILES, COMMAND], ids=lambda file: file.name)
def test_a_neutral_file_names_no_protocol_and_none_of_its_words(file):
    text = file.read_text()
    assert not re.findall("|".join(PROTOCOLS), text)
    assert sorted(OURS & {word.removesuffix("s") for word in words(ast.parse(text))}) == []


def test_there_are_neutral_files():
    assert len(FILES) > 25


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
