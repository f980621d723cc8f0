"""The plain walker comes to what the small certificates say (`test_certificates.py` has the rest of them)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from statemachines_spec import certificates
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, system

FOLDER = Path(__file__).parents[3] / "spec" / "shared_subscriptions" / "certificates"


PLAIN_MAX = 4_000
"""States: what is larger the plain walker explores where its results are compared in every field."""


@cache
def small(name):
    """The certificate of a small system."""
    return certificates.read(FOLDER / f"{name}-small.json")


@pytest.mark.parametrize("name", [name for name in SYSTEMS if small(name).states <= PLAIN_MAX])
def test_the_plain_walker_comes_to_the_same(name):
    kept = small(name)
    result = explore(system(name, "small"), engine="plain", hashing=False)
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert (result.states, result.transitions) == (kept.states, kept.transitions)
