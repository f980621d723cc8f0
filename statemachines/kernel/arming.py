"""Arming: whether what a row does can set a timer at all, as far as its code tells."""

from __future__ import annotations

from collections.abc import Collection
from types import CodeType, FunctionType
from typing import Any

from statemachines.kernel.effect import SetTimer


def can_arm(action: Any, timer: str, others: Collection[str] = ()) -> bool:
    """Whether `SetTimer` is named in the function, or in a function that it names, and not beside the names of `others`
    alone; True for what is no plain function, whose code says nothing."""
    return not isinstance(action, FunctionType) or _reaches(action, timer, frozenset(others), set())


def _reaches(function: FunctionType, timer: str, others: frozenset[str], seen: set[FunctionType]) -> bool:
    if function in seen:
        return False
    seen.add(function)
    named = _list_named(function)
    texts = {value for value in named if isinstance(value, str)}
    if any(value is SetTimer for value in named) and (timer in texts or not texts & others):
        return True
    return any(isinstance(value, FunctionType) and _reaches(value, timer, others, seen) for value in named)


def _list_named(function: FunctionType) -> list[Any]:
    """Every constant, every global, and every variable of an outer function, that its code names."""
    names, codes, found = set[str](), [function.__code__], list[Any]()
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        found += code.co_consts
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
    found += [function.__globals__[name] for name in sorted(names) if name in function.__globals__]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
    return found
