"""CarriedState: a state that an implementation may be in, as far as its messages show it.

The kit cannot see when an input is handled or a timer is set: each is known by the earliest and the latest moment.
The earliest moments are certain, since an input is not handled before it is sent.  The latest ones count in the
tolerance of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Ask, CancelTimer, Fsm, ProtocolError, Request, SetTimer
from statemachines.kernel.pmap import enc_hook
from statemachines.testing.conformance.conformance_run import Cell
from statemachines.testing.conformance.relation import Binding, Output, OutputsOf, Relation, table_values
from statemachines.testing.conformance.wire_role import BegunRecord, no_answer

Slot = tuple[str, Any]
"""Name and key of a timer of the table; or `ANSWER` and what a store will answer."""

ANSWER: Final = "answer"


Reply = Callable[[Any, Request], Answer | None]
"""(record, request) -> the answer of a store."""


class SentInput(NamedTuple):
    """A message that was sent to the implementation, and when (ns)."""

    message: Any
    at_ns: int


class TimerWindow(NamedTuple):
    """When a timer of the implementation may fire: not before `due_ns`, and not after `by_ns`."""

    due_ns: int
    set_by_ns: int
    set_ns: int

    @property
    def by_ns(self) -> int:
        """Its deadline, had it been set at the latest moment."""
        return self.due_ns + self.set_by_ns - self.set_ns

    def extend(self, by_ns: int) -> TimerWindow:
        """The window with this end."""
        return self._replace(set_by_ns=self.set_ns + by_ns - self.due_ns)


class CarriedState(msgspec.Struct, frozen=True):
    """One possible state of an instance."""

    record: Any
    armed: dict[Slot, TimerWindow]
    binding: Binding
    inputs: int
    """How many of the sent inputs are handled."""
    now_ns: int
    """No later step is earlier."""
    pending: tuple[Output, ...] = ()
    """Messages that it has sent and that have not come yet."""
    pending_ns: int = 0
    """When they were sent at the latest."""
    pending_cells: tuple[Cell, ...] = ()
    last: Output | None = None
    """The message that came last."""
    last_ns: int = 0
    """When it came."""
    stopped: bool = False
    ended_ns: int = 0
    """When it ended at the latest."""
    farewell: tuple[Output, ...] = ()
    """What it told its application when it ended."""
    assumed: int = 0
    """How many calls of the application were assumed that nothing has shown."""
    cells: tuple[Cell, ...] = ()
    """The rows taken since the last message."""
    goes_on: bool = False
    """It is possible only if the instance before it has not ended."""


class CarriedSteps:
    """Takes steps of the table from carried states.

    Args:
        tolerance_ns: how long after its moment a step may come.
        reply: what a store answers to a request, unseen.
    """

    def __init__(self, fsm: Fsm[Any], relation: Relation, tolerance_ns: int, reply: Reply = no_answer) -> None:
        self.fsm = fsm
        self.relation = relation
        self.tolerance_ns = tolerance_ns
        self._reply = reply
        self._outputs = OutputsOf(relation)
        self._events = fsm.timer_registry()
        self._encode = msgspec.msgpack.Encoder(enc_hook=enc_hook).encode

    def begin(self, begun: BegunRecord, at_ns: int, by_ns: int) -> CarriedState:
        """The state of an instance that begins with this record between two moments."""
        record = begun.record
        state = CarriedState(record, {}, {}, 0, at_ns, assumed=int(begun.goes_on), goes_on=begun.goes_on)
        return replace(state, armed=self._armed(state, record, self.fsm.start(record, at_ns), (at_ns, by_ns), None))

    def take_input(self, state: CarriedState, sent: SentInput, until_ns: int) -> CarriedState | None:
        """The next input is handled."""
        event = table_values(self.relation, sent.message, state.binding)
        by_ns = min(sent.at_ns + self.tolerance_ns, until_ns)
        after = self.step(state, event, max(state.now_ns, sent.at_ns), by_ns, sent.at_ns)
        return None if after is None else replace(after, inputs=state.inputs + 1)

    def fire(self, state: CarriedState, slot: Slot, until_ns: int) -> CarriedState | None:
        """A timer fires."""
        window = state.armed[slot]
        by_ns = window.by_ns + self.relation.late_ns(slot[0])
        event = slot[1] if slot[0] == ANSWER else self._events[slot[0]](slot[1])
        at_ns = max(state.now_ns, window.due_ns)
        return self.step(state, event, at_ns, min(by_ns + self.tolerance_ns, until_ns), by_ns, slot)

    def call(self, state: CarriedState, event: Any, until_ns: int, owed_ns: int) -> CarriedState | None:
        """The application calls, unseen."""
        after = self.step(state, event, state.now_ns, until_ns, owed_ns)
        if after is None or (after.record is state.record and not after.pending):
            return None
        return after if after.pending else replace(after, assumed=state.assumed + 1)

    def step(
        self, state: CarriedState, event: Any, at_ns: int, by_ns: int, owed_ns: int, fired: Slot | None = None
    ) -> CarriedState | None:
        """After an event that is handled between two moments; None: the table refuses it there.

        Args:
            owed_ns: the moment from which on its messages are owed.
            fired: the timer or answer that the event is.
        """
        fsm, before = self.fsm, state.record
        try:
            step = fsm.step(before, event, at_ns)
        except ProtocolError:
            return None
        cells = [(fsm.full_name, step.row, str(before.status.value))] if step.row >= 0 else []
        cells += [(one.full_machine, one.row, str(one.source.value)) for one in step.children if one.row >= 0]
        stops = step.record.status in fsm.final
        outputs = self._outputs.of(step.effects)
        pending = tuple(one for one in outputs if one.channel[0] == "send")
        return CarriedState(
            step.record,
            {} if stops else self._armed(state, step.record, step.effects, (at_ns, max(at_ns, by_ns)), fired),
            state.binding,
            state.inputs,
            at_ns,
            pending,
            max(owed_ns, at_ns) if pending else 0,
            tuple(cells) if pending else (),
            state.last,
            state.last_ns,
            stops,
            max(owed_ns, at_ns),
            tuple(one for one in outputs if one.channel[0] != "send") if stops else (),
            state.assumed,
            (*state.cells, *cells),
            state.goes_on,
        )

    def _armed(
        self, state: CarriedState, record: Any, effects: tuple[Any, ...], window_ns: tuple[int, int], fired: Slot | None
    ) -> dict[Slot, TimerWindow]:
        """The timers, and the answers under way, after a step between two moments."""
        at_ns, by_ns = window_ns
        armed = {slot: window for slot, window in state.armed.items() if slot != fired}
        for effect in effects:
            if type(effect) is SetTimer:
                armed[effect.timer, effect.key] = TimerWindow(effect.deadline_ns, by_ns, at_ns)
            elif type(effect) is CancelTimer:
                armed.pop((effect.timer, effect.key), None)
            elif type(effect) is Ask and (answer := self._reply(record, effect.request)) is not None:
                armed[ANSWER, answer] = TimerWindow(at_ns, by_ns, at_ns)
        return armed

    def is_overdue(self, state: CarriedState, sent: list[SentInput], before_ns: int, is_followed: bool) -> bool:
        """Whether something that happens in this state had to happen before this moment.

        Args:
            is_followed: another instance has begun, as it must when this one has ended.
        """
        if state.pending and state.pending_ns < before_ns:
            return True
        if state.stopped:
            return state.ended_ns < before_ns and not is_followed
        if state.inputs < len(sent) and sent[state.inputs].at_ns < before_ns:
            return True
        late_ns = self.relation.late_ns
        return any(window.by_ns + late_ns(slot[0]) < before_ns for slot, window in state.armed.items())

    def key(self, state: CarriedState) -> tuple[Any, ...]:
        """All of a state but its times and its past."""
        pending = tuple(map(str, state.pending))
        slots = tuple(sorted(state.armed, key=str))
        return (
            self._encode(state.record),
            state.inputs,
            pending,
            slots,
            id(state.binding),
            str(state.last),
            state.goes_on,
        )


def combine(one: CarriedState, two: CarriedState) -> CarriedState:
    """The state that two are which differ in nothing but their times and their past: with the times of both."""
    armed = {}
    for slot, window in one.armed.items():
        first = min(window, two.armed[slot])
        by_ns = max(window.by_ns, two.armed[slot].by_ns)
        armed[slot] = window if window.by_ns == by_ns and window is first else first.extend(by_ns)
    return replace(
        one,
        armed=armed,
        now_ns=min(one.now_ns, two.now_ns),
        pending_ns=max(one.pending_ns, two.pending_ns),
        assumed=min(one.assumed, two.assumed),
        cells=tuple(cell for cell in one.cells if cell in two.cells),
    )


def tighten(state: CarriedState, by_ns: int) -> CarriedState:
    """The state, since all its steps were before this moment."""
    armed = {
        slot: window if window.set_by_ns <= by_ns else window._replace(set_by_ns=max(by_ns, window.set_ns))
        for slot, window in state.armed.items()
    }
    return replace(state, armed=armed)
