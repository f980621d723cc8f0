"""Rule reach: what the rules of a process name in their code, and what of that can change.

A guard or an action is called with all that it may read.  What else it names are constants, globals, variables of outer
functions and defaults of arguments.  Functions of its own package that it names are followed; the kernel is not, and
neither is what is no plain function, whose code says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence, MutableSet
from contextlib import suppress
from enum import Enum
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any, NamedTuple

import msgspec

from statemachines.kernel.fsm import Fsm
from statemachines.kernel.pmap import Map
from statemachines.kernel.row import Delegate

KERNEL = __name__.rpartition(".")[0]
PLAIN = (type, str, int, float, bytes, NoneType, ModuleType, Fsm, Map, tuple, Enum)


class NamedValue(NamedTuple):
    """`value` is called `name` in the code of `function`."""

    function: str
    name: str
    value: Any


def list_rules(fsm: Fsm[Any]) -> list[Any]:
    """Guards and actions of a machine and of its child machines, and the methods of their records."""
    found: list[Any] = []
    for one in fsm.family():
        found += (rule for line in one.lines for rule in (line.when, line.do))
        found += filter(_is_function, vars(one.record_type).values())
    return found


def list_named(rules: Iterable[Any]) -> list[NamedValue]:
    """Every value but functions that the rules name, or a function does that they name."""
    found: list[NamedValue] = []
    waiting = [one.run if isinstance(one, Delegate) else one for one in rules if one is not None]
    seen = set[int]()
    for rule in waiting:
        if id(rule) in seen:
            continue
        seen.add(id(rule))
        where = getattr(rule, "__qualname__", type(rule).__name__)
        for name, value in _list_parts(rule):
            if _is_function(value):
                if not isinstance(value, FunctionType) or _is_near(value, rule):
                    waiting.append(value)
            else:
                found.append(NamedValue(where, name, value))
    return found


def list_inside(value: Any) -> Iterator[Any]:
    """It, and what it holds."""
    yield value
    if isinstance(value, msgspec.Struct):
        parts: Iterable[Any] = (getattr(value, name) for name in value.__struct_fields__)
    else:
        parts = value.values() if isinstance(value, Map) else value if isinstance(value, tuple | frozenset) else ()
    for part in parts:
        yield from list_inside(part)


def can_change(value: Any) -> bool:
    """Whether it is a list, a dictionary, a set, or an object with attributes that is no frozen struct.  A declared
    machine does not change."""
    if isinstance(value, PLAIN) or _is_function(value):
        return False
    if isinstance(value, msgspec.Struct):
        return not value.__struct_config__.frozen
    if isinstance(value, bytearray | MutableMapping | MutableSequence | MutableSet):
        return True
    return type(value).__module__ != "typing" and _has_attributes(value)


def _has_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


def _is_function(value: Any) -> bool:
    return isinstance(value, FunctionType | MethodType | partial | property) or hasattr(value, "__wrapped__")


def _is_near(function: FunctionType, rule: Any) -> bool:
    """Of the same package, and not of the kernel."""
    module, other = function.__module__, getattr(rule, "__module__", None) or function.__module__
    return module.partition(".")[0] == other.partition(".")[0] and not f"{module}.".startswith(f"{KERNEL}.")


def _list_parts(rule: Any) -> Iterator[tuple[str, Any]]:
    """What a rule is made of, each under its name."""
    if isinstance(rule, FunctionType):
        yield from _list_parts_of_function(rule)
    elif isinstance(rule, MethodType):
        yield "self", rule.__self__
        yield "", rule.__func__
    elif isinstance(rule, partial):
        yield from rule.keywords.items()
        yield from (("an argument", value) for value in (rule.func, *rule.args))
    elif isinstance(rule, property):
        yield "", rule.fget
    elif hasattr(rule, "__wrapped__"):
        yield "", rule.__wrapped__
    else:
        yield "self", rule


def _list_parts_of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    names, codes = set[str](), [function.__code__]
    for code in codes:
        names.update(code.co_names)
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
        yield from (("a constant", one) for one in code.co_consts if not isinstance(one, CodeType))
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, type | ModuleType):
            yield from ((other, vars(value)[other]) for other in sorted(names & vars(value).keys()))
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not filled yet
            yield name, cell.cell_contents
    yield from ((f"a default of {function.__name__}", value) for value in function.__defaults__ or ())
    yield from (function.__kwdefaults__ or {}).items()
