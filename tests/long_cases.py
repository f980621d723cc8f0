"""Cases of a test that `make soak` runs, while `make test` runs the others."""

import re
from collections import defaultdict
from pathlib import Path

import pytest


def mark_long(cases, *long, name=str):
    """Every case as a parameter; those whose name is among `long` are long tests."""
    assert set(long) <= {name(one) for one in cases}
    return [pytest.param(one, id=name(one), marks=[pytest.mark.long] * (name(one) in long)) for one in cases]


def read_long(text):
    """Test -> regular expressions of its cases that are long."""
    found = defaultdict(list)
    for line in text.splitlines()[2:]:
        test, _, cases = f"tests/{line}".partition("[")
        found[test].append(cases.removesuffix("]") or ".*")
    return found


LONG_TESTS = read_long((Path(__file__).parent / "long.txt").read_text())


def is_long(nodeid):
    """Whether the list names it."""
    test, _, case = nodeid.partition("[")
    return any(re.fullmatch(cases, case[:-1]) for cases in LONG_TESTS.get(test, ()))
