"""Model values: all that a subject knows, read from it and set on a fresh one.

A value is every attribute that transitions did not put there, of all models and of machines that have attributes of
their own; and, for each machine and model, retry counts and the timers that are set.

Model factory: calls somebody's factory within the sandbox, and says in one line what is wrong with it.
"""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from transitions import EventData, Machine
from transitions.core import Event as MachineEvent

from statemachines.adoption.canonical_value import (
    ATOMS,
    Encoder,
    NoEncoding,
    own_attributes,
    read_attributes,
    slot_names,
)
from statemachines.adoption.live_machine import MACHINE_ATTRIBUTES, AdoptedSubject, read_subject, walk_states
from statemachines.adoption.port_recorder import PortCall, PortRecorder
from statemachines.adoption.sandbox import BlockedCall, Sandbox
from statemachines.adoption.virtual_time import VirtualTimer
from statemachines.kernel import ConfigurationError

Key = Callable[[Any], Any]
"""A function of the user's: what stands for the value of a model, in place of its attributes."""


class ModelValue(msgspec.Struct, frozen=True):
    """`parts`: (label, bytes) of everything, by owner and name; `attributes`: for each owner of the subject, name ->
    object; `retries`: (machine, state, model) -> count; `timers`: the same -> (trigger, args, kwargs) of the entering.
    `states`: (machine, model) -> state.  `origin` is the subject that the objects were read from, which takes no step
    any more; of a detached value it is another one, whose models and machines stand for those of the value."""

    parts: tuple[tuple[str, bytes], ...]
    attributes: tuple[dict[str, Any], ...]
    retries: dict[tuple[int, str, int], int]
    timers: dict[tuple[int, str, int], tuple[str, tuple[Any, ...], dict[str, Any]]]
    states: dict[tuple[int, int], Any]
    origin: AdoptedSubject
    is_atomic: bool
    """No attribute can be changed in place: they need not be copied."""

    code: bytes
    """What identifies the value: two values are one if and only if their codes are equal."""


class ValueReader:
    """Reads values of one kind of subject, and sets them.

    `shared`: objects that all models of the factory share, name -> object; no part of a value, and watched.
    `ports`: names of attributes that recorders stand for; `key`: what the user says that identifies a value; `bound`:
    names of attributes that transitions binds; `has_state_data`: a state counts retries, or has a timer.
    """

    def __init__(
        self,
        shared: Mapping[str, Any],
        ports: frozenset[str] = frozenset(),
        key: Key | None = None,
        bound: frozenset[str] = frozenset(),
        has_state_data: bool = True,
    ) -> None:
        self.made_names: tuple[frozenset[str], ...] = ()
        """The attributes that a fresh subject has, by owner."""
        self._bound = bound
        self._has_state_data = has_state_data
        self._shared_names = {id(one): name for name, one in shared.items()}
        self._shared = {id(one): one for one in shared.values()}
        self.ports = ports
        self.key = key

    def read(self, subject: AdoptedSubject) -> ModelValue:
        """The value of a subject; raises `ConfigurationError` that names what has no encoding."""
        encoder = Encoder({**self._shared_names, **subject.known}, subject.name_part)
        attributes = tuple(self._attributes_of(subject, owner) for owner in subject.owners)
        parts: list[tuple[str, bytes]] = []
        for place, (owner, some) in enumerate(zip(subject.owners, attributes, strict=True)):
            prefix = "" if place == 0 and len(subject.models) == 1 else f"{subject.names[place]}."
            if self.key is not None and place < len(subject.models):
                parts.append((f"{prefix}key", _encode(encoder, self.key(owner), f"key of {subject.names[place]}")))
                continue
            parts += [(prefix + name, _encode(encoder, value, prefix + name)) for name, value in some.items()]
        retries = _counts_of(subject) if self._has_state_data else {}
        timers = _timers_of(subject) if self._has_state_data else {}
        parts += [(label, str(count).encode()) for label, count in _label(subject, "retries", retries)]
        parts += [(label, _encode(encoder, timer, label)) for label, timer in _label(subject, "timer", timers)]
        is_atomic = not timers and all(type(value) in ATOMS for some in attributes for value in some.values())
        code = b"\n".join(label.encode("utf-8", "surrogatepass") + b"=" + part for label, part in parts)
        states = _states_of(subject)
        return ModelValue(tuple(parts), attributes, retries, timers, states, subject, is_atomic, code)

    def detach(self, value: ModelValue, origin: AdoptedSubject) -> ModelValue:
        """The same value without the subject that it was read from: what is kept for long shares one origin."""
        attributes, timers = value.attributes, value.timers
        if not value.is_atomic:
            attributes, timers = deepcopy((attributes, timers), self._memo(origin, value))
        return replace(value, attributes=attributes, timers=timers, origin=origin)

    def set(self, subject: AdoptedSubject, value: ModelValue) -> None:
        """Give a fresh subject this value.  Objects are copied, and models and machines in them are the fresh ones."""
        attributes, timers = value.attributes, value.timers
        if not value.is_atomic:
            attributes, timers = deepcopy((attributes, timers), self._memo(subject, value))
        for owner, made, some in zip(subject.owners, self.made_names, attributes, strict=True):
            _set_attributes(owner, made, some)
        for place, machine in enumerate(subject.machines if self._has_state_data else ()):
            for name, state in walk_states(machine):
                for number, model in enumerate(subject.models):
                    _set_state_data(machine, state, model, (place, name, number), value.retries, timers)

    def _attributes_of(self, subject: AdoptedSubject, owner: Any) -> dict[str, Any]:
        if isinstance(owner, Machine) and owner.__dict__.keys() <= MACHINE_ATTRIBUTES:
            return {}
        found = read_attributes(owner)
        names: Iterable[str] = found
        if set(map(type, map(found.get, self._bound))) <= _BOUND_KINDS:  # as nearly always, and soon said
            names = found.keys() - self._bound
        if isinstance(owner, Machine):
            names = set(names) - MACHINE_ATTRIBUTES
        names = [
            name
            for name in names
            if name not in self.ports and (type(found[name]) in ATOMS or subject.is_own(owner, name, found[name]))
        ]
        return {name: found[name] for name in sorted(names)}

    def _memo(self, subject: AdoptedSubject, value: ModelValue) -> dict[int, Any]:
        """What `deepcopy` takes in place of a copy: fresh models and machines, and what is shared."""
        memo: dict[int, Any] = {id(old): fresh for old, fresh in zip(value.origin.owners, subject.owners, strict=True)}
        memo |= {id(old): fresh for old, fresh in zip(value.origin.machines, subject.machines, strict=True)}
        parts = zip(value.origin.walk_parts(), subject.walk_parts(), strict=True)
        memo |= {id(old): fresh for (_, old), (_, fresh) in parts}
        return {**self._shared, **memo}


_BOUND_KINDS: Final = frozenset({partial, type(None)})


def has_state_data(subject: AdoptedSubject) -> bool:
    """Whether a state of its machines counts retries, or has a timer."""
    states = [state for machine in subject.machines for _, state in walk_states(machine)]
    return any(getattr(state, "retries", 0) or getattr(state, "timeout", 0) for state in states)


def _states_of(subject: AdoptedSubject) -> dict[tuple[int, int], Any]:
    found = {}
    for place, machine in enumerate(subject.machines):
        for number, model in enumerate(subject.models):
            if any(model is one for one in machine.models):
                state = getattr(model, machine.model_attribute)
                found[place, number] = list(state) if isinstance(state, list) else state
    return found


def _encode(encoder: Encoder, value: Any, path: str) -> bytes:
    try:
        return encoder.encode(value, path)
    except NoEncoding as error:
        raise unreadable(error) from error


def unreadable(error: NoEncoding) -> ConfigurationError:
    """The error for a value that has no encoding."""
    rule = (
        f"is {error.kind}, which cannot be read and set again: no step of this machine can be repeated; "
        "replace the attribute by a recorder (--port NAME), or make it where it is used"
    )
    return ConfigurationError("attribute", error.path, rule)


def _label(subject: AdoptedSubject, what: str, found: Mapping[tuple[int, str, int], Any]) -> Iterator[tuple[str, Any]]:
    for (_, state, model), value in sorted(found.items()):
        of = subject.name_model(model)
        yield f"{what} of {state}{f' of {of}' if of else ''}", value


def _counts_of(subject: AdoptedSubject) -> dict[tuple[int, str, int], int]:
    found = {}
    for place, machine in enumerate(subject.machines):
        for name, state in walk_states(machine):
            counts = getattr(state, "retry_counts", None) if getattr(state, "retries", 0) else None  # else never read
            for number, model in enumerate(subject.models):
                if counts is not None and id(model) in counts:
                    found[place, name, number] = counts[id(model)]
    return found


def _timers_of(subject: AdoptedSubject) -> dict[tuple[int, str, int], tuple[str, tuple[Any, ...], dict[str, Any]]]:
    found = {}
    for place, machine in enumerate(subject.machines):
        for name, state in walk_states(machine):
            for number, model in enumerate(subject.models):
                timer = runner_of(state).get(id(model))
                if isinstance(timer, VirtualTimer) and timer.is_set:
                    data: Any = timer.event_data
                    trigger = getattr(getattr(data, "event", None), "name", "")
                    found[place, name, number] = (trigger, tuple(data.args), dict(data.kwargs))
    return found


def runner_of(state: Any) -> dict[int, Any]:
    """The timers of a state by id of their model; empty where it is no Timeout state."""
    found: dict[int, Any] = vars(state).get("runner") or {}
    return found


def _set_attributes(owner: Any, present: frozenset[str], wanted: Mapping[str, Any]) -> None:
    slots = slot_names(type(owner))
    for name in present - wanted.keys():
        object.__delattr__(owner, name)
    for name, value in wanted.items():
        if name in slots:
            object.__setattr__(owner, name, value)
        else:
            owner.__dict__[name] = value


def _set_state_data(
    machine: Any,
    state: Any,
    model: Any,
    place: tuple[int, str, int],
    retries: Mapping[Any, int],
    timers: Mapping[Any, Any],
) -> None:
    counts = getattr(state, "retry_counts", None)
    if counts is not None:  # a state that several machines share may have kept those of a model that is gone
        counts.pop(id(model), None)
    runner_of(state).pop(id(model), None)
    if counts is not None and place in retries:
        counts[id(model)] = retries[place]
    if place in timers:
        trigger, args, kwargs = timers[place]
        event = machine.events.get(trigger) or MachineEvent(trigger, machine)
        data = EventData(state, event, machine, model, args, kwargs)
        timer = VirtualTimer(state.timeout, args=(data,))
        timer.start()
        state.runner[id(model)] = timer


Factory = Callable[[], Any]


class NotRepeatable(ConfigurationError):
    """A step did not come out the same twice, or reached what it must not: nothing can be said of this machine."""


class ModelFactory:
    """Makes subjects.  `place`: how the factory is named in messages; `ports`: attributes that recorders stand for,
    with what their methods return; `calls`: where those write what was called."""

    def __init__(
        self,
        factory: Factory,
        place: str,
        sandbox: Sandbox,
        ports: Mapping[str, Mapping[str, Any] | None],
        calls: list[PortCall],
    ) -> None:
        self.factory = factory
        self.place = place
        self.ports = ports
        self.made_model = False
        """The factory returns one model, and neither a machine nor several."""
        self._sandbox = sandbox
        self._calls = calls
        self._first: AdoptedSubject | None = None

    def begin(self) -> tuple[AdoptedSubject, AdoptedSubject]:
        """Two subjects, which are apart, without recorders."""
        first, second = self.make_raw(), self.make_raw()
        self._check_apart(first, second)
        self._first = first
        return first, second

    def enclose(self) -> AbstractContextManager[None]:
        """The sandbox, and nobody hears what is printed; nothing more inside of it."""
        return _INSIDE if self._sandbox.is_entered() else self._close()

    @contextmanager
    def _close(self) -> Iterator[None]:
        with self._sandbox.enclose(), contextlib.redirect_stdout(_NOWHERE), contextlib.redirect_stderr(_NOWHERE):
            yield

    def make_raw(self) -> AdoptedSubject:
        """What the factory makes, ports as they are; raises `ConfigurationError` where it fails."""
        try:
            with self.enclose():
                made = self.factory()
        except BlockedCall as blocked:
            raise self.describe_blocked(blocked, "the factory") from blocked
        except ConfigurationError:
            raise
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                raise self._needs_arguments(error) from error
            raise self._failed(error) from error
        except Exception as error:
            raise self._failed(error) from error
        if inspect.isawaitable(made):
            if inspect.iscoroutine(made):
                made.close()
            raise ConfigurationError("factory", self.place, "is a coroutine function; give one that is called plainly")
        if self._sandbox.reached:
            raise self.describe_blocked(self._sandbox.reached[0], "the factory")
        self.made_model = not isinstance(made, Machine | tuple | list)
        return self._find_subject(made)

    def _find_subject(self, made: Any) -> AdoptedSubject:
        """The subject in what the factory made: soon found where it is one model on one machine, as the first was."""
        first = self._first
        if first is not None and self.made_model and len(first.models) == len(first.machines) == 1:
            bound = getattr(made, "__dict__", {}).get("trigger")
            machine: Any = getattr(bound.func, "__self__", None) if isinstance(bound, partial) else None
            if type(machine) is type(first.machines[0]) and machine.models and machine.models[0] is made:
                return AdoptedSubject([made], [machine])
        return read_subject(made)

    def make(self) -> AdoptedSubject:
        """A fresh subject."""
        subject = self.make_raw()
        self.plug_ports(subject)
        return subject

    def _needs_arguments(self, error: TypeError) -> ConfigurationError:
        rule = f"must be callable without arguments ({error}); wrap it: def make(): return FACTORY(...)"
        return ConfigurationError("factory", self.place, rule)

    def _failed(self, error: Exception) -> ConfigurationError:
        frames = inspect.getinnerframes(error.__traceback__) if error.__traceback__ else []
        where = f", line {frames[-1].lineno} of {frames[-1].filename.rpartition('/')[2]}" if frames else ""
        rule = f"raised {type(error).__name__}: {error}{where}; it must make a machine each time it is called"
        return ConfigurationError("factory", self.place, rule)

    def plug_ports(self, subject: AdoptedSubject) -> None:
        """Put recorders in the place of attributes."""
        for owner in subject.owners if self.ports else ():
            for name in dict(own_attributes(owner)):
                if name in self.ports:
                    recorder = PortRecorder(name, self._calls, self.ports[name], getattr(owner, name))
                    object.__setattr__(owner, name, recorder)

    def _check_apart(self, first: AdoptedSubject, second: AdoptedSubject) -> None:
        known = {id(one) for one in (*first.owners, *first.machines)}
        for one in (*second.owners, *second.machines):
            if id(one) in known:
                rule = f"returned the same {type(one).__name__} twice; it must make a new one each time it is called"
                raise ConfigurationError("factory", self.place, rule)

    def describe_blocked(self, blocked: BlockedCall, where: str) -> NotRepeatable:
        """The error for something that reached for what is blocked."""
        mend = f"replace what it uses by a recorder (--port NAME), or allow it (--allow {blocked.kind})"
        if where == "the factory":
            mend = f"allow it (--allow {blocked.kind}), and replace the attribute that has it (--port NAME)"
        rule = (
            f"{where} calls {blocked.what} in {blocked.where}, which is blocked, since it would be called thousands "
            f"of times; {mend}"
        )
        return NotRepeatable("machine", self.place, rule)


class _Nowhere(io.TextIOBase):
    """Where callbacks print."""

    def write(self, text: str) -> int:
        return len(text)


_NOWHERE: Final = _Nowhere()
_INSIDE: Final = nullcontext()
