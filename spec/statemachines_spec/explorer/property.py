"""Properties: what must hold always, what must happen sometimes, what every single step must keep.

A property over global states reads each component through a `View`, a function from its local state to a small range
of integers.  Views are evaluated once for each local state, the property once for each combination of their values:
the walker only looks things up.  Put a `Sometimes` next to every `Always`: a model in which nothing happens keeps all
its promises.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError

COMBINATIONS_MAX = 1 << 20


class View(msgspec.Struct, frozen=True):
    """What a property reads of the component `actor`: `of(local)` in range(`size`)."""

    actor: str
    size: int
    of: Callable[[Any], int]


def check_views(name: str, views: tuple[View, ...]) -> None:
    """Raises `ConfigurationError` where a property reads a component through several views: the walkers look up one
    value a component, and what does not hold would be said to hold."""
    read = [view.actor for view in views]
    twice = sorted({actor for actor in read if read.count(actor) > 1})
    if twice:
        rule = "is read by several views, and one value a component is looked up: make one view of what it needs"
        raise ConfigurationError(f"property {name!r}", twice[0], rule)


class Always(msgspec.Struct, frozen=True):
    """`holds(*values of the views)` in every state; `quiet`: in every one in which no message is in flight."""

    name: str
    text: str
    views: tuple[View, ...]
    holds: Callable[..., bool]
    quiet: bool = False


class Sometimes(msgspec.Struct, frozen=True):
    """`happens(*values of the views)` in some state; `quiet`: in one in which no message is in flight."""

    name: str
    text: str
    views: tuple[View, ...]
    happens: Callable[..., bool]
    quiet: bool = False


class Stepwise(msgspec.Struct, frozen=True):
    """`holds(actor, before, event, after)` for every event that any component takes."""

    name: str
    text: str
    holds: Callable[[str, Any, Any, Any], bool]


class Eventually(msgspec.Struct, frozen=True):
    """Wherever `open(*values of the views)`, an obligation is open; it must be met once faults stop (`liveness`)."""

    name: str
    text: str
    views: tuple[View, ...]
    open: Callable[..., bool]


Property = Always | Sometimes | Stepwise

NO_ERROR = "no-error"
"""The name of the property that no step raises: the first of every system, without being declared."""


def combinations(one: Always | Sometimes) -> list[bool]:
    """For every combination of the values of the views, the first view fastest: whether it is a hit, which breaks an
    "always" and shows a "sometimes"."""
    row = []
    for values in product(*(range(view.size) for view in reversed(one.views))):
        values = values[::-1]
        try:
            row.append(not one.holds(*values) if isinstance(one, Always) else bool(one.happens(*values)))
        except Exception as error:
            raise failed_function(f"property {one.name!r}", values, error) from error
    return row


def failed_function(of: str, asked: object, error: Exception) -> ConfigurationError:
    """The error for a function of a declaration that raises; `asked`: what it was asked about."""
    return ConfigurationError(of, asked, f"its function raises {type(error).__name__}: {error}")
