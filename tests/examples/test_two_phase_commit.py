"""examples/two_phase_commit.py has the states that the tests of Stateright's example state for the same model."""

from importlib import import_module
from pathlib import Path

import pytest

from statemachines_spec import explore
from statemachines_spec.explorer.service_actor import search

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def spec(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return import_module("two_phase_commit").SPEC


@pytest.mark.parametrize(("managers", "states"), [("3", 288), ("5", 8_832)])
def test_states_are_those_of_the_published_model(spec, managers, states):
    result = explore(spec.system("direct", managers))
    assert (result.ended, result.states) == ("complete", states)
    assert (result.is_held, result.is_shown, result.cuts) == (True, True, 0)


def test_a_naive_search_counts_the_same(spec):
    system = spec.system("direct", "3")
    result, plainest = explore(system), search(system, 1_000)
    assert (result.states, result.transitions) == (plainest.states, plainest.transitions)


def test_a_manager_that_commits_too_early_is_found(spec):
    result = explore(spec.system("direct", "3", "impatient"))
    assert (result.path.broken, len(result.path.legs)) == ("consistent", 7)
