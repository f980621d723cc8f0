"""One author a property: explorer, simulator and Hypothesis judge by the observers of the protocol."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTOCOLS = (
    "cursor_recovery",
    "missed_samples",
    "mqtt_connections",
    "persistent_sessions",
    "sequence_windows",
    "shared_subscriptions",
)
EXCEPTIONS = tomllib.loads((ROOT / "tools/properties.toml").read_text())
METHODS = ("driven", "explored", "simulated")
JUDGES = ("report_broken", "BrokenProperty")
"""What says that a property does not hold."""


def list_observed(protocol):
    """The properties that its observers judge."""
    return importlib.import_module(f"statemachines.{protocol}.properties").PROPERTIES


def find_shared(page):
    """Properties of a page that two or more methods check."""
    for found in re.finditer(r"^- \*\*([A-Z]+) .*?(?=^- \*\*|^## |\Z)", page, re.MULTILINE | re.DOTALL):
        checked = re.search(r"^  - checked: (.*)$", found[0], re.MULTILINE)
        if checked and sum(method in checked[1] for method in METHODS) > 1:
            yield found[1]


def find_literals(code, names):
    """Lines of code that say of one of these properties, by its name, that it does not hold."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in JUDGES and node.args[0].value in names:
                yield f"{node.lineno}: {node.args[0].value}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_property_that_two_methods_check_has_one_author(protocol):
    shared = set(find_shared((ROOT / "spec" / protocol / "properties.md").read_text()))
    own = EXCEPTIONS.get(protocol, {})
    assert shared - set(list_observed(protocol)) - set(own) == set()
    assert set(own) <= shared
    assert len(own) <= 5
    assert all(len(reason) > 40 for reason in own.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_observers_say_that_such_a_property_does_not_hold(protocol):
    folders = ("sim/statemachines_sim", "spec/statemachines_spec", "statemachines/testing")
    files = [file for folder in folders for file in sorted((ROOT / folder / protocol).rglob("*.py"))]
    names = set(list_observed(protocol))
    assert files
    assert [f"{file.name}:{one}" for file in files for one in find_literals(file.read_text(), names)] == []


def test_a_second_author_is_found():
    page = "- **ONCE Once.** Not twice.\n  - checked: driven, explored\n- **LATE Late.** No.\n  - checked: driven\n"
    assert list(find_shared(page)) == ["ONCE"]
    code = 'judge.report_broken("ONCE", "again")\nBrokenProperty("ONCE", "")\nBrokenProperty("LATE", "")\n'
    assert list(find_literals(code, {"ONCE"})) == ["1: ONCE", "2: ONCE"]
