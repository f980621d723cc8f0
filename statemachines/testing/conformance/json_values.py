"""JSON values: records, events and requests as objects with the names of their fields."""

from __future__ import annotations

from base64 import b64encode
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from statemachines.kernel import Event, Map, Request, in_order, name_of


def make_plain(value: Any) -> Any:
    """A value as JSON has it: objects, lists, texts, numbers; bytes are texts in Base64.  Events and tagged Structs
    have their name as `type`."""
    if isinstance(value, msgspec.Struct):
        fields = {field: make_plain(getattr(value, field)) for field in value.__struct_fields__}
        for field in _fields_of_pairs(type(value)):
            fields[field] = fields[field] or []
        return {"type": name_of(type(value)), **fields} if has_name(type(value)) else fields
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Map):
        items = [(make_plain(key), make_plain(one)) for key, one in in_order(value)]
        return dict(items) if all(isinstance(key, str) for key, _ in items) else items
    if isinstance(value, tuple):
        return tuple([make_plain(one) for one in value])  # as `msgspec.to_builtins` has it: the two are compared
    if isinstance(value, list):
        return [make_plain(one) for one in value]
    return value


def has_name(kind: type[Any]) -> bool:
    """Whether an object of it says which it is."""
    return issubclass(kind, Event | Request) or is_tagged(kind)


def is_tagged(kind: type[Any]) -> bool:
    """Whether a Struct says its name in its own fields."""
    return bool(kind.__struct_config__.tag)


@cache
def _fields_of_pairs(kind: type[Any]) -> tuple[str, ...]:
    """The fields that hold maps whose keys are no texts: JSON has them as lists of pairs, empty ones, too."""
    if not any(field.type is Map or get_origin(field.type) is Map for field in msgspec.structs.fields(kind)):
        return ()
    hints = get_type_hints(kind)
    return tuple(
        field
        for field in kind.__struct_fields__
        if get_origin(hints[field]) is Map and get_args(hints[field])[0] is not str
    )
