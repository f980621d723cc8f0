"""Pool: the values that are going round in a test, by the name of their field.

An event made of nothing but random values is stale in almost every state: its epoch is not ours, its grant is held by
nobody.  A pool knows the values that a record (or a message seen before) holds under each name, one by one and as they
belong together, so that a strategy can aim: `grant` is often a grant that exists, with the stream and the registration
that it exists under; sometimes it is the next one, now and then something else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import Map, in_order

VALUES_MAX = 12
"""A pool keeps the smallest of so many values of a name: enough to collide with, and few enough to shrink."""


class Pool:
    """Values by field name; `add` takes them from anything made of Structs, tuples and maps."""

    __slots__ = ("ints", "names", "together")

    def __init__(self, *sources: Any) -> None:
        self.ints: dict[str, set[int]] = {}
        self.names: dict[str, set[str]] = {}
        self.together: list[dict[str, int | str]] = []
        for source in sources:
            self.add(source)

    def add(self, value: Any, name: str = "") -> None:
        """Take in every value below `value`."""
        kind = type(value)
        if kind is int:
            self.ints.setdefault(name, set()).add(value)
        elif kind is str:
            self.names.setdefault(name, set()).add(value)
        elif isinstance(value, msgspec.Struct):
            for field in value.__struct_fields__:
                self.add(getattr(value, field), shorten_name(field))
            if found := list_scalars(value):
                self.together.append(found)
        elif kind is tuple or kind is list:
            for one in value:
                self.add(one, name)
        elif kind is Map:
            for key, one in in_order(value):
                self.add(key, name)
                self.add(one, name)

    def ints_of(self, name: str) -> list[int]:
        """Values seen under `name`, and one above the greatest: the next that would be given out."""
        found = sorted(self.ints.get(shorten_name(name), ()))[:VALUES_MAX]
        return [*found, found[-1] + 1] if found and found[-1] < 2**62 else found

    def names_of(self, name: str) -> list[str]:
        """Texts seen under `name`; where there are none, all texts: a key may be called otherwise than the field."""
        found = self.names.get(shorten_name(name))
        if found is None:
            found = set().union(*self.names.values()) if self.names else set()
        return sorted(found)[:VALUES_MAX]


def list_scalars(value: msgspec.Struct) -> dict[str, int | str]:
    """The numbers and texts that belong together in `value` and in the Structs it holds, by field name."""
    found: dict[str, int | str] = {}
    for field in value.__struct_fields__:
        part = getattr(value, field)
        if isinstance(part, msgspec.Struct):
            found = list_scalars(part) | found
        elif type(part) is int or type(part) is str:
            found[shorten_name(field)] = part
    return found


def shorten_name(field: str) -> str:
    """`ping_n` -> `n`, `load_n` -> `n`: a running number is called so in every message; `streams` -> `stream`."""
    if field.endswith("_n"):
        return "n"
    return field[:-1] if field.endswith("s") and not field.endswith("_ns") else field


EMPTY = Pool()
"""Nothing is going round."""
