"""MachineTest: Hypothesis drives one machine with any events of its alphabet, and compares every step.

    TestBorrower = MachineTest.of(BORROWER).TestCase         # unittest and pytest run it

What is checked at every step: the reference engine takes the same one; taken twice it gives the same; a twin whose
clock is years ahead takes the same rows with the same effects and deadlines; a refused event leaves no mark; declared
invariants hold, in full; a node restored from its snapshot is the node and goes on like it; a final state is final.

Events come valid and aimed (see `strategies`), messages also hostile; timers fire when due and late; services answer in
any order, fail, and do what others ask of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypedDict, Unpack

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from statemachines.kernel import (
    Answer,
    Ask,
    Event,
    Fsm,
    LocalProtocolError,
    Message,
    Node,
    ProtocolError,
    Request,
    Send,
    Service,
    SetTimer,
    Step,
    Tell,
)
from statemachines.testing import strategies
from statemachines.testing.protocol import Environment, Legal, Move, Values, environment_of
from statemachines.testing.struct_values import Pool
from statemachines.timer_registry import check_timers

SHIFT_NS = 10**18
"""How far the twin's clock is ahead: some thirty years."""

STORE_NS = 10**12
"""The stores' clock is not the machine's."""

MS = 1_000_000
PAUSES_NS = (MS, 100 * MS, 1_000 * MS, 20_000 * MS)
KEPT = 8
"""The pool remembers what so many effects said."""

SOME = st.integers(1, 4)
ONE_IN_FIVE = st.integers(0, 4)


class EnvironmentFields(TypedDict, total=False):
    """Fields of `Environment`, by their names."""

    start: st.SearchStrategy[Any]
    services: Mapping[str, Service[Any]]
    failed: Mapping[str, Callable[[int], Answer]]
    others: Mapping[str, Callable[[Any], st.SearchStrategy[Request]]]
    legal: Legal
    opening: tuple[Move, ...]


class MachineTest(RuleBasedStateMachine):
    """One machine under test; make a class of it with `MachineTest.of`."""

    fsm: ClassVar[Fsm[Any]]
    around: ClassVar[Environment]
    values: ClassVar[Values | None] = None
    watch: ClassVar[list[Callable[[Node[Any], Event, Step[Any]], None]]] = []
    """Called with every step, for those who count or compare."""

    @classmethod
    def of(
        cls, fsm: Fsm[Any], *, values: Values | None = None, **around: Unpack[EnvironmentFields]
    ) -> type[MachineTest]:
        """A test of `fsm`, registered or not, in the environment that its protocol gives for it, if it gives one.

        `around`: fields of `Environment` in place of what the protocol says; `values`: what is drawn for fields, in
        place of what it says.
        """
        check_timers((fsm,))
        made: type[MachineTest] = type(
            f"{fsm.name.title()}Test",
            (cls,),
            {
                "fsm": fsm,
                "around": replace(environment_of(fsm), **around),
                "values": values,
                "__doc__": f"The machine {fsm.full_name} under any events.",
            },
        )
        # Which draws of a failing run could be others takes Hypothesis minutes to say, and seconds to find the run.
        usual = made.TestCase.settings
        made.TestCase.settings = settings(usual, phases=[one for one in usual.phases if one is not Phase.explain])
        return made

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A fresh record, and its twin; and the events that this run goes without."""
        around = self.around
        kinds = [kind for kind in self.fsm.alphabet if not (around.services and issubclass(kind, Answer))]
        without = data.draw(st.sets(st.sampled_from(kinds), max_size=len(kinds) - 1), label="without")
        self.kinds = [kind for kind in kinds if kind not in without]
        start = strategies.starting(self.fsm.record_type, self.values) if around.start is None else around.start
        record = data.draw(start, label="record")
        name = getattr(record, "id", "node-1~1/1")
        self.now = 0
        self.before = record
        self.steps: list[Step[Any]] = []
        self.twin_steps: list[Step[Any]] = []
        self.pending: list[Ask] = []
        self.heard: list[Any] = []
        self.stores = {key: service.initial() for key, service in around.services.items()}
        self.node = Node(self.fsm, record, name=name, now_ns=0, observe=self._observe, check=True)
        self.twin = Node(self.fsm, record, name=name, now_ns=SHIFT_NS, observe=self._observe_twin)
        for move in around.opening[: data.draw(st.integers(0, len(around.opening)), label="moves of the opening")]:
            if not self.node.stopped:
                self._feed(move(self.node.record))
            while self.pending:
                ask = self.pending.pop(0)
                for answer in self._apply(ask.service, ask.request):
                    self._feed(answer)

    # -- what may happen ----------------------------------------------------------------------------------------

    @rule(data=st.data())
    def event(self, data: st.DataObject) -> None:
        """Some events of the alphabet; answers only where no service gives them."""
        for _ in range(data.draw(SOME)):
            kind = data.draw(st.sampled_from(self.kinds))
            hostile = issubclass(kind, Message) and data.draw(ONE_IN_FIVE) == 4
            pool = Pool(self.node.record, *self.heard)
            event = data.draw(strategies.of(kind, pool, hostile=hostile, values=self.values), label="event")
            if self.around.legal(self.node.record, event):
                self._feed(event)

    @precondition(lambda self: not self.node.stopped)
    @rule(pause=st.sampled_from(PAUSES_NS))
    def wait(self, pause: int) -> None:
        """Time goes by; what is due fires before the next event."""
        self.now += pause

    @precondition(lambda self: self.node.deadline() is not None)
    @rule()
    def fire(self) -> None:
        """The next timer is due."""
        self.now = max(self.now, self.node.deadline() or 0)
        self._perform(self.node.fire(self.now), self.twin.fire(self.now + SHIFT_NS))

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """Services carry out some requests, or fail before or after."""
        for _ in range(data.draw(SOME)):
            if self.pending:
                self._carry_out(data)

    def _carry_out(self, data: st.DataObject) -> None:
        ask = self.pending.pop(data.draw(st.integers(0, len(self.pending) - 1), label="request"))
        outcomes = ("done", "done", "done", "failed", "in doubt") if ask.service in self.around.failed else ("done",)
        outcome = data.draw(st.sampled_from(outcomes))
        answers: tuple[Answer, ...] = ()
        if outcome != "failed":
            answers = self._apply(ask.service, ask.request)
        if outcome != "done":
            answers = (self.around.failed[ask.service](ask.request.n),)  # type: ignore[attr-defined]
        for answer in answers:
            self._feed(answer)

    @precondition(lambda self: self.around.others)
    @rule(data=st.data())
    def stir(self, data: st.DataObject) -> None:
        """Somebody else asks something of a service."""
        name = data.draw(st.sampled_from(sorted(self.around.others)))
        self._apply(name, data.draw(self.around.others[name](self.node.record), label="request of another"))

    @precondition(lambda self: not self.node.stopped)
    @rule()
    def sleep_and_wake(self) -> None:
        """The node goes on from its snapshot."""
        snapshot = self.node.snapshot()
        restored = Node.restore(self.fsm, snapshot, observe=self._observe, check=True)
        assert restored.record == self.node.record
        assert restored.armed_timers() == self.node.armed_timers()
        assert restored.stopped == self.node.stopped
        assert restored.snapshot() == snapshot
        self.node = restored
        self.before = restored.record

    @precondition(lambda self: self.node.stopped)
    @rule(data=st.data())
    def begin_again(self, data: st.DataObject) -> None:
        """Another one takes its place."""
        self.begin(data)

    # -- what must hold -----------------------------------------------------------------------------------------

    @invariant()
    def invariants_hold(self) -> None:
        """The declared ones, in full."""
        self.node.check()

    @invariant()
    def the_twin_is_alike(self) -> None:
        """Shifting all times by a constant changes no row and no effect."""
        assert [step.row for step in self.steps] == [step.row for step in self.twin_steps]
        shifted = [_unshifted(step, SHIFT_NS) for step in self.twin_steps]
        assert [_unshifted(step, 0) for step in self.steps] == shifted
        ahead = {slot: deadline - SHIFT_NS for slot, deadline in self.twin.armed_timers().items()}
        assert self.node.armed_timers() == ahead
        self.steps.clear()
        self.twin_steps.clear()

    @invariant()
    def the_end_is_the_end(self) -> None:
        """Whoever reached a final state has stopped, and has no timer left."""
        if self.node.record.status in self.fsm.final:
            assert self.node.stopped
            assert self.node.deadline() is None

    # -- inside -------------------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        """To the node and its twin: both take it, or both refuse it and are as before."""
        if self.node.stopped:
            self._refuse_at_the_end(event)
            return
        due, twin_due = self.node.fire(self.now), self.twin.fire(self.now + SHIFT_NS)
        self._perform(due, twin_due)
        if self.node.stopped:
            return
        record, armed = self.node.record, self.node.armed_timers()
        ours = self._outcome(self.node, event, self.now)
        twins = self._outcome(self.twin, event, self.now + SHIFT_NS)
        if isinstance(ours, ProtocolError):
            assert (type(ours), str(ours)) == (type(twins), str(twins))
            assert (self.node.record, self.node.armed_timers()) == (record, armed)
            expected = _refusal(lambda: self.fsm.reference_step(record, event, self.now))
            assert (type(expected), str(expected)) == (type(ours), str(ours))
        else:
            assert not isinstance(twins, ProtocolError), twins
            self._perform(ours, twins)

    def _refuse_at_the_end(self, event: Event) -> None:
        record = self.node.record
        error = _refusal(lambda: self.node.feed(event, self.now))
        assert isinstance(error, LocalProtocolError), error
        assert self.node.record is record
        if record.status in self.fsm.final:
            assert _refusal(lambda: self.fsm.step(record, event, self.now)) is not None

    @staticmethod
    def _outcome(node: Node[Any], event: Event, now_ns: int) -> Any:
        try:
            return node.feed(event, now_ns)
        except ProtocolError as error:
            return error

    def _observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        assert step == self.fsm.reference_step(self.before, event, now_ns)
        assert step == self.fsm.step(self.before, event, now_ns)
        self.before = step.record
        self.steps.append(step)
        for watch in self.watch:
            watch(node, event, step)

    def _observe_twin(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        self.twin_steps.append(step)

    def _perform(self, effects: list[Any], twins: list[Any]) -> None:
        assert effects == twins
        for effect in effects:
            if isinstance(effect, Ask) and effect.service in self.around.services:
                self.pending.append(effect)
            match effect:
                case Ask(request=said) | Send(message=said) | Tell(event=said):
                    self.heard = [*self.heard[1 - KEPT :], said]

    def _apply(self, name: str, request: Request) -> tuple[Answer, ...]:
        self.stores[name], answers = self.around.services[name].apply(self.stores[name], request, self.now + STORE_NS)
        return answers


def _refusal(run: Callable[[], object]) -> ProtocolError | None:
    try:
        run()
    except ProtocolError as error:
        return error
    return None


def _unshifted(step: Step[Any], shift_ns: int) -> tuple[Any, ...]:
    """The effects, deadlines by the unshifted clock."""
    return tuple(
        SetTimer(effect.timer, effect.deadline_ns - shift_ns, effect.key) if isinstance(effect, SetTimer) else effect
        for effect in step.effects
    )
