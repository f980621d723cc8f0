"""What is neutral in testing, the demo and the pictures names no protocol, and imports none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from statemachines import registry

HOME = Path(__file__).parents[2]
PROTOCOLS = tuple(one.name for one in registry.protocols())
MACHINES = {one.full_name(machine) for one in registry.protocols() for machine in one.machines}
ROOMS = ("statemachines/testing", "statemachines/demo", "tests/testing", "tests/demo")
ALONE = ("statemachines/commands/demo.py", "statemachines/diagrams.py", "statemachines/show.py", "tests/clauses.py")
FILES = sorted(
    [file for room in ROOMS for file in (HOME / room).rglob("*.py") if not {*file.parts}.intersection(PROTOCOLS)]
    + [HOME / file for file in ALONE]
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(HOME)))
def test_a_neutral_file_names_no_protocol(file):
    text = file.read_text(encoding="utf-8")
    assert re.findall("|".join((*PROTOCOLS, *MACHINES)), text) == []
    imported = [node.module or "" for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    places = {
        place.partition(":")[0].rpartition(".")[0] for one in registry.protocols() for place in one.machines.values()
    }
    assert [module for module in imported if module.startswith(tuple(places))] == []


def test_there_are_files_to_look_at():
    assert len(FILES) > 30
