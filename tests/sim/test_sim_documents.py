"""The tables of faults are those of the code, and no neutral file of the simulator names a protocol."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from statemachines import registry
from statemachines_sim.faults import NEUTRAL, kinds_of, table
from statemachines_sim.scenario import named, shipped
from statemachines_sim.shared_subscriptions import SIM

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


def test_the_pages_have_the_kinds_of_faults_as_they_are():
    assert table(NEUTRAL) in (HOME / "sim" / "README.md").read_text()
    ours = HOME / "sim" / "scenarios" / SIM.name / "README.md"
    assert table(SIM.faults) in ours.read_text()


def test_every_kind_is_named_once_and_some_shipped_scenario_may_draw_it():
    names = [kind.name for kind in (*NEUTRAL, *SIM.faults)]
    assert len(names) == len(set(names)) == len(kinds_of(SIM))
    assert {kind for name in shipped() for kind in named(name).faults} == set(names)
