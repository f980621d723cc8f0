"""Cases of a test that `make soak` runs, while `make test` runs the others."""

from pathlib import Path

import pytest


def mark_long(cases, *long, name=str):
    """Every case as a parameter; those whose name is among `long` are long tests."""
    assert set(long) <= {name(one) for one in cases}
    return [pytest.param(one, id=name(one), marks=[pytest.mark.long] * (name(one) in long)) for one in cases]


def read_long(text):
    """Test that is long -> the cases of it that are not."""
    found, stay = {}, []
    for line in text.splitlines():
        if line.startswith("  but "):
            stay.append(line[6:])
        elif not line.startswith("#"):
            stay = found[f"tests/{line}"] = []
    return found


LONG_TESTS = read_long((Path(__file__).parent / "long.txt").read_text())
