"""GroupTest: Hypothesis drives a whole group, and the properties of the page are its invariants.

    TestGroup = GroupTest.TestCase                           # unittest and pytest run it

A run draws its swarm first: which faults there are in it and how likely each is, so that one run is all about crashes
and another about late messages.  Between faults the world makes some untroubled moves.  At the end everything heals,
and what must come true does (`finish`).  A failing run is shortened (`script`), and says which moves break what, and
how.

Searches: the scenarios that are simulated, and the groups that Hypothesis drives, to find a planted bug.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from statemachines import catalogue
from statemachines.testing.bug_search import DrivenTest, Searches, fix_draws
from statemachines.testing.closed_run import PropertyBroken as PropertyBroken
from statemachines.testing.closed_run import broken_type
from statemachines.testing.script import ScriptFailure, ScriptMove, make, shorten, tell_counterexample
from statemachines.testing.shared_subscriptions.system import GroupSystem

MACHINES = catalogue.machines("shared_subscriptions")

CONSUMERS = ("consumer-1", "consumer-2", "consumer-3")
TOPICS = ("a", "b", "c")
NUMBER = st.integers(0, 7)
SOON = st.integers(0, 20)
CONSUMER = st.sampled_from(CONSUMERS)
NODE = st.sampled_from((*CONSUMERS, "leader-1"))
TOPIC = st.sampled_from(TOPICS)
RUN = ("run", st.integers(1, 60))
LATE = st.sampled_from(tuple(dict.fromkeys(timer for fsm in MACHINES for timer in fsm.timer_registry())))
"""Every timer that a node may have: one that was taken back may still fire."""

Kind = tuple[Any, ...]

USUAL: tuple[Kind, ...] = (
    RUN, RUN, RUN,
    ("publish", TOPIC, st.integers(1, 5)),
    ("deliver", NUMBER),
    ("answer", NUMBER),
    ("fire",),
    ("take", CONSUMER, st.integers(1, 3)),
    ("acknowledge", CONSUMER, NUMBER),
)  # fmt: skip
"""What happens in every run: a method of `System` and its arguments."""

FAULTS: tuple[Kind, ...] = (
    ("foresee", st.just("lost"), SOON),
    ("foresee", st.just("twice"), SOON),
    ("foresee", st.just("late"), SOON),
    ("let_go", NUMBER),
    ("foresee_failure", st.sampled_from(("failed", "in doubt", "late")), NUMBER),
    ("crash", NODE),
    ("restart", st.just("leader-1")),
    ("subscribe", CONSUMER),
    ("pause", NODE),
    ("resume", NODE),
    ("leave", CONSUMER, st.sampled_from((False, False, False, True))),
    ("halt",),
    ("tire", CONSUMER),
    ("end_stream", TOPIC),
    ("fire_late", NUMBER, LATE),
)
"""What a swarm chooses from."""

WEIGHTS = (0, 0, 1, 3)
TRANSIT_MS = (0, 0, 0, 20)
"""How long a message takes: within what the configuration reckons with."""


class GroupTest(RuleBasedStateMachine):
    """One leader host, up to three consumers, both stores.

    `moves`: made by all runs so far, for those who count; `explain`: a failing run is shortened and told.
    """

    moves: ClassVar[int] = 0
    explain: ClassVar[bool] = True

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """The swarm of this run; consumers that subscribe, something to read, and a calm beginning."""
        self.system = GroupSystem()
        self.script: list[ScriptMove] = []
        self.failure: ScriptFailure | None = None
        weights = data.draw(st.lists(st.sampled_from(WEIGHTS), min_size=len(FAULTS), max_size=len(FAULTS)))
        self.kinds = (*USUAL, *(kind for kind, weight in zip(FAULTS, weights, strict=True) for _ in range(weight)))
        transit = data.draw(st.sampled_from(TRANSIT_MS), label="milliseconds that a message takes")
        if transit:
            self._make(ScriptMove("take_time", (transit,)))
        for node in CONSUMERS[: data.draw(st.integers(1, 3), label="consumers")]:
            self._make(ScriptMove("subscribe", (node,)))
        for topic in TOPICS[: data.draw(st.integers(1, 3), label="topics")]:
            self._make(ScriptMove("publish", (topic, 3)))
        self._make(ScriptMove("run", (data.draw(st.integers(0, 150), label="calm moves"),)))

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        """One thing that happens, as likely as the swarm has it."""
        name, *args = data.draw(st.sampled_from(self.kinds))
        self._make(ScriptMove(name, tuple(data.draw(arg) for arg in args)))

    @invariant()
    def no_property_is_broken(self) -> None:
        """S1 to S14 as the monitors judge them when things happen, and the machines' own invariants."""
        failure = getattr(self, "failure", None)
        if failure is not None:
            script = tuple(self.script)
            if self.explain:
                script = shorten(GroupSystem, script, failure)
            text = tell_counterexample(GroupSystem, script) if self.explain else f"{failure.what}: {failure.detail}"
            raise broken_type(failure.what)(text)

    def teardown(self) -> None:
        """Everything heals, and L1 to L9 come true."""
        if getattr(self, "failure", self) is None:
            self._make(ScriptMove("finish"))
            GroupTest.moves += self.system.moves
            self.no_property_is_broken()

    def _make(self, move: ScriptMove) -> None:
        if self.failure is None:
            self.script.append(move)
            self.failure = make(self.system, move)


def run_group(examples: int, *, steps: int = 40, kind: type[GroupTest] = GroupTest) -> None:
    """So many runs, always the same; raises `PropertyBroken` for the first that fails."""
    with fix_draws():
        run_state_machine_as_test(kind, settings=settings(GROUP, max_examples=examples, stateful_step_count=steps))


GROUP = settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a script is shortened by its own meaning
    derandomize=True,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    verbosity=Verbosity.quiet,  # the script says it better than the draws
    suppress_health_check=list(HealthCheck),
)
"""What a test of whole groups needs; a profile with more examples makes a soak of it."""

GroupTest.TestCase.settings = settings(GROUP, max_examples=100, stateful_step_count=40)


SEARCHES: Final = Searches(
    scenarios=(
        "quiet", "joins", "network", "kills", "pauses", "partitions", "storm", "generations", "queues", "leaving",
        "halts", "kicks", "lossy", "busy_loops", "poison", "dead_letters",
    ),
    driven=(DrivenTest("groups", lambda: GroupTest, GROUP),),
)  # fmt: skip
