"""Message tables: how docs/wire.md writes the fields of a message, made from its declaration."""

import types
from typing import Annotated, Union, get_args, get_origin, get_type_hints

import msgspec

from statemachines.kernel import name_of

PLAIN = {str: "text", int: "integer", bool: "boolean", bytes: "bytes"}


def describe_type(hint):
    """A type in the words of the page."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return describe_bounds(args[0], args[1])
    if origin in (Union, types.UnionType):
        return " or ".join("nil" if one is type(None) else describe_type(one) for one in args)
    if origin is tuple:
        return f"list of {describe_type(args[0])}"
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return name_of(hint)
    return PLAIN[hint]


BOUNDS = {(0, 2**63 - 1): "number", (0, 2**61): "count"}


def describe_bounds(kind, meta):
    if (meta.ge, meta.le) in BOUNDS:
        return BOUNDS[meta.ge, meta.le]
    if kind in (str, bytes):
        return f"{PLAIN[kind]} (up to {meta.max_length})"
    if get_origin(kind) is tuple:
        return f"{describe_type(kind)} (up to {meta.max_length})"
    return f"{meta.ge}..{describe_number(meta.le)}" if meta.le is not None else f"{meta.ge} or more"


def describe_number(value):
    for power in range(17, 64):
        if value == 2**power:
            return f"2^{power}"
        if value == 2**power - 1:
            return f"2^{power}-1"
    return f"{value}"


def describe_fields(kind):
    """The fields of a message or of a list in one, in order."""
    hints = get_type_hints(kind, include_extras=True)
    said = []
    for field in msgspec.structs.fields(kind):
        default = "" if field.required else f" = {describe_default(field.default)}"
        said.append(f"`{field.name}` {describe_type(hints[field.name])}{default}")
    return ", ".join(said)


def describe_default(value):
    return {None: "nil", (): "[]", "": '""', b"": "no bytes"}.get(value, str(value))


def plain_json(message):
    """A message as the page shows it: JSON, bytes as an object with their hex digits."""
    found = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return msgspec.json.encode(shown(found)).decode()


def shown(value):
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    return [shown(one) for one in value] if isinstance(value, list) else value
