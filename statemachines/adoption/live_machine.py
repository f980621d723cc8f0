"""Live machines: what a factory has made: its models, the machines on them, their rows and triggers.

    subject = read_subject(make_order())

A factory returns a model, a machine (its models count; a machine may be its own), or several of either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Final

import msgspec
from transitions import Machine, State, Transition
from transitions.core import Event as MachineEvent
from transitions.extensions import GraphMachine
from transitions.extensions.locking import LockedMachine
from transitions.extensions.nesting import FunctionWrapper, HierarchicalMachine

from statemachines.kernel import ConfigurationError


class TransitionRow(msgspec.Struct, frozen=True):
    """One Transition of a machine.  `machine`: its place among those of the subject; `source`, `dest`: full names of
    states ("": internal, the state stays); `guards` as they are named, those of `unless` with "not " before."""

    machine: int
    trigger: str
    source: str
    dest: str
    guards: tuple[str, ...]
    actions: tuple[str, ...]
    automatic: bool

    @property
    def label(self) -> str:
        """The row in a line."""
        guard = f" [{' and '.join(self.guards)}]" if self.guards else ""
        return f"{self.trigger}{guard}: {self.source} -> {self.dest or 'stays'}"


class Trigger(msgspec.Struct, frozen=True):
    """A trigger of one machine for one model, by their places in the subject."""

    machine: int
    model: int
    name: str


class AdoptedSubject:
    """What one call of the factory has made."""

    def __init__(self, models: list[Any], machines: list[Any]) -> None:
        self.models = models
        self.machines = machines
        self.owners = [*models, *(one for one in machines if not any(one is model for model in models))]
        """Every object whose attributes are a part of the value: models, then machines that are no models."""
        self.names = _owner_names(models, self.owners)
        self.known = {id(one): name for one, name in zip(self.owners, self.names, strict=True)}

    def walk_parts(self) -> Iterator[tuple[str, Any]]:
        """(name, object) of states, events and transitions, in the same order for every subject of a factory."""
        for place, machine in enumerate(self.machines):
            for name, state in walk_states(machine):
                yield f"state {name} of machine {place}", state
                yield from ((f"event {one} of {name} of machine {place}", event) for one, event in _events_of(state))
            yield from ((f"event {name} of machine {place}", event) for name, event in _events_of(machine))
            for number, (_, _, transition) in enumerate(walk_transitions(machine)):
                yield f"transition {number} of machine {place}", transition

    def name_part(self, thing: Any) -> str:
        """The name of a state, event or transition of the machines; "": it is none."""
        if not isinstance(thing, State | MachineEvent | Transition):
            return ""
        return next((name for name, one in self.walk_parts() if one is thing), "")

    def name_model(self, place: int) -> str:
        """How runs call a model: "" where there is one only."""
        return "" if len(self.models) == 1 else self.names[place]

    def find_machine(self, model: int) -> int:
        """The place of the first machine that a model is on."""
        return next(
            place for place, one in enumerate(self.machines) if any(self.models[model] is on for on in one.models)
        )

    def is_own(self, owner: Any, name: str, value: Any) -> bool:
        """Whether an attribute is the user's: neither transitions' nor a machine that stands on a model."""
        if isinstance(owner, Machine) and name in MACHINE_ATTRIBUTES:
            return False
        if isinstance(owner, GraphMachine) and (name in GRAPH_ATTRIBUTES or name == "get_graph"):
            return False
        if any(value is one for one in self.machines):
            return False
        return not is_bound_by_machine(value)


def _owner_names(models: list[Any], owners: list[Any]) -> list[str]:
    kinds = [type(one).__name__ for one in owners]
    names = []
    for place, kind in enumerate(kinds):
        before = kinds[:place].count(kind)
        names.append(kind if kinds.count(kind) == 1 else f"{kind}{before + 1}")
    return names


def _probe_attributes() -> frozenset[str]:
    """The attributes that machines of transitions have themselves."""
    kinds = (Machine, HierarchicalMachine, LockedMachine)
    found = {name for kind in kinds for name in vars(kind(model=None, states=["a"], initial="a"))}
    return frozenset(found | {"_transition_queue_dict"})


MACHINE_ATTRIBUTES: Final = _probe_attributes()

GRAPH_ATTRIBUTES: Final = frozenset(vars(GraphMachine(model=None, states=["a"], initial="a", graph_engine="mermaid")))


def is_bound_by_machine(value: Any) -> bool:
    """Whether transitions has put this attribute on a model: a trigger, `may_...`, `is_...`, `to_...`, `trigger`."""
    if isinstance(value, FunctionWrapper):
        return True
    owner = getattr(value.func, "__self__", None) if isinstance(value, partial) else None
    if isinstance(value, partial) and isinstance(owner, LockedMachine) and value.args:
        return True
    return isinstance(owner, Machine | MachineEvent)


def read_subject(made: Any) -> AdoptedSubject:
    """The models and machines in what a factory returned; raises `ConfigurationError` where there is none."""
    things = list(made) if isinstance(made, tuple | list) else [made]
    models: list[Any] = []
    machines: list[Any] = []
    for thing in things:
        found = _machines_of(thing)
        if isinstance(thing, Machine):
            found.insert(0, thing)
        if not found:
            rule = (
                "must return a transitions.Machine, a model that one is on, or a list of either; "
                "return the model that the machine was made with"
            )
            raise ConfigurationError("factory", type(thing).__name__, rule)
        for machine in found:
            _add(machines, machine)
        own = list(thing.models) if isinstance(thing, Machine) else [thing]
        for model in own:
            _add(models, model)
            for machine in _machines_of(model):
                _add(machines, machine)
    if not models:
        raise ConfigurationError("factory", type(made).__name__, "made a machine without a model; give it one")
    return AdoptedSubject(models, machines)


def _add(things: list[Any], thing: Any) -> None:
    if not any(thing is one for one in things):
        things.append(thing)


def _machines_of(model: Any) -> list[Any]:
    found: list[Any] = []
    for value in list(getattr(model, "__dict__", {}).values()):
        bound = value._func if isinstance(value, FunctionWrapper) else value
        owner = getattr(bound.func, "__self__", None) if isinstance(bound, partial) else bound
        machine = owner.machine if isinstance(owner, MachineEvent) else owner
        if not isinstance(machine, Machine) or any(machine is one for one in found):
            continue
        if any(model is one for one in machine.models):
            found.append(machine)
    return found


# -- states ---------------------------------------------------------------------------------------------------------


def walk_states(machine: Any) -> Iterator[tuple[str, State]]:
    """Every state by its full name, parents before children."""
    yield from _walk(_root_of(machine)[1], "", getattr(machine.state_cls, "separator", "_"))


def _root_of(machine: Any) -> tuple[Any, Any, Any]:
    """(machine, states, events) of the whole machine: while a nested scope runs, a machine shows that scope alone."""
    stack = getattr(machine, "_stack", None)
    return stack[0][:3] if stack else (machine, machine.states, machine.events)


def _walk(states: Any, prefix: str, separator: str) -> Iterator[tuple[str, State]]:
    for name, state in states.items():
        yield prefix + name, state
        yield from _walk(getattr(state, "states", {}), f"{prefix}{name}{separator}", separator)


def state_text(value: Any) -> str:
    """A state of a model as it is shown: its name; of parallel states all, in brackets."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(state_text(one) for one in value)}]"
    return value.name if isinstance(value, Enum) else str(value)


def state_of(machine: Any, model: Any) -> str:
    """The state that a model is in, as it is shown."""
    return name_state(machine, getattr(model, machine.model_attribute))


def name_state(machine: Any, value: Any) -> str:
    """A state of a machine as it is shown: by its full name, which a nested enum member alone does not have."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(name_state(machine, one) for one in value)}]"
    if isinstance(value, Enum) and hasattr(machine, "prefix_path"):
        return next((name for name, state in walk_states(machine) if state.value is value), value.name)
    return state_text(value)


def _events_of(owner: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(owner, "events", {}).items()


# -- rows -----------------------------------------------------------------------------------------------------------


def walk_transitions(machine: Any) -> Iterator[tuple[str, str, Transition]]:
    """(trigger, prefix of its scope, Transition), in the order in which the machine decides: a nested scope before the
    scopes around it, in a scope a nested source before its parents, and else the order of the declaration.

    `prefix` stands before the names of its states: a Transition of a nested scope names them from there.
    """
    separator = getattr(machine.state_cls, "separator", "")

    def depth(name: str) -> int:
        return name.count(separator) if separator else 0

    scopes = [(f"{name}{separator}", getattr(state, "events", {})) for name, state in walk_states(machine)]
    for prefix, events in sorted([("", _root_of(machine)[2]), *scopes], key=lambda scope: -depth(scope[0])):
        for event in events.values():
            for source in sorted(event.transitions, key=lambda name: -depth(name)):
                yield from ((event.name, prefix, one) for one in list(event.transitions[source]))


def read_rows(subject: AdoptedSubject) -> tuple[tuple[TransitionRow, ...], tuple[int, ...]]:
    """The rows of all machines, those of `auto_transitions` last; and for each Transition, in the order of
    `walk_transitions`, the number of its row."""
    rows = _rows_of(subject)
    order = sorted(range(len(rows)), key=lambda place: rows[place].automatic)
    numbers = {place: number for number, place in enumerate(order)}
    return tuple(rows[place] for place in order), tuple(numbers[place] for place in range(len(rows)))


def _rows_of(subject: AdoptedSubject) -> list[TransitionRow]:
    automatic = [automatic_triggers(machine) for machine in subject.machines]
    return [
        TransitionRow(
            place,
            trigger,
            prefix + transition.source,
            prefix + transition.dest if transition.dest else "",
            tuple(("" if one.target else "not ") + callback_name(one.func) for one in transition.conditions),
            tuple(callback_name(one) for one in (*transition.prepare, *transition.before, *transition.after)),
            trigger in automatic[place],
        )
        for place, machine in enumerate(subject.machines)
        for trigger, prefix, transition in walk_transitions(machine)
    ]


def automatic_triggers(machine: Any) -> frozenset[str]:
    """The `to_STATE` triggers that `auto_transitions` makes."""
    if not machine.auto_transitions:
        return frozenset()
    prefix = "to_" if machine.model_attribute == "state" else f"to_{machine.model_attribute}_"
    return frozenset(prefix + name for name, _ in walk_states(machine))


def find_transition(subject: AdoptedSubject, transition: Transition) -> int:
    """The place of a Transition that runs in the order of `walk_transitions`; -1: it is not declared (`to_state`)."""
    number = 0
    for machine in subject.machines:
        for _, _, one in walk_transitions(machine):
            if one is transition:
                return number
            number += 1
    return -1


def callback_name(callback: Any) -> str:
    """How a callback is called in tables and messages."""
    if isinstance(callback, str):
        return callback
    while isinstance(callback, partial):
        callback = callback.func
    return str(getattr(callback, "__qualname__", None) or type(callback).__name__).rpartition("<locals>.")[2]


# -- triggers -------------------------------------------------------------------------------------------------------


def read_triggers(subject: AdoptedSubject, automatic: bool) -> tuple[Trigger, ...]:
    """The triggers of all machines for each of their models; those of `auto_transitions` only where asked for."""
    found = []
    for place, machine in enumerate(subject.machines):
        names = dict.fromkeys(trigger for trigger, _, _ in walk_transitions(machine))
        unwanted = frozenset() if automatic else automatic_triggers(machine)
        wanted = [name for name in names if name not in unwanted]
        for number, model in enumerate(subject.models):
            if any(model is one for one in machine.models):
                found += [Trigger(place, number, name) for name in wanted]
    return tuple(found)


def check_bound(subject: AdoptedSubject, triggers: Iterable[Trigger]) -> None:
    """Every trigger can be called by its name; raises `ConfigurationError` for one that a method of the model hides."""
    for one in triggers:
        model = subject.models[one.model]
        for name in (one.name, "trigger"):
            found = getattr(model, name, None)
            if found is not None and not is_bound_by_machine(found):
                rule = (
                    f"is an attribute of {type(model).__name__} itself, so transitions does not bind it and "
                    f"{type(model).__name__}.{name} runs instead; rename the method, or the trigger"
                )
                raise ConfigurationError("trigger", name, rule)
