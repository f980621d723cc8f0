"""Model values: all that a subject knows, read from it and set on a fresh one.

A value is every attribute that transitions did not put there, of all models and of machines that have attributes of
their own; and, for each machine and model, retry counts and the timers that are set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace
from transitions import EventData, Machine
from transitions.core import Event as MachineEvent

from statemachines.adoption.canonical_value import ATOMS, Encoder, NoEncoding, read_attributes, slot_names
from statemachines.adoption.live_machine import MACHINE_ATTRIBUTES, AdoptedSubject, walk_states
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
