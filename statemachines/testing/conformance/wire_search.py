"""WireSearch: the states that an instance may be in, and the ways from them to its next message.

Inputs that were sent may have been handled or not, timers may have fired, stores may have answered, the application may
have called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from statemachines.testing.conformance.conformance_run import Inconclusive
from statemachines.testing.conformance.relation import Binding, Output, match_answer
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.wire_role import WireRole
from statemachines.testing.conformance.wire_state import CarriedState, CarriedSteps, SentInput, combine

STATES_MAX: Final = 5_000
"""More states than this are not searched for one message: the run is inconclusive."""

REPEAT_NS: Final = 50_000_000
"""A message that may be repeated at one input is repeated within so long."""


class WireSearch:
    """`states`: those that the last message of the instance `name` allows; `sent`: what was sent to it since."""

    def __init__(self, role: ConformanceRole, wire: WireRole, name: str, tolerance_ns: int) -> None:
        self.role = role
        self.wire = wire
        self.name = name
        self.steps = CarriedSteps(role.fsm, role.relation, tolerance_ns, wire.reply)
        self.sent: list[SentInput] = []
        self.states: list[CarriedState] = []
        self.is_followed = False
        """Another instance of the node has begun after it, or nobody has asked for one."""
        self._bindings: dict[tuple[int, str], Binding | str] = {}

    # -- searching ----------------------------------------------------------------------------------------------

    def search(self, came: Output, until_ns: int, before_ns: int) -> Iterator[CarriedState]:
        """The states after this message, without what lies behind them in time."""
        self._bindings.clear()
        for state in self.reach(came, until_ns):
            if not state.stopped and self.is_overdue(state, before_ns):
                continue
            after = self.match(state, came, until_ns)
            if isinstance(after, CarriedState):
                yield after

    def match(self, state: CarriedState, came: Output, now_ns: int) -> CarriedState | str:
        """The state after the message; else what is wrong with it."""
        relation = self.role.relation
        if state.pending:
            place = next((n for n, one in enumerate(state.pending) if one.channel == came.channel), None)
            if place is None:
                return f"expected {state.pending[0]}, came {came}"
            binding = self._bind(state, state.pending[place], came)
            if isinstance(binding, str):
                return binding
            rest = state.pending[:place] + state.pending[place + 1 :]
            return replace(state, pending=rest, binding=binding, last=came, last_ns=now_ns)
        repeated = {one.kind for one in relation.repeated}
        if state.last == came and came.name in repeated and now_ns - state.last_ns <= REPEAT_NS:
            return state
        if state.stopped and came.name in self.wire.after_end:
            return state
        return f"not expected: {came}"

    def _bind(self, state: CarriedState, expected: Output, came: Output) -> Binding | str:
        """The binding after the message, the same object for the same binding before; else what is wrong."""
        key = (id(state.binding), str(expected))
        if key not in self._bindings:
            self._bindings[key] = match_answer(self.role.relation, (expected,), (came,), state.binding)
        return self._bindings[key]

    def is_overdue(self, state: CarriedState, before_ns: int) -> bool:
        """Whether something that happens in this state had to happen before this moment."""
        return self.steps.is_overdue(state, self.sent, before_ns, self.is_followed)

    def reach(self, came: Output | None, until_ns: int) -> Iterator[CarriedState]:
        """Every state that can be reached without a message, and those that have just sent one."""
        known = {self.steps.key(state): state for state in self.states}
        queue = deque(known)
        while queue:
            state = known[queue.popleft()]
            yield state
            if state.pending or state.stopped:
                continue
            for after in self._next(state, came, until_ns):
                key = self.steps.key(after)
                if key in known:
                    other, after = known[key], combine(known[key], after)
                    if after.armed == other.armed:
                        continue
                elif len(known) == STATES_MAX:
                    rule = "give --faults less, or --tolerance less"
                    raise Inconclusive(f"more than {STATES_MAX:,} states of {self.name} are possible; {rule}")
                known[key] = after
                queue.append(key)

    def _next(self, state: CarriedState, came: Output | None, until_ns: int) -> Iterator[CarriedState]:
        """The states after one step.  Calls come first: of equal states the one whose timers began earliest is kept."""
        found: list[CarriedState | None] = []
        owed_ns = state.now_ns if came is None else until_ns  # an assumed call excuses no silence
        calls = [self.steps.call(state, event, until_ns, owed_ns) for event in self.wire.unseen(state.record, came)]
        found += [one for one in calls if one is not None and not (came is None and one.pending)]
        found += [
            self.steps.fire(state, slot, until_ns)
            for slot, window in sorted(state.armed.items(), key=str)
            if window.due_ns <= until_ns
        ]
        if state.inputs < len(self.sent):
            found.append(self.steps.take_input(state, self.sent[state.inputs], until_ns))
        return (one for one in found if one is not None)

    def merge(self, states: Iterable[CarriedState]) -> list[CarriedState]:
        """The states, with those that differ in nothing but their times as one."""
        found: dict[Any, CarriedState] = {}
        for state in states:
            state = replace(state, cells=())
            key = (*self.steps.key(state), state.stopped)
            other = found.get(key)
            found[key] = state if other is None else combine(other, state)
        return list(found.values())
