"""Planting: a plugin for pytest that plants one mutant for the whole run: `GAPLESS_MUTANT="PROTOCOL NAME"`."""

from __future__ import annotations

import os
from contextlib import ExitStack

import pytest

from statemachines.testing.noticing import VARIABLE
from statemachines_spec.mutants.campaign import Field, Shape, picked
from statemachines_spec.mutants.mutant import plant

PLANTED = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is collected."""
    protocol, _, name = os.environ[VARIABLE].partition(" ")
    (mutant,) = picked(Field(Shape(protocol)).mutants, (name,), (), 0, 0)
    PLANTED.enter_context(plant(mutant))


def pytest_unconfigure(config: pytest.Config) -> None:
    """After everything."""
    PLANTED.close()
