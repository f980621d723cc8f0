"""Step recorder: which rows ran within a trigger, which callbacks, and where a crash cuts them.

While it is installed the classes of transitions report to it: a row is taken when its conditions have held, whatever
becomes of it, so rows of triggers within callbacks are seen too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from inspect import iscoroutinefunction
from typing import Any

import msgspec
from transitions import Machine, Transition
from transitions.core import Condition
from transitions.extensions.asyncio import AsyncCondition, AsyncMachine, AsyncTransition
from transitions.extensions.nesting import HierarchicalMachine

from statemachines.adoption.live_machine import AdoptedSubject, callback_name, find_transition, state_of
from statemachines.adoption.virtual_time import replace_attributes


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

    def install(self) -> AbstractContextManager[None]:
        """The classes of transitions report here meanwhile."""
        reports = (
            ((Transition, AsyncTransition), "_eval_conditions", _ignore, self._end_conditions),
            ((Machine, HierarchicalMachine), "set_state", _ignore, self._end_state),
            ((Machine, AsyncMachine), "callback", self._begin_function, self._end_function),
            ((Condition, AsyncCondition), "check", _ignore, self._end_check),
        )
        return replace_attributes(
            (owner, name, _wrap(vars(owner)[name], before, after))
            for owners, name, before, after in reports
            for owner in owners
        )

    def _end_conditions(self, held: Any, transition: Any, event_data: Any) -> None:
        if held:
            self.take_row(transition, event_data)

    def _end_state(self, done: Any, machine: Any, state: Any, model: Any = None) -> None:
        self.set_state(machine, machine.models if model is None else model if isinstance(model, list) else [model])

    def _begin_function(self, machine: Any, func: Any, event_data: Any) -> None:
        self.begin_callback(callback_name(func))

    def _end_function(self, done: Any, machine: Any, func: Any, event_data: Any) -> None:
        self.end_callback(callback_name(func))

    def _end_check(self, held: Any, condition: Any, event_data: Any) -> None:
        self.end_callback(f"condition {callback_name(condition.func)}")


def _ignore(*given: Any, **named: Any) -> None:
    """Report nothing."""


def _wrap(original: Any, before: Callable[..., None], after: Callable[..., None]) -> Any:
    """The same function, which reports its arguments before it runs, and after it what it has returned, and those."""

    def call(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        result = original(*args, **kwargs)
        after(result, *args, **kwargs)
        return result

    async def call_later(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        result = await original(*args, **kwargs)
        after(result, *args, **kwargs)
        return result

    return call_later if iscoroutinefunction(original) else call
