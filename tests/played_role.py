"""A role whose services are played, and an implementation that is its own machine with what it does rearranged."""

from statemachines.kernel import name_of
from statemachines.testing.conformance.conformance_run import ConformanceRun, Violated
from statemachines.testing.conformance.conformance_test import InProcess, ShippedMachine
from statemachines.testing.conformance.role import role_of


class Rearranged(ShippedMachine):
    """`change(effects)` is what it does instead."""

    def __init__(self, role, change=list):
        super().__init__(role)
        self.change = change

    def answer(self, line):
        answer = super().answer(line)
        return {**answer, "effects": self.change(answer["effects"])}


def carried(effect):
    """What an effect carries, or nothing."""
    return effect.get("message") or effect.get("request") or effect.get("event") or {"type": ""}


def twice(*kinds):
    """What is of these kinds is done twice."""
    return lambda effects: [one for effect in effects for one in [effect] * (1 + (carried(effect)["type"] in kinds))]


def in_order_of(key):
    """What it does stands in another order."""
    return lambda effects: sorted(effects, key=key)


def play(name, start, inputs, change=list, make=None):
    """What is wrong after these inputs ("": nothing): each the first of its name that may come next and changes
    something, or an event itself.  A number lets that many nanoseconds pass."""
    role = role_of(name)
    run = ConformanceRun(role, InProcess(make(role) if make else Rearranged(role, change)))
    number = next(number for number, one in enumerate(role.starts) if one.name == start)
    try:
        run.begin(role.starts[number])
        for name in inputs:
            if isinstance(name, int):
                run.wait(name)
            elif not isinstance(name, str):
                run.feed(name)
            else:
                inputs = [one for one in run.next_inputs() if name_of(type(one)) == name]
                run.feed(next((one for one in inputs if run.foresee(one).is_change), inputs[0]))
    except Violated as error:
        return str(error)
    return ""
