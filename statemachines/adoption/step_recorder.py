"""Step recorder: which rows ran within a trigger, which callbacks, and where a crash cuts them.

While it is installed the classes of transitions report to it: a row is taken when its conditions have held, whatever
becomes of it, so rows of triggers within callbacks are seen too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from transitions import Machine, Transition
from transitions.core import Condition
from transitions.extensions.asyncio import AsyncCondition, AsyncMachine, AsyncTransition
from transitions.extensions.nesting import HierarchicalMachine

from statemachines.adoption.live_machine import AdoptedSubject, callback_name, find_transition, state_of


class TakenRow(msgspec.Struct):
    """A row that ran: its number (-1: of no declared row), its trigger, and the state before and after it (after it "":
    it ended before its state was set)."""

    row: int
    trigger: str
    machine: int
    model: int
    source: str
    dest: str
    transition: Any = None
    is_over: bool = False
    """Its state has been set, or it sets none."""


class CrashPoint(BaseException):
    """The process ends here: no `except Exception` catches it, and nothing of the step is saved."""


class CallbackFailure(Exception):
    """A callback that is made to fail."""


class StepRecorder:
    """What happens in one step.

    `crash_at`: the process ends after so many callbacks (None: never); `fail_at`: the callback after so many raises.
    """

    def __init__(self) -> None:
        self.subject: AdoptedSubject | None = None
        self.numbers: tuple[int, ...] = ()
        """Place of a Transition -> number of its row."""
        self.rows: list[TakenRow] = []
        self.order: list[TakenRow] = []
        """The same rows, in the order in which their states were set."""
        self.callbacks: list[str] = []
        self.crash_at: int | None = None
        self.fail_at: int | None = None
        self.crashed = ""
        """The callback before which the process ended, whatever caught the `CrashPoint`."""
        self.failed = ""
        """The callback that was made to fail."""
        self.around: Callable[[str], None] | None = None
        """Called after every callback with its name, by who looks for the one that changed something."""

    def begin(self, subject: AdoptedSubject, crash_at: int | None = None, fail_at: int | None = None) -> None:
        """A step of `subject` begins."""
        self.subject = subject
        self.rows, self.order, self.callbacks = [], [], []
        self.crash_at, self.fail_at = crash_at, fail_at
        self.crashed = self.failed = ""

    def end(self) -> None:
        """Nothing more is recorded; rows that were taken and whose state was never set stay where they were."""
        for row in self.rows:
            if not row.is_over:
                row.dest = ""
                self.order.append(row)
            if self.subject is not None:  # within a nested scope a machine shows the transitions of that scope alone
                place = find_transition(self.subject, row.transition)
                row.row = self.numbers[place] if place >= 0 else -1
        self.subject = None

    def take_row(self, transition: Any, event_data: Any) -> None:
        """The conditions of a row have held."""
        subject = self.subject
        if subject is None:
            return
        machine, model = event_data.machine, event_data.model
        places = [place for place, one in enumerate(subject.models) if one is model]
        if not places:
            return
        owner = next((place for place, one in enumerate(subject.machines) if one is machine), 0)
        state = state_of(machine, model)
        row = TakenRow(-1, str(event_data.event.name), owner, places[0], state, state, transition)
        self.rows.append(row)
        if not transition.dest:
            row.is_over = True
            self.order.append(row)

    def set_state(self, machine: Any, models: list[Any]) -> None:
        """A machine has set the state of models: that is what the latest row of theirs was about."""
        subject = self.subject
        if subject is None:
            return
        for row in reversed(self.rows):
            if row.is_over or subject.machines[row.machine] is not machine:
                continue
            if any(subject.models[row.model] is one for one in models):
                row.is_over = True
                row.dest = state_of(machine, subject.models[row.model])
                own = (row.machine, row.model)
                before = [one.dest for one in self.order if (one.machine, one.model) == own and one.dest]
                row.source = before[-1] if before else row.source
                self.order.append(row)
                return

    def begin_callback(self, name: str) -> None:
        """A callback is about to run; raises `CrashPoint` where the process ends before it."""
        if self.subject is None:
            return
        self.callbacks.append(name)
        if self.crash_at is not None and len(self.callbacks) > self.crash_at:
            self.crashed = self.crashed or name
            raise CrashPoint(name)
        if self.fail_at is not None and len(self.callbacks) == self.fail_at + 1:
            self.failed = name
            raise CallbackFailure(f"{name} fails")

    def end_callback(self, name: str) -> None:
        """A callback has run."""
        if self.subject is not None and self.around is not None:
            self.around(name)

    @contextmanager
    def install(self) -> Iterator[None]:
        """The classes of transitions report here meanwhile."""
        patches = [
            (Transition, "_eval_conditions", self._wrap_conditions(Transition)),
            (AsyncTransition, "_eval_conditions", self._wrap_async_conditions()),
            (Machine, "set_state", self._wrap_set_state(Machine)),
            (HierarchicalMachine, "set_state", self._wrap_set_state(HierarchicalMachine)),
            (Machine, "callback", self._wrap_callback()),
            (AsyncMachine, "callback", self._wrap_async_callback()),
            (Condition, "check", self._wrap_check()),
            (AsyncCondition, "check", self._wrap_async_check()),
        ]
        originals = [(owner, name, owner.__dict__[name]) for owner, name, _ in patches]
        try:
            for owner, name, made in patches:
                setattr(owner, name, made)
            yield
        finally:
            for owner, name, original in originals:
                setattr(owner, name, original)

    def _wrap_conditions(self, owner: Any) -> Any:
        original = owner._eval_conditions

        def _eval_conditions(transition: Any, event_data: Any) -> Any:
            held = original(transition, event_data)
            if held:
                self.take_row(transition, event_data)
            return held

        return _eval_conditions

    def _wrap_async_conditions(self) -> Any:
        original = AsyncTransition._eval_conditions

        async def _eval_conditions(transition: Any, event_data: Any) -> Any:
            held = await original(transition, event_data)
            if held:
                self.take_row(transition, event_data)
            return held

        return _eval_conditions

    def _wrap_set_state(self, owner: Any) -> Any:
        original = owner.set_state

        def set_state(machine: Any, state: Any, model: Any = None) -> None:
            original(machine, state, model)
            models = machine.models if model is None else model if isinstance(model, list) else [model]
            self.set_state(machine, models)

        return set_state

    def _wrap_callback(self) -> Any:
        original = Machine.callback

        def callback(machine: Any, func: Any, event_data: Any) -> None:
            name = callback_name(func)
            self.begin_callback(name)
            original(machine, func, event_data)
            self.end_callback(name)

        return callback

    def _wrap_async_callback(self) -> Any:
        original: Any = AsyncMachine.callback

        async def callback(machine: Any, func: Any, event_data: Any) -> None:
            name = callback_name(func)
            self.begin_callback(name)
            await original(machine, func, event_data)
            self.end_callback(name)

        return callback

    def _wrap_check(self) -> Any:
        original = Condition.check

        def check(condition: Any, event_data: Any) -> Any:
            held = original(condition, event_data)
            self.end_callback(f"condition {callback_name(condition.func)}")
            return held

        return check

    def _wrap_async_check(self) -> Any:
        original: Any = AsyncCondition.check

        async def check(condition: Any, event_data: Any) -> Any:
            held = await original(condition, event_data)
            self.end_callback(f"condition {callback_name(condition.func)}")
            return held

        return check
