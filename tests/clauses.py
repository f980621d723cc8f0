"""Clauses and the tests named after them: `test_SS_80_...`, `test_CR_09_CR_15_...`, `test_SS_100_to_SS_112_...`.

A test of a clause carries its id in its name, prefix and number, in any spelling that reads well (`SS_80`, `ss80`); a
range stands for all clauses of the page between its ends.  Nothing else counts: what a docstring mentions is no
promise.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from statemachines import catalogue, registry

ROOT = Path(__file__).parent


class Test(NamedTuple):
    """A test function: its file, relative to the folder of tests, and its name."""

    __test__ = False

    file: str
    name: str


def tests_of(clause: str, root: Path = ROOT) -> tuple[Test, ...]:  # noqa: PT028 (no test, whatever its name)
    """The tests below `root` that are named after the clause."""
    return _by_clause(root).get(clause, ())


vars(tests_of)["__test__"] = False


def named_in(test: str) -> tuple[str, ...]:
    """The clauses that a test is named after, in the order of its name."""
    found: dict[str, None] = {}
    for protocol in registry.protocols():
        prefix = protocol.prefix
        known = tuple(catalogue.clauses(protocol.name)) if protocol.page else ()
        spans = re.findall(rf"(?i)(?<![a-z]){prefix}_?(\d+)_to_{prefix}_?(\d+)", test)
        singles = re.findall(rf"(?i)(?<![a-z]){prefix}_?(\d+)(?!\d)", test)
        for first, last in spans:
            found |= dict.fromkeys(one for one in known if int(first) <= int(one.rpartition("-")[2]) <= int(last))
        found |= dict.fromkeys(one for one in known if int(one.rpartition("-")[2]) in map(int, singles))
    return tuple(found)


@cache
def _by_clause(root: Path) -> dict[str, tuple[Test, ...]]:
    found: dict[str, list[Test]] = {}
    for path in sorted(root.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for clause in named_in(node.name):
                    found.setdefault(clause, []).append(Test(str(path.relative_to(root)), node.name))
    return {clause: tuple(tests) for clause, tests in found.items()}
