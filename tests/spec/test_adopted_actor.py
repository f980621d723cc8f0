"""Several instances of adopted machines are one system: states multiply, steps do not, and a property relates them."""

from __future__ import annotations

from transitions import Machine

from statemachines.adoption import adopt
from statemachines_spec.explorer import counterexample
from statemachines_spec.explorer.adopted_actor import AdoptedActor, build_adopted_system, view_instance
from statemachines_spec.explorer.explore import explore
from statemachines_spec.explorer.property import Always


class Lamp:
    """Counts to three, and may fail."""

    def __init__(self):
        self.count = 0

    def more(self):
        self.count = (self.count + 1) % 3

    def fail(self):
        raise ValueError("burnt")


def make_lamp(fails=False):
    lamp = Lamp()
    machine = Machine(lamp, ["off", "on"], initial="off", auto_transitions=False)
    machine.add_transition("flip", "off", "on", after="more")
    machine.add_transition("flip", "on", "off")
    if fails:
        machine.add_transition("burn", "on", "off", before="fail")
    return lamp


def lamps(*names, holds=()):
    return dict.fromkeys(names, adopt(make_lamp, invariants=holds))


def test_states_multiply_and_steps_do_not():
    one = adopt(make_lamp).search().found
    result = explore(build_adopted_system("lamps", lamps("a", "b", "c")), engine="plain")
    assert result.states == one.states**3 == 216
    assert result.transitions == 3 * 216
    assert sum(result.entries.values()) == 3 * one.steps


def test_a_promise_of_the_machine_and_a_property_over_two_of_them_are_judged():
    result = explore(build_adopted_system("lamps", lamps("a", "b", holds=["count < 2"])), engine="plain")
    assert result.path is not None
    assert result.path.broken == "a: count < 2"
    instances = lamps("a", "b")
    views = tuple(view_instance(name, one, 3, lambda model: model.count) for name, one in instances.items())
    apart = Always("close", "The counts differ by one at most.", views, lambda one, other: abs(one - other) < 2)
    result = explore(build_adopted_system("lamps", instances, apart), engine="plain")
    assert result.path is not None
    assert "Lamp" not in counterexample.describe_path(result.path)
    assert "flip()" in counterexample.describe_path(result.path)
    assert len(result.path.legs) == 3


def test_a_callback_that_raises_breaks_the_system():
    adopted = adopt(lambda: make_lamp(fails=True))
    result = explore(build_adopted_system("lamps", {"a": adopted}), engine="plain")
    assert result.path is not None
    assert "burnt" in result.path.why


def test_values_are_named_and_bounded():
    adopted = adopt(make_lamp, within=["count < 2"])
    system = build_adopted_system("lamps", {"a": adopted})
    (actor,) = system.actors
    assert isinstance(actor, AdoptedActor)
    assert actor.bounds()["within"] == "count < 2"
    result = explore(system, engine="plain")
    assert (result.states, result.cuts) == (3, 1)
