"""The closed systems of shared subscriptions under Hypothesis: they hold, and what breaks is found and told."""

from __future__ import annotations

import pytest
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test
from long_cases import mark_long

from statemachines.testing.closed_run import PropertyBroken
from statemachines.testing.system_test import CLOSED, SystemTest, count_entries
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.property import NO_ERROR
from statemachines_spec.shared_subscriptions.systems import system


def run(kind, examples=60, steps=20, phases=CLOSED.phases):
    bounds = settings(CLOSED, max_examples=examples, stateful_step_count=steps, phases=phases)
    run_state_machine_as_test(kind, settings=bounds)


def broken_by(one, examples=100, **more):
    with pytest.raises(PropertyBroken) as caught:
        run(SystemTest.of(one), examples, **more)
    return caught.value


COUNTED = ("late-copies", "borrower-crash", "unsubscribe", "revoke-timeout", "reordering", "false-timeouts")


@pytest.mark.parametrize(("examples", "taken_min"), [(15, 8), pytest.param(50, 20, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", COUNTED)
def test_a_small_system_holds_and_its_entries_are_counted(name, examples, taken_min):
    one = system(name, "small")
    count = count_entries(f"{name} small", one)
    kind = SystemTest.of(one, count=count)
    run(kind, examples)
    assert count.unknown == 0
    assert min(map(len, count.taken[:3])) >= taken_min


@pytest.mark.parametrize("name", ["pause", "leader-crash", "two-leaders"])
def test_a_large_system_holds(name):
    kind = SystemTest.of(system(name, "large"))
    run(kind, examples=20)
    assert kind.moves > 500


@pytest.mark.long
def test_what_the_source_hands_over_too_early_is_found_and_told():
    one = system("false-timeouts", "small", "at_once")
    with pytest.raises(PropertyBroken) as caught:
        run(seed(17)(SystemTest.of(one)), examples=10_000)  # one run in a few thousand: this seed comes to it soon
    broken = caught.value
    assert broken.what == "S5"
    text = str(broken)
    assert "broken: S5: no two consumers hold one stream under leases that have not ended" in text
    space = {}
    exec(compile(text.partition("To paste into a file of tests:")[2], "pasted", "exec"), space)
    space["test_false_timeouts_s5"]()


BUGS = {
    "duplicate-connect-response": ("late-copies", NO_ERROR),
    "revoke-to-new-owner": ("unsubscribe", "leader:assignments-have-owners"),
}


@pytest.mark.parametrize("name", mark_long(BUGS, "duplicate-connect-response"))
def test_a_planted_bug_is_found(name):
    where, what = BUGS[name]
    with plant_bug(name):
        broken = broken_by(system(where, "small"), examples=500)
    assert broken.what == what
    assert f"broken: {what}" in str(broken)
