"""Consumers and leader hosts of the systems run the shipped processes: a mistake in their tables is found."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from statemachines.shared_subscriptions.agent_process import AGENT_MACHINE
from statemachines.shared_subscriptions.registry import REGISTRY_MACHINE
from statemachines_spec.bug import change_rows
from statemachines_spec.explorer.explore import explore
from statemachines_spec.shared_subscriptions import systems

MISTAKES = {
    "SS-244": ("late-copies", lambda stack: change_rows(AGENT_MACHINE, "hear", do=None)(stack)),
    "SS-220": ("idle-stop", lambda stack: change_rows(REGISTRY_MACHINE, "forget_leader", do=None)(stack)),
}


@pytest.mark.parametrize("clause", MISTAKES)
def test_a_mistake_in_the_table_of_a_process_is_found_by_exploring(clause):
    name, plant = MISTAKES[clause]
    with ExitStack() as stack:
        plant(stack)
        result = explore(replace(systems.system(name, "small"), origin=None), engine="plain")
    assert not (result.is_held and result.is_shown)
