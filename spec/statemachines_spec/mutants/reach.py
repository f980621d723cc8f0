"""Reach: the functions of a protocol that a step of its machines, or of its hosts, may call.

Roots are the guards, actions, invariants, periods and keys of the machines with their children, and every method of a
`Host` that the protocol's modules have.  From there on names are followed: what a function's code names is looked up
among its globals; a name of an attribute stands for every method or property so called of a type that is known: a
record, an event, what one of their fields holds, or what some function names.  That is more than what is called, never
less, within the modules of the protocol; nothing outside them is entered.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, get_args

from statemachines.kernel import Delegate, Fsm, Host
from statemachines_spec.mutants.mutant import field_types


def package_of(fsm: Fsm[Any]) -> str:
    """The package whose modules are the protocol's own: that of the module in which the record is declared."""
    module: str = fsm.record_type.__module__
    return module.rpartition(".")[0] or module


class ReachedCode:
    """What the machines of one protocol reach: `functions`, in the order of their modules and lines."""

    def __init__(self, machines: Iterable[Fsm[Any]]) -> None:
        families = {member.full_name: member for one in machines for member in one.family()}
        self.machines = tuple(families.values())
        self.packages = tuple(sorted({package_of(one) for one in self.machines}))
        self._functions: dict[int, FunctionType] = {}
        self._types: dict[int, type[Any]] = {}
        self._names: set[str] = set()
        self._waiting: list[FunctionType] = []
        for root in self._roots():
            self._take(root)
        self._close()
        self.functions = tuple(sorted(self._functions.values(), key=_place))

    def is_own(self, module: str | None) -> bool:
        """Whether the module of this name is the protocol's."""
        return any(module == one or str(module).startswith(f"{one}.") for one in self.packages)

    def calls(self, root: Any, name: str) -> bool:
        """Whether a function, or one that it names, has `name` among its names (`SetTimer`, for instance)."""
        seen: set[int] = set()
        waiting = [root]
        while waiting:
            one = _plain(waiting.pop())
            if one is None or id(one) in seen or not self.is_own(one.__module__):
                continue
            seen.add(id(one))
            names = _names_in(one.__code__)
            if name in names:
                return True
            waiting += [one.__globals__[other] for other in names if other in one.__globals__]
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
        return False

    # -- roots --------------------------------------------------------------------------------------------------

    def _roots(self) -> Iterator[Any]:
        for fsm in self.machines:
            for line in fsm.lines:
                yield line.do.run if isinstance(line.do, Delegate) else line.do
                yield line.when
            for invariant in fsm.invariants:
                yield invariant.holds
                yield invariant.touched
            for timer in fsm.timers:
                yield timer.period_ns
            yield fsm.key
            yield fsm.record_type
            yield from fsm.alphabet
        for name, module in sorted(sys.modules.items()):
            if self.is_own(name):
                for value in vars(module).values():
                    if isinstance(value, type) and issubclass(value, Host) and value.__module__ == name:
                        yield value
                        yield from vars(value).values()

    # -- following names ----------------------------------------------------------------------------------------

    def _take(self, value: Any) -> None:
        if isinstance(value, type):
            self._take_type(value)
            return
        function = _plain(value)
        if function is not None and id(function) not in self._functions and self.is_own(function.__module__):
            self._functions[id(function)] = function
            self._waiting.append(function)

    def _take_type(self, of: type[Any]) -> None:
        for one in of.__mro__:
            if id(one) not in self._types and self.is_own(one.__module__):
                self._types[id(one)] = one
                for kind in field_types(one).values():
                    for inner in _inside(kind):
                        self._take(inner)
                self._take_attributes(one, self._names)

    def _take_attributes(self, of: type[Any], names: Iterable[str]) -> None:
        for name in names:
            if name in vars(of) and not name.startswith("__"):
                self._take(vars(of)[name])

    def _close(self) -> None:
        while self._waiting:
            function = self._waiting.pop()
            names = _names_in(function.__code__)
            for name in names:
                value = function.__globals__.get(name)
                if isinstance(value, ModuleType):
                    for other in names:
                        if other in vars(value):
                            self._take(vars(value)[other])
                elif value is not None:
                    self._take(value)
            for cell in function.__closure__ or ():
                self._take(cell.cell_contents)
            new = names - self._names
            self._names |= new
            for one in list(self._types.values()):
                self._take_attributes(one, new)


def _plain(value: Any) -> FunctionType | None:
    """The function inside a property, a method, a cache or a wrapper."""
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    while hasattr(value, "__wrapped__"):
        value = value.__wrapped__
    return value if isinstance(value, FunctionType) else None


def _names_in(code: CodeType) -> set[str]:
    """Every global and attribute that it names, and functions within it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names_in(constant)
    return names


def _inside(kind: Any) -> Iterator[type[Any]]:
    """The types that a type hint is made of."""
    if isinstance(kind, type):
        yield kind
    for inner in get_args(kind):
        yield from _inside(inner)


def _place(function: FunctionType) -> tuple[str, int, str]:
    return function.__module__, function.__code__.co_firstlineno, function.__qualname__
