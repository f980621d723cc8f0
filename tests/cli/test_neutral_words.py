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
BESIDE = ("tests/testing", "tests/demo")
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

EXPLORING = ("spec/statemachines_spec", "statemachines/commands/check.py")
"""Here a machine is none of the house words either."""
SIMULATING = ("sim/statemachines_sim", "statemachines/commands/simulation.py")
ONLY_ONE_USES = {"consumer", "borrower", "leader", "assignment", "subscription"}
"""Words of one protocol, which are here no part of a name or string."""
IN_EVERY_LINE = ("statemachines/kernel", "spec/statemachines_spec/explorer")
"""Here they stand in no line, be it of a docstring."""


def neutral_files():
    """Files in no folder, and of no name, of a protocol."""
    for area in (*AREAS, *BESIDE):
        for file in sorted((HOME / area).rglob("*.py")):
            if PROTOCOLS.isdisjoint((*file.relative_to(HOME).parts, file.stem)):
                yield str(file.relative_to(HOME))
    yield "tests/clauses.py"


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


def words_of(tree):
    """Every name and every string, in its words."""
    for value in texts_of(tree):
        yield from re.findall("[a-z]+", value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.arg):
            found = getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "arg", "")
            yield from found.lower().split("_")


def names_in(file, text=""):
    """Protocols that the file names anywhere, machines and roles that are a string of it, words of one protocol.
    `text` stands in the file's place."""
    text = text or (HOME / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    texts = set(texts_of(tree))
    found = {*re.findall("|".join(PROTOCOLS), text)}
    if file.startswith(AREAS):
        found |= {value.rpartition("/")[2] for value in texts} & (MACHINES | ROLES) - HOUSE_WORDS
    if file.startswith(EXPLORING):
        found |= {value.partition("-")[0] for value in texts} & MACHINES
    if file.startswith(SIMULATING):
        found |= ONLY_ONE_USES & {word.removesuffix("s") for word in words_of(tree)}
    if file.startswith(IN_EVERY_LINE):
        words = {word.lower().removesuffix("s") for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", text)}
        found |= (ONLY_ONE_USES | {"agent", "witness"}) & words
    return sorted(found)


FILES = tuple(neutral_files())


def test_a_neutral_file_names_nobody():
    assert {file: names for file in FILES if (names := names_in(file))} == {}


@pytest.mark.parametrize(
    ("file", "planted", "names"),
    [
        ("statemachines/kernel/turn.py", '"""What the Borrower does."""', ["borrower"]),
        ("statemachines/kernel/turn.py", "def find_leaders(): ...", ["leader"]),
        ("spec/statemachines_spec/explorer/tick.py", "# as an agent does", ["agent"]),
        ("spec/statemachines_spec/certificate_set.py", 'SIZE = {"leader-1": 2}', ["leader"]),
        ("sim/statemachines_sim/world.py", "consumers = 3", ["consumer"]),
        ("statemachines/show.py", "# of shared_subscriptions", ["shared_subscriptions"]),
        ("statemachines/show.py", 'NAME = "shared_subscriptions/borrower"', ["borrower", "shared_subscriptions"]),
    ],
)
def test_a_name_that_is_planted_in_a_neutral_file_is_found(file, planted, names):
    text = (HOME / file).read_text(encoding="utf-8")
    assert file in FILES
    assert names_in(file, text) == []
    assert names_in(file, f"{text}\n{planted}\n") == names


def test_there_are_neutral_files_in_every_area_and_the_words_are_real():
    for area in (*AREAS, *BESIDE, *EXPLORING, *SIMULATING):
        assert any(file.startswith(area) for file in FILES), area
    assert sum(file.startswith(AREAS[1]) for file in FILES) > 25
    assert sum(file.startswith(AREAS[2]) for file in FILES) > 30
    assert len(list((HOME / AREAS[2]).rglob("*.py"))) > sum(file.startswith(AREAS[2]) for file in FILES) + 15
    assert {"borrower", "leader"} <= MACHINES
    assert {"leader", "consumer", "publisher"} <= ROLES
    assert names_in("statemachines/shared_subscriptions/__init__.py") != []
