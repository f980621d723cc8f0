"""Lazy import: the names of a package that are imported when they are used first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def import_lazily(package: str, places: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """What `__getattr__` of a package does with a name; `places`: module -> the names that it has.

    So whoever lists the roles of `gapless node`, or uses another name, does not wait for machines and libraries.
    """
    module_of = {name: module for module, names in places.items() for name in names}

    def imported(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        return getattr(import_module(module_of[name]), name)

    return imported
