"""JSON values: records, events and requests as objects with the names of their fields."""

from __future__ import annotations

from base64 import b64encode
from enum import Enum
from typing import Any

import msgspec

from statemachines.kernel import Event, Map, Request, in_order, name_of


def plain(value: Any) -> Any:
    """A value as JSON has it: objects, lists, texts, numbers; bytes are texts in Base64.  Events have their name as
    `type`."""
    if isinstance(value, msgspec.Struct):
        fields = {field: plain(getattr(value, field)) for field in value.__struct_fields__}
        return {"type": name_of(type(value)), **fields} if isinstance(value, Event | Request) else fields
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Map):
        items = [(plain(key), plain(one)) for key, one in in_order(value)]
        return dict(items) if all(isinstance(key, str) for key, _ in items) else items
    if isinstance(value, tuple):
        return tuple([plain(one) for one in value])  # as `msgspec.to_builtins` has it: the two are compared
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value
