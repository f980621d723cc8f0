"""BrokenProperty: a property that does not hold, as an observer of a protocol says it.

An observer is a frozen value.  `observe` takes what happened, and returns the observer behind it and what broke there:

    seen, broken = seen.observe("server-1", Delivered(...))

Simulator, explorer and Hypothesis judge by the same observers.
"""

from __future__ import annotations

import msgspec


class BrokenProperty(msgspec.Struct, frozen=True, gc=False):
    """The property called `name` (of `spec/<protocol>/properties.md`) does not hold; `detail` says what happened."""

    name: str
    detail: str
