"""Closed systems of the explorer under Hypothesis: what holds is kept, what breaks is found, shrunk and told."""

import re
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from statemachines.kernel import ConfigurationError
from statemachines.testing.system_test import CLOSED, EntryCount, PropertyBroken, SystemTest, format_entries
from statemachines_spec.explorer.explore import explore, follow
from statemachines_spec.explorer.property import NO_ERROR

sys.path.insert(0, str(Path(__file__).parents[1] / "spec"))
from symmetric_system import backwards, never_takes, toy

sys.path.pop(0)


def run(kind, examples=60, steps=20, phases=CLOSED.phases):
    bounds = settings(CLOSED, max_examples=examples, stateful_step_count=steps, phases=phases)
    run_state_machine_as_test(kind, settings=bounds)


def broken_by(one, examples=100, **more):
    with pytest.raises(PropertyBroken) as caught:
        run(SystemTest.of(one), examples, **more)
    return caught.value


# -- a system small enough to read ----------------------------------------------------------------------------------


@pytest.mark.long
def test_what_breaks_is_shrunk_to_a_shortest_run_and_told_with_a_script_to_paste():
    one = toy({"in_flight": 3}, last=3, properties=(backwards(),), observed=True)
    broken = broken_by(one)
    assert broken.what == "in order"
    text = str(broken)
    assert "broken: in order: nothing is taken after something later" in text
    script = re.search(r"SCRIPT = \((.*?)^\)", text, re.DOTALL | re.MULTILINE)[1]
    lines = eval(f"({script})")
    assert follow(one, lines).broken == "in order"
    assert len(lines) == len(explore(one, engine="plain").path.legs)


@pytest.mark.parametrize(
    ("one", "what"),
    [
        (toy({"in_flight": 2}, properties=(never_takes(20),)), "never 20"),
        (toy({"in_flight": 2}, fail_at=20), NO_ERROR),
    ],
    ids=["a step", "an error"],
)
def test_steps_and_errors_are_judged_too(one, what):
    broken = broken_by(one)
    assert broken.what == what
    assert f"broken: {what}" in str(broken)


def test_the_same_test_finds_the_same_run():
    one = toy({"in_flight": 3}, last=3, properties=(backwards(),), observed=True)
    texts = {str(broken_by(one, phases=(Phase.generate,))) for _ in range(2)}
    assert len(texts) == 1


# -- counting -------------------------------------------------------------------------------------------------------


def test_a_count_is_printed_with_its_denominators():
    assert format_entries("toy", {"talker": (900, 1_000), "listener": (1_100, 2_377)}) == (
        "toy: 2 000 of 3 377 (59 %): talker 900 of 1000, listener 1100 of 2377"
    )


def test_a_system_too_large_to_explore_has_no_count(monkeypatch):
    from statemachines.testing import system_test

    monkeypatch.setattr(system_test, "explore", lambda *args, **more: explore(*args, **more, states_max=3_000))
    with pytest.raises(ConfigurationError, match="too large to be explored"):
        EntryCount("toy", toy({"in_flight": 4}, last=60))
