"""Record fields: whether a record can be written down and read again, and is the same wherever it is.

A record is a frozen struct of what never changes and has one order: numbers, strings, bytes, enumerations, None,
tuples, `Map`, and frozen structs of these.  A list, a dictionary and a set can change.  The order of a set, frozen or
not, differs from process to process.  What `Any` holds cannot be read again as what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from statemachines.kernel.pmap import Map

PLAIN = (bool, int, float, str, bytes, NoneType, Enum)
INSTEAD: dict[Any, str] = {
    list: "a tuple",
    dict: "a Map",
    set: "a tuple in order or a Map",
    frozenset: "a tuple in order or a Map",
}


def find_unfit(record: type[Any]) -> str:
    """The first field that stands in the way, with the mend ("": none does)."""
    return next(_list_unfit(record, record.__name__, set()), "")


def _list_unfit(kind: Any, where: str, seen: set[Any]) -> Iterator[str]:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return
    if origin is Annotated:
        kind = get_args(kind)[0]
        origin = get_origin(kind) or kind
    if origin in (Union, UnionType, tuple, Map) and get_args(kind):
        for one in get_args(kind):
            if one is not Ellipsis:
                yield from _list_unfit(one, where, seen)
    elif not isinstance(origin, type) or origin in (tuple, Map, object, Any):
        yield f"{where} does not say what it holds; name the types, as tuple[int, ...] does"
    elif issubclass(origin, msgspec.Struct) and origin.__struct_config__.frozen:
        if origin not in seen:
            seen.add(origin)
            for field in msgspec.structs.fields(origin):
                yield from _list_unfit(field.type, f"{origin.__name__}.{field.name}", seen)
    elif not issubclass(origin, PLAIN):
        yield f"{where} holds a {origin.__name__}; make it {INSTEAD.get(origin, 'a frozen struct')}"
