"""AdoptedTest: Hypothesis drives one live model of an adopted machine through long runs, and shrinks what breaks.

    TestOrder = AdoptedTest.of(adopt(make_order, invariants=["paid >= 0"], triggers={"pay": [(5,)]})).TestCase

One model takes all calls of a run, as an application has it; each call is also taken as a step on a fresh model that
has its value.  Both must come to the same: what a search says of values is then true of the model that lives on.
"""

from __future__ import annotations

import contextlib
import io
from typing import Any, ClassVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from statemachines.adoption import AdoptedMachine, NotRepeatable
from statemachines.adoption.model_step import name_action
from statemachines.adoption.run_text import describe_run
from statemachines.adoption.state_search import FoundViolation, SearchStep

STEPS = 30
EXAMPLES = 50


class Breaks(AssertionError):
    """A promise does not hold: the run is the message."""


class AdoptedTest(RuleBasedStateMachine):
    """One model under test; make a class of it with `AdoptedTest.of`."""

    adopted: ClassVar[AdoptedMachine]

    @classmethod
    def of(cls, adopted: AdoptedMachine) -> type[AdoptedTest]:
        """A test of an adopted machine; it calls what `triggers` of `adopt` gave."""
        name = "".join(part.title() for part in adopted.place.replace(":", "_").replace(".", "_").split("_"))
        made: type[AdoptedTest] = type(f"{name}Test", (cls,), {"adopted": adopted, "__doc__": f"{adopted.place}."})
        usual = made.TestCase.settings
        phases = [one for one in usual.phases if one is not Phase.explain]
        made.TestCase.settings = settings(usual, phases=phases, stateful_step_count=STEPS)
        return made

    def __init__(self) -> None:
        super().__init__()
        stepper = self.adopted.stepper
        with stepper.install():
            self.subject = stepper.maker.make()
            self.value = stepper.reader.read(self.subject)
        self.legs: list[SearchStep] = []
        self.ended = False
        """The next value would have been beyond `within`: nothing more happens in this run."""
        self._judge(None)

    @rule(data=st.data())
    def call(self, data: st.DataObject) -> None:
        """Some call that the machine is given, or a timer that is set."""
        stepper = self.adopted.stepper
        actions = {name_action(stepper, one): one for one in stepper.actions_in(self.value, self.adopted.request.calls)}
        if not actions or self.ended:
            return
        action = actions[data.draw(st.sampled_from(sorted(actions)), label="call")]
        with stepper.install():
            expected = stepper.step(self.value, action)
            outcome = stepper.act(self.subject, action)
        if expected.code != outcome.code:
            why = f"{action.call} on a model that lives on does not come to what it comes to on a fresh one"
            raise NotRepeatable("machine", self.adopted.place, why)
        with stepper.sandbox.enclose():
            self.ended = any(one.find_broken(expected.value.origin) is not None for one in self.adopted.within)
        if self.ended:
            return
        self.legs.append(SearchStep(action, self.value, expected))
        self.value = expected.value
        self._judge(expected)

    def _judge(self, outcome: Any) -> None:
        """Raises `Breaks` where a promise does not hold."""
        adopted = self.adopted
        if outcome is not None and outcome.kind == "raised" and outcome.error_type not in adopted.request.raises:
            self._fail(f"raises {outcome.error_type}", outcome.error)
        for promise in adopted.properties:
            with adopted.stepper.install(), adopted.stepper.sandbox.enclose():
                broken = promise.find_broken(self.value.origin)
            if broken is not None:
                self._fail(promise.name, "does not hold")

    def _fail(self, name: str, why: str) -> None:
        raise Breaks(describe_run(self.adopted.stepper, FoundViolation(name, why, tuple(self.legs))))


def find_failure(adopted: AdoptedMachine, examples: int = EXAMPLES) -> str | None:
    """A shrunk run that breaks a promise, as text; None: Hypothesis found none.  Raises `NotRepeatable`."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run_state_machine_as_test(AdoptedTest.of(adopted), settings=chosen)
    except Breaks as broken:
        return str(broken)
    return None
