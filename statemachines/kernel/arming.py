"""Arming: whether what a row does can set a timer at all, as far as its code tells."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from statemachines.kernel.effect import SetTimer


def can_arm(action: Any) -> bool:
    """Whether `SetTimer` is named in the function, or in a function that it names; True for what is no plain function,
    whose code says nothing."""
    return not isinstance(action, FunctionType) or _reaches(action, set())


def _reaches(function: FunctionType, seen: set[FunctionType]) -> bool:
    if function in seen:
        return False
    seen.add(function)
    for value in _named(function):
        if value is SetTimer or (isinstance(value, FunctionType) and _reaches(value, seen)):
            return True
    return False


def _named(function: FunctionType) -> list[Any]:
    """Every global, and every variable of an outer function, that its code names."""
    names, codes = set[str](), [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
    found = [function.__globals__[name] for name in sorted(names) if name in function.__globals__]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return found
