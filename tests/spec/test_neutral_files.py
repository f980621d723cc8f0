"""The explorer, liveness and what is beside them name no protocol: what does belongs into a protocol's folder."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from statemachines import registry
from statemachines_spec.protocol import all_parts

HOME = Path(__file__).parents[2]
SPEC = HOME / "spec" / "statemachines_spec"
PROTOCOLS = tuple(one.name for one in registry.protocols())
MACHINES = {machine for one in registry.protocols() for machine in one.machines}
FILES = sorted(
    file for file in SPEC.rglob("*.py") if not {*file.relative_to(SPEC).parts, file.stem}.intersection(PROTOCOLS)
)
COMMAND = HOME / "statemachines" / "commands" / "check.py"


def strings(tree):
    """Every string that is no docstring."""
    documents = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents:
            yield node.value


@pytest.mark.parametrize("file", [*FILES, COMMAND], ids=lambda file: str(file.relative_to(HOME)))
def test_a_neutral_file_names_no_protocol_and_no_machine(file):
    text = file.read_text()
    assert not re.findall("|".join(PROTOCOLS), text)
    named = [value for value in strings(ast.parse(text)) if value.partition("-")[0] in MACHINES]
    assert named == []


def test_there_are_neutral_files_and_files_of_protocols():
    assert len(FILES) > 30
    assert len(list(SPEC.rglob("*.py"))) > len(FILES) + 15


def test_no_two_planted_bugs_have_one_name():
    """Of all protocols of ours: a table, a report and `tools/planted.py` name them by it alone."""
    names = [bug.name for part in all_parts().values() for bug in part.bugs]
    assert len(names) == len(set(names)) > 100
