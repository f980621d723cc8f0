"""Model step: a step of somebody's machine, as a function of a value and an action.

One step is a fresh call of the factory, its value set, one `model.trigger(name, *args)`; then the state and all
attributes are read back.  The destination that a row names is never believed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from operator import is_
from types import FunctionType
from typing import Any, Final

import msgspec
from transitions import MachineError
from transitions.extensions.asyncio import AsyncMachine
from transitions.extensions.nesting import resolve_order

from statemachines.adoption.canonical_value import Encoder, NoEncoding, closure_of, hide_addresses, own_attributes
from statemachines.adoption.live_machine import (
    AdoptedSubject,
    TransitionRow,
    Trigger,
    check_bound,
    is_bound_by_machine,
    name_state,
    read_rows,
    read_triggers,
    walk_states,
)
from statemachines.adoption.model_value import (
    Factory,
    Key,
    ModelFactory,
    ModelValue,
    NotRepeatable,
    ValueReader,
    has_state_data,
    runner_of,
)
from statemachines.adoption.port_recorder import PortCall
from statemachines.adoption.sandbox import BlockedCall, Sandbox
from statemachines.adoption.step_recorder import CrashPoint, StepRecorder
from statemachines.adoption.virtual_time import NeverEnds, VirtualLoop, install_timers
from statemachines.adoption.watched_objects import (
    check_callbacks,
    count_structure,
    find_functions,
    find_handles,
    watch_callbacks,
    watch_everywhere,
)
from statemachines.kernel import ConfigurationError

Parts = tuple[tuple[str, bytes], ...]
"""(label, bytes) of everything in a value."""


class ModelAction(msgspec.Struct, frozen=True):
    """What may happen to a subject: a trigger or a method of the model with its arguments, or (`timeout`) the timer of
    that state fires."""

    machine: int
    model: int
    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    timeout: str = ""

    @property
    def call(self) -> str:
        """As it would be written, without the model."""
        if self.timeout:
            return f"timeout of {self.timeout}"
        said = [repr(one) for one in self.args] + [f"{name}={value!r}" for name, value in self.kwargs.items()]
        return f"{self.name}({', '.join(said)})"


class StepOutcome(msgspec.Struct, frozen=True):
    """What came of a step.  `kind`: taken, nothing (no row ran), refused (MachineError) or raised; `error` in words;
    `rows` in the order of their states; `effects`: what was called on ports."""

    kind: str
    error: str
    error_type: str
    rows: tuple[tuple[int, str, int, str, str], ...]
    effects: tuple[PortCall, ...]
    value: ModelValue

    @property
    def code(self) -> bytes:
        """What must be the same whenever the step is taken."""
        said = repr((self.kind, self.error, self.rows, [str(one) for one in self.effects]))
        return said.encode("utf-8", "surrogatepass") + self.value.code


class ModelStepper:
    """Makes subjects of a factory, and takes steps.  `place`: how the factory is named in messages."""

    def __init__(
        self,
        factory: Factory,
        place: str,
        *,
        allow: tuple[str, ...] = (),
        ports: Mapping[str, Mapping[str, Any] | None] | None = None,
        key: Key | None = None,
        automatic: bool = False,
    ) -> None:
        self.place = place
        self.ports = dict(ports or {})
        self.sandbox = Sandbox(allow)
        self.recorder = StepRecorder()
        self._automatic = automatic
        self._calls: list[PortCall] = []
        self.maker = ModelFactory(factory, place, self.sandbox, self.ports, self._calls)
        self._loop: VirtualLoop | None = None
        self._key = key
        self._depth = 0
        with self.install():
            self._inspect()

    def _inspect(self) -> None:
        """Read what does not change from one subject to the next."""
        first, second = self.maker.begin()
        self.functions = find_functions(first)
        for name in self.ports:
            if not any(name in dict(own_attributes(owner)) for owner in first.owners):
                there = ", ".join(self._attribute_names(first)) or "none"
                raise ConfigurationError("--port", name, f"no model has this attribute; there are: {there}")
        for subject in (first, second):
            self.maker.plug_ports(subject)
        self.shared = _find_shared(first, second, frozenset(self.ports))
        bound = (name for owner in first.owners for name, value in own_attributes(owner) if is_bound_by_machine(value))
        self.reader = ValueReader(
            self.shared, frozenset(self.ports), self._key, frozenset(bound), has_state_data(first)
        )
        self.rows: tuple[TransitionRow, ...]
        self.rows, self.recorder.numbers = read_rows(first)
        self.triggers: tuple[Trigger, ...] = read_triggers(first, self._automatic)
        check_bound(first, self.triggers)
        self._structure = count_structure(first)
        self.first = first
        self.initial = self.reader.read(first)
        if self.initial.code != self.reader.read(second).code:
            raise self._not_alike(self.initial, self.reader.read(second))
        self.canary = second
        self.reader.made_names = tuple(frozenset(some) for some in self.initial.attributes)
        self._canary_code = self.initial.code
        self._canary_attributes = [(owner, dict(owner.__dict__)) for owner in second.models]
        try:
            check_callbacks(first)
        except NoEncoding as error:
            rule = f"is called on {error.kind}, which cannot be read: let a method of the model call it, by a port"
            raise ConfigurationError("callback", error.path, rule) from error
        for function, name, kind in find_handles(self.functions):
            if kind in self.sandbox.blocked_kinds:
                mend = f"make it a port of the model, or allow it (--allow {kind})"
                raise NotRepeatable("machine", self.place, f"{function} reaches {name}, which is open; {mend}")
        common = {id(one) for one in find_functions(second)}
        self._everywhere = watch_everywhere(first, [one for one in self.functions if id(one) in common], self.shared)
        self._common = frozenset(common & {id(one) for one in self.functions})
        self._has_own = bool(watch_callbacks(first, self._own_functions(first)))
        self._check_aliases(first)

    # -- what surrounds a step ----------------------------------------------------------------------------------

    @contextmanager
    def install(self) -> Iterator[None]:
        """Steps are taken in here: classes of transitions report, timers are virtual, clocks can be blocked."""
        if self._depth:
            yield
            return
        with ExitStack() as stack:
            self._depth += 1
            stack.callback(self._leave)
            stack.enter_context(self.recorder.install())
            stack.enter_context(install_timers())
            stack.enter_context(self.sandbox.install(lambda: getattr(self, "functions", [])))
            stack.enter_context(_quiet_logging())
            yield

    def _leave(self) -> None:
        self._depth -= 1
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    def _attribute_names(self, subject: AdoptedSubject) -> list[str]:
        return sorted(
            {
                name
                for owner in subject.owners
                for name, value in own_attributes(owner)
                if subject.is_own(owner, name, value)
            }
        )

    # -- a step -------------------------------------------------------------------------------------------------

    def restore(self, value: ModelValue) -> AdoptedSubject:
        """A fresh subject that has this value; raises `NotRepeatable` where the value does not survive it."""
        subject = self.maker.make()
        with self.maker.enclose():
            self.reader.set(subject, value)
            if value.is_atomic:  # there is nothing in it that could have been copied wrongly
                return subject
            found = self.reader.read(subject)
        if found.code != value.code:
            name = find_differing(found.parts, value.parts)
            rule = (
                f"attribute {name} is another one after it was set on a fresh model: it is copied in a way of its own; "
                f"give key=, or replace it by a recorder (--port {name})"
            )
            raise NotRepeatable("machine", self.place, rule)
        return subject

    def step(
        self, value: ModelValue, action: ModelAction, crash_at: int | None = None, fail_at: int | None = None
    ) -> StepOutcome:
        """Take one step on a fresh subject; raises `NotRepeatable` or `ConfigurationError` where it is none."""
        with self.maker.enclose():
            return self._step(value, action, crash_at, fail_at)

    def _step(self, value: ModelValue, action: ModelAction, crash_at: int | None, fail_at: int | None) -> StepOutcome:
        subject = self.restore(value)
        own = watch_callbacks(subject, self._own_functions(subject)) if self._has_own else None
        outcome = self.act(subject, action, crash_at, fail_at)
        changed = self._everywhere.find_changed() or (own.find_changed() if own else None)
        if changed is not None:
            raise self._changes(value, action, changed)
        if not self._is_canary_untouched():
            name = find_differing(self.reader.read(self.canary).parts, self.initial.parts)
            raise self._changes(value, action, f"attribute {name} of another model")
        return outcome

    def _is_canary_untouched(self) -> bool:
        """Whether another model is as it was; one whose attributes cannot be changed in place is soon compared."""
        if self.initial.is_atomic:
            for owner, kept in self._canary_attributes:
                now = owner.__dict__
                if len(now) != len(kept) or not all(map(is_, now.values(), kept.values())):
                    return False
            return True
        return self.reader.read(self.canary).code == self._canary_code

    def act(
        self, subject: AdoptedSubject, action: ModelAction, crash_at: int | None = None, fail_at: int | None = None
    ) -> StepOutcome:
        """Let `action` happen to a subject, and read it back."""
        recorder = self.recorder
        self._calls.clear()
        recorder.begin(subject, crash_at, fail_at)
        kind, error, error_type = "taken", "", ""
        try:
            with self.maker.enclose():
                self._perform(subject, action)
        except MachineError as refusal:
            kind, error, error_type = "refused", hide_addresses(str(refusal.value)), "MachineError"
        except (BlockedCall, CrashPoint):
            pass
        except (NotRepeatable, KeyboardInterrupt):
            raise
        except BaseException as raised:  # a callback may raise what it likes
            error_type = type(raised).__name__
            kind, error = "raised", hide_addresses(f"{error_type}: {raised}")
        finally:
            recorder.end()
        if self.sandbox.reached:
            raise self.maker.describe_blocked(self.sandbox.reached[0], action.call)
        if recorder.crashed:
            kind, error, error_type = "crashed", recorder.crashed, "CrashPoint"
        self._check_structure(subject, action)
        rows = tuple((row.row, row.trigger, row.model, row.source, row.dest) for row in recorder.order)
        if kind == "taken" and not rows:
            kind = "nothing"
        with self.maker.enclose():
            value = self.reader.read(subject)
        return StepOutcome(kind, error, error_type, rows, tuple(self._calls), value)

    def _perform(self, subject: AdoptedSubject, action: ModelAction) -> None:
        model = subject.models[action.model]
        machine = subject.machines[action.machine]
        if action.timeout:
            state = dict(walk_states(machine))[action.timeout]
            timer = runner_of(state)[id(model)]
            timer.cancel()
            result = state._process_timeout(timer.event_data)  # type: ignore[attr-defined]
        else:
            bound: Any = getattr(model, "trigger", None)
            method = getattr(model, action.name, None)
            if method is not None and not is_bound_by_machine(method):
                result = method(*action.args, **action.kwargs)
            elif is_bound_by_machine(bound) and bound.func.__self__ is machine:
                result = bound(action.name, *action.args, **action.kwargs)
            else:
                result = machine._get_trigger(model, action.name, *action.args, **action.kwargs)
        if inspect.isawaitable(result):
            self._await(result, action)

    def _await(self, result: Any, action: ModelAction) -> None:
        if self._loop is None:
            with _opened(self.sandbox):
                self._loop = VirtualLoop()
        loop = self._loop

        async def run() -> None:
            await result

        token = AsyncMachine.current_context.set(None)
        task = loop.create_task(run())
        try:
            loop.run_until_complete(task)
        except NeverEnds:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            raise
        finally:
            AsyncMachine.current_context.reset(token)
        left = _tasks_of(loop)
        for task in left:
            task.cancel()
        if left:
            with contextlib.suppress(Exception):
                loop.run_until_complete(_gather(left))
            names = ", ".join(sorted(task.get_coro().__qualname__ for task in left))
            rule = f"{action.call} leaves a task running ({names}): await it, or replace what begins it by a port"
            raise NotRepeatable("machine", self.place, rule)

    def actions_in(self, value: ModelValue, calls: tuple[ModelAction, ...]) -> Iterator[ModelAction]:
        """What may happen in a value: the calls, and timers that are set."""
        yield from calls
        for machine, state, model in sorted(value.timers):
            yield ModelAction(machine, model, "", timeout=state)

    def has_row(self, value: ModelValue, action: ModelAction) -> bool:
        """Whether a row of the trigger leaves the state that its model is in, or a state around it."""
        machine = self.first.machines[action.machine]
        state = value.states.get((action.machine, action.model))
        if state is None:
            return False
        separator = getattr(machine.state_cls, "separator", None)
        if separator is None:
            names = {name_state(machine, state)}
        else:
            tree = machine.build_state_tree(state, separator)
            names = {separator.join(path) for path in resolve_order(tree)}
        return any(row.trigger == action.name and row.source in names for row in self.rows)

    def state_texts(self, value: ModelValue) -> tuple[str, ...]:
        """The states of all models, as they are shown."""
        return tuple(
            "+".join(
                name_state(self.first.machines[machine], state)
                for (machine, model), state in value.states.items()
                if model == place
            )
            for place in range(len(self.first.models))
        )

    def detach(self, value: ModelValue) -> ModelValue:
        """The value to be kept for long: it does not keep a machine alive for each state."""
        with self.maker.enclose():
            return self.reader.detach(value, self.first)

    def _own_functions(self, subject: AdoptedSubject) -> list[FunctionType]:
        """The functions that were made with this subject, and not before."""
        return [one for one in find_functions(subject) if id(one) not in self._common]

    # -- what is not sound --------------------------------------------------------------------------------------

    def compare(self, value: ModelValue, action: ModelAction, first: StepOutcome, second: StepOutcome) -> None:
        """Raises `NotRepeatable` where a step came out differently; names attribute and callback."""
        if first.code == second.code:
            return
        said = f"gives {_summary(first)} once and {_summary(second)} another time"
        raise self.make_unlike_error(value, action, (first.value.parts, second.value.parts), said)

    def make_unlike_error(
        self, value: ModelValue, action: ModelAction, parts: tuple[Parts, Parts], said: str, where: str = ""
    ) -> NotRepeatable:
        """The error for a step that came out differently: its value had these parts, or else what is `said`."""
        name = find_differing(*parts)
        if name is not None:
            callback = self.find_callback(value, action, name)
            said = f"sets attribute {name}{f' in {callback}' if callback else ''} to different values"
        return NotRepeatable("machine", self.place, f"{action.call} {said}{where}: {NOT_ALIKE}")

    def find_callback(self, value: ModelValue, action: ModelAction, name: str) -> str:
        """The callback after which an attribute had changed; "": none of them."""
        subject = self.restore(value)
        before = dict(value.parts).get(name)
        found: list[str] = []

        def look(callback: str) -> None:
            if not found and dict(self.reader.read(subject).parts).get(name) != before:
                found.append(callback)

        self.recorder.around = look
        try:
            self.act(subject, action)
        finally:
            self.recorder.around = None
        return found[0] if found else ""

    def _changes(self, value: ModelValue, action: ModelAction, what: str) -> NotRepeatable:
        callbacks = ", ".join(dict.fromkeys(self.recorder.callbacks)) or "a condition"
        rule = (
            f"{action.call} changes {what} ({callbacks} ran): that is no attribute of the model, so no step could be "
            "repeated; make it an attribute of the model"
        )
        return NotRepeatable("machine", self.place, rule)

    def _not_alike(self, one: ModelValue, other: ModelValue) -> NotRepeatable:
        name = find_differing(one.parts, other.parts)
        rule = f"the factory makes models that differ in {name}: {NOT_ALIKE}"
        return NotRepeatable("factory", self.place, rule)

    def _check_structure(self, subject: AdoptedSubject, action: ModelAction) -> None:
        if count_structure(subject) != self._structure:
            rule = f"{action.call} adds or removes states, transitions, callbacks or models; declare all in the factory"
            raise NotRepeatable("machine", self.place, rule)
        for machine in subject.machines:
            if machine._transition_queue:
                rule = f"{action.call} leaves triggers in the queue of the machine"
                raise NotRepeatable("machine", self.place, rule)

    def _check_aliases(self, subject: AdoptedSubject) -> None:
        """An object that a closure holds is no attribute as well: set on a fresh model it would be two."""
        encoder = Encoder(subject.known)
        for owner in subject.owners:
            for name, value in own_attributes(owner):
                if subject.is_own(owner, name, value) and name not in self.ports:
                    encoder.encode(value, name)
        inside = encoder.mutable_ids
        for function in self.functions:
            for name, held in closure_of(function):
                if id(held) in inside:
                    rule = (
                        f"{name} is an attribute of the model, and the closure of {function.__qualname__} holds it "
                        "too; let the callback take it from the model"
                    )
                    raise NotRepeatable("machine", self.place, rule)


def name_action(stepper: ModelStepper, action: ModelAction) -> str:
    """The call, with its model where there are several."""
    model = stepper.first.name_model(action.model)
    return f"{model}: {action.call}" if model else action.call


NOT_ALIKE: Final = (
    "a step must depend on attributes and arguments alone (not on a clock, chance, the id of an object, the order of a "
    "set, or something that counts elsewhere)"
)


@contextmanager
def _quiet_logging() -> Iterator[None]:
    """Log lines of thousands of steps tell nobody anything."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _opened(sandbox: Sandbox) -> Iterator[None]:
    """What we do ourselves inside a step."""
    owner, sandbox._owner = sandbox._owner, 0
    try:
        yield
    finally:
        sandbox._owner = owner


def _tasks_of(loop: VirtualLoop) -> list[Any]:
    return [task for task in asyncio.all_tasks(loop) if not task.done()]


async def _gather(tasks: list[Any]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def find_differing(one: Parts, other: Parts) -> str | None:
    """The label of the first part that differs; None: all are equal."""
    mine, theirs = dict(one), dict(other)
    return next((name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)), None)


def _summary(outcome: StepOutcome) -> str:
    if outcome.error:
        return outcome.error
    rows = ", ".join(f"{source} -> {dest}" for _, _, _, source, dest in outcome.rows)
    effects = ", ".join(map(str, outcome.effects))
    return "; ".join(filter(None, (rows or outcome.kind, effects)))


def _find_shared(first: AdoptedSubject, second: AdoptedSubject, ports: frozenset[str]) -> dict[str, Any]:
    """Objects that two separately made subjects both hold, by name; what has no encoding is refused later."""
    inside = []
    for subject in (first, second):
        known = subject.known | {id(one): "machine" for one in subject.machines}
        found: dict[int, tuple[str, Any]] = {}
        for owner in subject.owners:
            for name, value in own_attributes(owner):
                if name in ports or not subject.is_own(owner, name, value):
                    continue
                encoder = Encoder(known)
                with contextlib.suppress(NoEncoding):
                    encoder.encode(value, name)
                    found |= {id(one): (name, one) for one in encoder.mutable_ids.values() if id(one) not in found}
        inside.append(found)
    mine, theirs = inside
    both = [mine[key] for key in mine if key in theirs and not callable(mine[key][1])]
    named: dict[str, Any] = {}
    for name, one in both:
        number = sum(said.startswith(f"{name}, ") for said in named)
        named[f"{name}, {f'object {number + 1} in it, ' if number else ''}which all models share"] = one
    return named
