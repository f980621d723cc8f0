"""Cases of a test that `make soak` runs, while `make test` runs the others."""

from __future__ import annotations

import pytest


def mark_long(cases, *long, name=str):
    """Every case as a parameter; those whose name is among `long` are long tests."""
    assert set(long) <= {name(one) for one in cases}
    return [pytest.param(one, id=name(one), marks=[pytest.mark.long] * (name(one) in long)) for one in cases]
