"""Clauses and the tests named after them: `test_SS_80_...`, `test_CR_09_CR_15_...`, `test_SS_100_to_SS_112_...`, and
blocks of steps texts and exchanges, whose first line begins with `SS-80 SS-81`.

A test of a clause carries its id in its name, prefix and number, in any spelling that reads well (`SS_80`, `ss80`); a
range stands for all clauses of the page between its ends.  Nothing else counts: what a docstring mentions is no
promise.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from statemachines import catalogue, registry

ROOT = Path(__file__).parent
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)
"""Read as text: to parse all files of tests takes seconds."""
TITLE = re.compile(r"^[A-Z]{1,4}-\d+\b.*", re.MULTILINE)
"""Of a block in a steps text."""


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
    for prefix, known in _numbers_of_clauses():
        spans = re.findall(rf"(?i)(?<![a-z]){prefix}[_-]?(\d+)[_ ]to[_ ]{prefix}[_-]?(\d+)", test)
        singles = {int(one) for one in re.findall(rf"(?i)(?<![a-z]){prefix}[_-]?(\d+)(?!\d)", test)}
        for first, last in spans:
            found |= dict.fromkeys(one for number, one in known if int(first) <= number <= int(last))
        if singles:
            found |= dict.fromkeys(one for number, one in known if number in singles)
    return tuple(found)


@cache
def _numbers_of_clauses() -> tuple[tuple[str, tuple[tuple[int, str], ...]], ...]:
    """Of each protocol its prefix, and its clauses with their numbers."""
    return tuple(
        (one.prefix, tuple((int(clause.rpartition("-")[2]), clause) for clause in catalogue.clauses(one.name)))
        for one in registry.protocols()
        if one.page
    )


@cache
def _by_clause(root: Path) -> dict[str, tuple[Test, ...]]:
    found: dict[str, list[Test]] = {}
    for path in sorted((*root.rglob("test_*.py"), *root.rglob("steps/*.txt"), *root.rglob("exchanges/*.txt"))):
        for name in (DEFINED if path.suffix == ".py" else TITLE).findall(path.read_text(encoding="utf-8")):
            for clause in named_in(name):
                found.setdefault(clause, []).append(Test(str(path.relative_to(root)), name))
    return {clause: tuple(tests) for clause, tests in found.items()}
