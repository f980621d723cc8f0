"""What is written by hand of an Agent and a registry does what the shipped processes do, in every state."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from statemachines.shared_subscriptions.agent_process import AGENT_MACHINE
from statemachines.shared_subscriptions.registry_process import REGISTRY_MACHINE
from statemachines_spec.bug import change_rows
from statemachines_spec.explorer.explore import explore
from statemachines_spec.shared_subscriptions import process_systems, systems

SAME = (
    "late-copies", "borrower-crash", "old-answers", "revoke-timeout", "fail-over", "late-timers",
)  # fmt: skip


def count(made):
    result = explore(replace(made, origin=None), engine="plain")
    assert (result.is_held, result.is_shown) == (True, True)
    return result.states, result.transitions, result.levels, result.always, result.sometimes


@pytest.mark.parametrize("name", SAME)
def test_a_system_of_shipped_processes_has_the_states_of_its_doubles(name):
    assert count(process_systems.system(name, "small")) == count(systems.system(name, "small"))


def test_SS_175_last_words_are_said_again_with_what_was_read():
    states, *_ = count(process_systems.unsubscribe("small"))
    assert states > count(systems.system("unsubscribe", "small"))[0]


MISTAKES = {
    "SS-244": ("late-copies", lambda stack: change_rows(AGENT_MACHINE, "hear", do=None)(stack)),
    "SS-220": ("idle-stop", lambda stack: change_rows(REGISTRY_MACHINE, "forget_leader", do=None)(stack)),
}


@pytest.mark.parametrize("clause", MISTAKES)
def test_a_mistake_in_the_table_of_a_process_is_found_by_exploring(clause):
    name, plant = MISTAKES[clause]
    with ExitStack() as stack:
        plant(stack)
        result = explore(replace(process_systems.system(name, "small"), origin=None), engine="plain")
    assert not (result.is_held and result.is_shown)
