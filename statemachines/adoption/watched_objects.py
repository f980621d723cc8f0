"""Watched objects: what callbacks can reach besides their model, and a step may not change.

Globals that functions of the machine name, mutable attributes of classes, what closures hold, and objects that all
models of a factory share.  None of it is a part of a value, so a step that changed it would not be the same step again.
"""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final

from transitions import Machine

from statemachines.adoption.canonical_value import Encoder, NoEncoding, closure_of, own_attributes
from statemachines.adoption.live_machine import AdoptedSubject, callback_name, walk_states, walk_transitions

FUNCTIONS_MAX: Final = 2_000
"""Functions that are followed from callback to callback."""

MACHINE_LISTS: Final = (
    *("prepare_event", "before_state_change", "after_state_change", "finalize_event"),
    *("on_exception", "on_final"),
)
STATE_LISTS: Final = ("on_enter", "on_exit", "on_timeout", "on_final")
TRANSITION_LISTS: Final = ("prepare", "before", "after")


def walk_callbacks(subject: AdoptedSubject) -> Iterator[tuple[str, Any]]:
    """(where, callback) of everything that a machine may call."""
    for machine in subject.machines:
        for name in MACHINE_LISTS:
            for one in getattr(machine, name, None) or ():
                yield f"{name} of the machine", one
        for name, state in walk_states(machine):
            for which in STATE_LISTS:
                for one in vars(state).get(which) or vars(state).get(f"_{which}") or ():
                    yield f"{which} of {name}", one
            failure = vars(state).get("on_failure")
            if failure is not None:
                yield f"on_failure of {name}", failure
        for trigger, _, transition in walk_transitions(machine):
            for which in TRANSITION_LISTS:
                for one in getattr(transition, which):
                    yield f"{which} of {trigger}", one
            for condition in transition.conditions:
                yield f"a condition of {trigger}", condition.func


def find_functions(subject: AdoptedSubject) -> list[types.FunctionType]:
    """Every Python function of the user's that callbacks and methods of the models reach by name."""
    found: dict[int, types.FunctionType] = {}
    todo: list[Any] = [callback for _, callback in walk_callbacks(subject)]
    for owner in subject.owners:
        todo += [value for name, value in own_attributes(owner) if subject.is_own(owner, name, value)]
        todo += [one for kind in _own_classes(type(owner)) for one in vars(kind).values()]
    while todo and len(found) < FUNCTIONS_MAX:
        function = _function_of(todo.pop())
        if function is None or id(function) in found or not _is_users(function.__module__):
            continue
        found[id(function)] = function
        for _, _, value in _named_globals(function):
            if not isinstance(value, type):
                todo.append(value)
            elif _is_users(value.__module__):
                todo += list(vars(value).values())
        todo += [held for _, held in closure_of(function)]
    return list(found.values())


Getter = Callable[[], Any]

BYTES_MAX: Final = 65_536
"""What is larger at the beginning is not watched: it would be encoded at every step."""


class WatchedObjects:
    """Places that hold something, with what they hold at the beginning.  `known`: ids of models and machines."""

    def __init__(self, known: Mapping[int, str], places: Iterable[tuple[str, Getter]]) -> None:
        self._known = known
        self._places: list[tuple[str, Getter, bytes]] = []
        for name, get in places:
            code = self._encode(get, name)
            if code is not None and len(code) <= BYTES_MAX:
                self._places.append((name, get, code))

    def __bool__(self) -> bool:
        """Whether anything is watched."""
        return bool(self._places)

    def find_changed(self) -> str | None:
        """The name of a place that holds something else now; None: there is none."""
        return next((name for name, get, before in self._places if self._encode(get, name) != before), None)

    def _encode(self, get: Getter, name: str) -> bytes | None:
        value = get()
        if isinstance(value, _CONSTANT) or id(value) in self._known or _is_descriptor(value):
            return None
        try:
            return Encoder(self._known).encode(value, name)
        except (NoEncoding, RecursionError):
            return None


def watch_callbacks(subject: AdoptedSubject, functions: list[types.FunctionType]) -> WatchedObjects:
    """What belongs to one subject and is no attribute of it: what closures and defaults of `functions` hold, objects
    whose methods are callbacks, and what somebody has put on a state or a transition."""
    known = _known_in(subject)
    places: list[tuple[str, Getter]] = [_attributes_place(functions)] if functions else []
    for function in functions:
        places += _places_in(function)
    for where, callback in walk_callbacks(subject):
        holder = _holder_of(callback, known)
        if holder:
            places.append((f"what {callback_name(callback)} is called on ({where})", partial(_itself, holder)))
    for name, part in subject.walk_parts():
        for extra in vars(part).keys() - PART_ATTRIBUTES:
            places.append((f"{extra} of {name}", partial(vars(part).get, extra)))
    return WatchedObjects(known, places)


HANDLES: Final = ((socket.socket, "sockets"), (io.IOBase, "files"), (subprocess.Popen, "processes"))
"""What is open already: to write to it raises no audit event."""


def find_handles(functions: list[types.FunctionType]) -> Iterator[tuple[str, str, str]]:
    """(function, global, kind of the sandbox) of what is open and can be reached by name."""
    for function in functions:
        for _, name, value in _named_globals(function):
            for handle, kind in HANDLES:
                if isinstance(value, handle):
                    yield callback_name(function), name, kind


def check_callbacks(subject: AdoptedSubject) -> None:
    """Raises `NoEncoding` for a callback on an object that cannot be read."""
    known = _known_in(subject)
    for where, callback in walk_callbacks(subject):
        holder = _holder_of(callback, known)
        if holder:
            Encoder(known, subject.name_part).encode(holder, f"{callback_name(callback)} ({where})")


def count_structure(subject: AdoptedSubject) -> tuple[int, ...]:
    """Numbers that change where a step adds a state, a row, a callback or an attribute of one of them."""
    found = []
    for machine in subject.machines:
        found += [bool(machine.send_event), bool(machine.ignore_invalid_triggers), len(machine.models)]
        found += [len(getattr(machine, name, None) or ()) for name in MACHINE_LISTS]
        for owner in (machine, *(state for _, state in walk_states(machine))):
            for event in getattr(owner, "events", _NONE).values():
                for some in event.transitions.values():
                    for one in some:
                        found.append(len(one.prepare) + len(one.before) + len(one.after) + len(one.conditions))
            if owner is not machine:
                found.append(64 * len(owner.__dict__) + len(owner.on_enter) + len(owner.on_exit))
    return tuple(found)


_NONE: Final[dict[str, Any]] = {}

PART_ATTRIBUTES: Final = frozenset(
    {
        *("_name", "final", "ignore_invalid_triggers", "on_enter", "on_exit", "on_final", "initial", "tags"),
        *("events", "states", "_scope", "timeout", "_on_timeout", "runner", "retries", "on_failure", "retry_counts"),
        *("volatile_cls", "volatile_hook", "initialized"),
        *("name", "machine", "transitions", "source", "dest", "prepare", "before", "after", "conditions"),
    }
)
"""The attributes that states, events and transitions have themselves."""


def _places_in(function: types.FunctionType) -> Iterator[tuple[str, Getter]]:
    called = callback_name(function)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield f"{name}, which the closure of {called} holds", partial(_held_in, cell)
    if function.__dict__:
        yield f"an attribute of the function {called}", partial(_itself, function.__dict__)
    if function.__defaults__ or function.__kwdefaults__:
        yield f"a default of {called}", partial(_itself, (function.__defaults__, function.__kwdefaults__))


def _holder_of(callback: Any, known: Mapping[int, str]) -> tuple[Any, ...]:
    """The objects that a callback is called on or with, besides models, machines, functions and classes."""
    held: list[Any] = []
    while isinstance(callback, partial):
        held += [*callback.args, *callback.keywords.values()]
        callback = callback.func
    if not isinstance(callback, str | types.FunctionType | type):
        held.append(getattr(callback, "__self__", callback))
    plain = types.ModuleType | types.FunctionType | type
    return tuple(one for one in held if id(one) not in known and not isinstance(one, plain))


def watch_everywhere(
    subject: AdoptedSubject, functions: list[types.FunctionType], shared: Mapping[str, Any]
) -> WatchedObjects:  # fmt: skip
    """What all subjects of a factory have in common: globals that callbacks name, attributes of classes, what is
    `shared`."""
    places: dict[str, Getter] = {name: partial(_itself, one) for name, one in shared.items()}
    places |= dict([_attributes_place(functions)])
    classes = [kind for owner in subject.owners for kind in _own_classes(type(owner))]
    for function in functions:
        places |= dict(_places_in(function))
        for names, name, value in _named_globals(function):
            if isinstance(value, type):
                classes += _own_classes(value)
            else:
                places[f"{name}, a global of {names.get('__name__')}"] = partial(names.get, name)
    for kind in classes:
        places[f"the attributes of {kind.__name__}"] = partial(_count_attributes, kind)
        for name in [one for one in vars(kind) if not one.startswith("__")]:
            places[f"{kind.__name__}.{name}, an attribute of the class"] = partial(vars(kind).get, name)
    return WatchedObjects(_known_in(subject), places.items())


def _known_in(subject: AdoptedSubject) -> dict[int, str]:
    return subject.known | {id(one): "machine" for one in subject.machines}


def _itself(value: Any) -> Any:
    return value


def _attributes_place(functions: list[types.FunctionType]) -> tuple[str, Getter]:
    """How many attributes these functions have, all together: nearly always none."""
    empty = [function.__dict__ for function in functions]
    names = ", ".join(sorted({callback_name(function) for function in functions}))
    return f"the attributes of a function ({names})", partial(_count_all, empty)


def _count_all(some: list[dict[str, Any]]) -> int:
    return sum(map(len, some))


def _count_attributes(kind: type) -> int:
    return len(vars(kind)) - ("__slotnames__" in vars(kind))  # which `copy` leaves there


def _held_in(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


_CONSTANT: Final = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, Enum, Machine)


def _is_descriptor(value: Any) -> bool:
    return isinstance(value, property | classmethod | staticmethod) or hasattr(type(value), "__get__")


def _own_classes(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if _is_users(base.__module__)]


_NOT_USERS: Final = ("builtins", "transitions", __name__.partition(".")[0])


def _is_users(module: str | None) -> bool:
    """Whether code of this module is the user's: neither of Python, nor of transitions, nor ours."""
    top = (module or "").partition(".")[0]
    return top == "__main__" or (top not in sys.stdlib_module_names and top not in _NOT_USERS)


def _function_of(value: Any) -> types.FunctionType | None:
    while True:
        if isinstance(value, partial):
            value = value.func
        elif isinstance(value, types.MethodType | staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            value = value.fget
        else:
            return value if isinstance(value, types.FunctionType) else None


def _named_globals(function: types.FunctionType) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """(where, name, value) of the globals that a function names, of its own module and of modules of the user's that it
    names or imports."""
    code = list(dict.fromkeys(_names_in(function.__code__)))
    names = function.__globals__
    for name in code:
        value = names.get(name, sys.modules.get(name))
        if isinstance(value, types.ModuleType):
            inside = vars(value) if _is_users(value.__name__) else {}
            yield from ((inside, one, inside[one]) for one in code if one in inside)
        elif name in names:
            yield names, name, value


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)
