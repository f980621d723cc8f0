"""Trigger arguments: with which values triggers are called, and which triggers need values that nobody gave."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

import msgspec
from transitions import Machine

from statemachines.adoption.live_machine import (
    AdoptedSubject,
    callback_name,
    is_bound_by_machine,
    walk_states,
    walk_transitions,
)
from statemachines.adoption.model_step import ModelAction, ModelStepper
from statemachines.adoption.watched_objects import MACHINE_LISTS
from statemachines.kernel import ConfigurationError
from statemachines.registry import make_unknown_error

CALLS_MAX: Final = 1_000
"""Combinations of values of one trigger."""

FORM: Final = "must be TRIGGER=NAME:VALUE,VALUE (or TRIGGER=VALUE,VALUE for a positional one)"

Calls = Mapping[str, Iterable[Any]]
"""Trigger -> argument tuples (or dictionaries of named arguments) that it is called with."""


class UnexploredTrigger(msgspec.Struct, frozen=True):
    """A trigger that is not called: `needs` what nobody gave, `callback` that asks for it."""

    trigger: str
    needs: tuple[str, ...]
    callback: str

    def __str__(self) -> str:
        given = " ".join(f"--args {self.trigger}={name}:VALUE,VALUE" for name in self.needs)
        return f"{self.trigger}: {self.callback} needs {', '.join(self.needs)}; give {given}"


def parse_methods(given: Iterable[str]) -> Calls:
    """`["reset", "charge=amount:1,2"]` as calls.  Raises `ConfigurationError`."""
    given = tuple(given)
    bare = {one: [()] for one in given if "=" not in one}
    return {**bare, **parse_arguments([one for one in given if "=" in one], "--call")}


def parse_arguments(
    given: Iterable[str], option: str = "--args"
) -> dict[str, list[dict[str, Any] | tuple[Any, ...]]]:  # fmt: skip
    """`["pay=amount:0,1,2"]` as calls; several names of one trigger are combined.  Raises `ConfigurationError`."""
    named: dict[str, dict[str, list[Any]]] = {}
    for one in given:
        trigger, equals, rest = one.partition("=")
        if not equals or not trigger.isidentifier() or not rest:
            raise ConfigurationError(option, one, FORM)
        name, colon, values = rest.partition(":")
        if not colon or not name.isidentifier():
            name, values = "", rest
        if name in named.setdefault(trigger, {}):
            rule = f"gives {f'{name} of {trigger}' if name else trigger} a second time; put all values into one"
            raise ConfigurationError(option, one, rule)
        named[trigger][name] = _parse_values(values, one, option)
    calls: dict[str, list[dict[str, Any] | tuple[Any, ...]]] = {}
    for trigger, parts in named.items():
        combinations = list(product(*parts.values()))
        if len(combinations) > CALLS_MAX:
            rule = f"has {len(combinations)} combinations of values, more than {CALLS_MAX}; give fewer"
            raise ConfigurationError(option, trigger, rule)
        calls[trigger] = [_call(dict(zip(parts, one, strict=True)), option) for one in combinations]
    return calls


def _call(values: dict[str, Any], option: str) -> dict[str, Any] | tuple[Any, ...]:
    if set(values) == {""}:
        return (values[""],)
    if "" in values:
        raise ConfigurationError(option, values[""], "mixes values with and without a name; name all of them")
    return values


def _parse_values(text: str, given: str, option: str) -> list[Any]:
    """Values between commas, as Python writes them; a word that is no literal is a text."""
    try:
        whole = ast.literal_eval(f"[{text}]")
        return list(whole)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        values = [one.strip() for one in text.split(",")]
    if not all(values):
        raise ConfigurationError(option, given, f"has an empty value; {FORM}")
    return [_literal(one) for one in values]


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def list_calls(
    stepper: ModelStepper, calls: Calls, methods: Calls
) -> tuple[tuple[ModelAction, ...], tuple[UnexploredTrigger, ...]]:
    """Every call that is explored, and the triggers that are not.  Raises `ConfigurationError` for unknown names."""
    names = dict.fromkeys(one.name for one in stepper.triggers)
    for name in calls:
        if name not in names:
            raise make_unknown_error("trigger", name, names)
    actions: list[ModelAction] = []
    missing: dict[str, UnexploredTrigger] = {}
    for trigger in stepper.triggers:
        if trigger.name in calls:
            actions += [_action(trigger.machine, trigger.model, trigger.name, one) for one in calls[trigger.name]]
            continue
        lacking = _find_lacking(stepper.first, trigger.machine, trigger.model, trigger.name)
        if lacking is None:
            actions.append(ModelAction(trigger.machine, trigger.model, trigger.name))
        else:
            missing.setdefault(trigger.name, lacking)
    models = stepper.first.models
    for name, some in methods.items():
        found = [place for place, model in enumerate(models) if name in list_methods(model)]
        if not found:
            raise make_unknown_error("--call", name, [one for model in models for one in list_methods(model)])
        actions += [_action(stepper.first.find_machine(place), place, name, one) for place in found for one in some]
    return tuple(actions), tuple(missing.values())


def list_methods(model: Any) -> list[str]:
    """The methods that the class of a model has, and not a machine."""
    names = (name for name in dir(type(model)) if not name.startswith("_") and not hasattr(Machine, name))
    return [name for name in names if callable(getattr(model, name)) and not is_bound_by_machine(getattr(model, name))]


def _action(machine: int, model: int, name: str, given: Any) -> ModelAction:
    if isinstance(given, Mapping):
        return ModelAction(machine, model, name, (), dict(given))
    if isinstance(given, tuple | list):
        return ModelAction(machine, model, name, tuple(given))
    rule = f"{given!r} must be a tuple of arguments, or a dictionary of named ones"
    raise ConfigurationError("triggers", name, rule)


def _find_lacking(
    subject: AdoptedSubject, machine_place: int, model_place: int, trigger: str
) -> UnexploredTrigger | None:
    """The first callback of a trigger that cannot be called without arguments."""
    machine, model = subject.machines[machine_place], subject.models[model_place]
    if machine.send_event:
        return None
    for callback in _callbacks_of(machine, trigger):
        function: Any = getattr(model, callback, None) if isinstance(callback, str) else callback
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # no function, or one without a signature
            continue
        needs = tuple(
            one.name
            for one in parameters
            if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        )
        if needs:
            return UnexploredTrigger(trigger, needs, callback_name(callback))
    return None


def _callbacks_of(machine: Any, trigger: str) -> Iterable[Any]:
    """What a call of the trigger may call, with its arguments."""
    states = dict(walk_states(machine))
    for name in MACHINE_LISTS:
        if name not in ("on_exception", "on_final"):
            yield from getattr(machine, name)
    for one, prefix, transition in walk_transitions(machine):
        if one != trigger:
            continue
        yield from transition.prepare
        yield from (condition.func for condition in transition.conditions)
        yield from transition.before
        yield from transition.after
        if transition.dest and prefix + transition.source in states:
            yield from states[prefix + transition.source].on_exit
        if transition.dest and prefix + transition.dest in states:
            yield from states[prefix + transition.dest].on_enter
