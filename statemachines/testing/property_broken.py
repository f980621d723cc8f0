"""PropertyBroken: what tests of whole systems raise, whichever way they drive them."""

from __future__ import annotations

from functools import cache
from typing import ClassVar


class PropertyBroken(AssertionError):
    """A property does not hold; each has a type of its own, so that none is shrunk to another.  `what` names it."""

    what: ClassVar[str] = ""


@cache
def broken_type(name: str) -> type[PropertyBroken]:
    """The error for one property."""
    return type("PropertyBroken", (PropertyBroken,), {"what": name, "__module__": PropertyBroken.__module__})
