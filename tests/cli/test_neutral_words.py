"""What is everybody's names no protocol, machine or role: in no line a protocol, in no string a machine or role.

A protocol's own rooms are the folders of its name.  House words that some protocol has for a machine too are listed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from statemachines import registry
from statemachines.drivers import protocol as drivers

HOME = Path(__file__).parents[2]
AREAS = ("statemachines", "sim/statemachines_sim", "spec/statemachines_spec", "reports/statemachines_reports")
PROTOCOLS = frozenset(registry.names())
MACHINES = frozenset(machine for one in registry.protocols() for machine in one.machines)
ROLES = frozenset(drivers.names())

HOUSE_WORDS = frozenset(
    {
        "source",  # a column of traces: the state before
        "group",  # an argument of Popen: of users
        "consumer",  # a column of foreign logs: who got a message
        "stream",  # another: where it stands
        "cache",  # an option of Numba's compiler
    }
)

NAMED = re.compile(rf"\b({'|'.join(sorted(PROTOCOLS))})\b")


def neutral_files():
    """Files in no folder, and of no name, of a protocol."""
    for area in AREAS:
        for file in sorted((HOME / area).rglob("*.py")):
            if PROTOCOLS.isdisjoint((*file.relative_to(HOME).parts, file.stem)):
                yield str(file.relative_to(HOME))


def texts_of(tree):
    """Every string that stands for something: docstrings, and those below a constant, explain."""
    explaining = {
        statement.value
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in explaining:
            yield node.value


def names_in(file):
    """Protocols that the file names anywhere, machines and roles that are a string of it."""
    text = (HOME / file).read_text()
    strings = {value.rpartition("/")[2] for value in texts_of(ast.parse(text))}
    return sorted({*NAMED.findall(text), *(strings & (MACHINES | ROLES) - HOUSE_WORDS)})


FILES = tuple(neutral_files())


@pytest.mark.parametrize("file", FILES)
def test_a_neutral_file_names_nobody(file):
    assert names_in(file) == []


def test_there_are_neutral_files_in_every_area_and_the_words_are_real():
    for area in AREAS:
        assert any(file.startswith(area) for file in FILES), area
    assert {"borrower", "leader"} <= MACHINES
    assert {"leader", "consumer", "publisher"} <= ROLES
    assert names_in("statemachines/shared_subscriptions/__init__.py") != []
