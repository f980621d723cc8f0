"""Events: everything that can happen to a machine, as frozen values.

Four kinds, by who is at fault when one arrives where it is illegal: a `Message` comes from a peer, a `Call` from
the host application, an `Answer` from a service, a `TimerFired` from the driver's clock.  The name of an event, as it
stands in traces, diagrams and on the wire, is its class name in snake case (`LockGranted` -> `lock_granted`).

An event about numbered things (offsets, samples, positions) carries a contiguous range `first`..`last`, so that one
step can stand for a batch.

Traces have columns `key`, `term`, `grant`, `first` and `last`, which are filled from the fields of an event that are
called so; where they are called otherwise, its class says which: `columns: ClassVar = TraceColumns(key="stream")`.
What no field holds as a column can have it, a property does.
"""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

import msgspec

from statemachines.kernel.errors import DeclarationError


def snake(name: str) -> str:
    """`LockGranted` -> `lock_granted`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


class TraceColumns(msgspec.Struct, frozen=True):
    """The fields of an event, or properties of its class, that fill the columns of a trace; "": none does.

    `key`: what it is about (a stream, a subject, a lock), a text; whole numbers are `term` (an epoch), `grant`, and the
    range `first`..`last` (or a progress, in `first`).
    """

    key: str = "key"
    term: str = "term"
    grant: str = "grant"
    first: str = "first"
    last: str = "last"


class Event(msgspec.Struct, frozen=True, gc=False):
    """Something that happened: the input of a step."""

    columns: ClassVar[TraceColumns] = TraceColumns()
    parts: ClassVar[tuple[Event, ...]] = ()
    """Of an event that carries several: these, of which a trace has a row each."""


class Message(Event, frozen=True, gc=False, tag=snake, array_like=True):
    """From a peer, over a network that may lose, duplicate, delay and reorder."""


class Call(Event, frozen=True, gc=False):
    """From the host application."""


class Answer(Event, frozen=True, gc=False):
    """From a service, to a request of ours."""


class TimerFired(Event, frozen=True, gc=False):
    """A timer of ours is due.  `key` names the child instance it belongs to ("" for the machine itself)."""

    columns: ClassVar[TraceColumns] = TraceColumns(key="")  # the instance is in a column of its own

    key: str = ""


def name_of(event: type[Any]) -> str:
    """The name of an event (or request) type in traces, diagrams and on the wire."""
    name = _NAMES.get(event)
    if name is None:
        name = _NAMES[event] = snake(event.__name__)
    return name


_NAMES: dict[type[Any], str] = {}


def column_fields(kind: type[Any]) -> tuple[str, ...]:
    """The fields or properties of an event (or request) type that fill key, term, grant, first and last; "": none does.

    A property is meant only where the class says so.  Raises `DeclarationError` where its class names what is not
    there, or holds what the column cannot.
    """
    columns: TraceColumns = getattr(kind, "columns", TraceColumns())
    usual, fields = TraceColumns(), _field_types(kind)
    found = []
    for column in TraceColumns.__struct_fields__:
        name = getattr(columns, column)
        wanted = str if column == "key" else int
        is_said = name != getattr(usual, column)
        hint = fields.get(name) or (_property_type(kind, name) if is_said else None)
        fits = hint is not None and _is_a(hint, wanted)
        if name and not fits and is_said:
            what = f"which is no {wanted.__name__}" if hint is not None else "which it has not"
            raise DeclarationError(f"{name_of(kind)}: its column {column} is filled from {name!r}, {what}")
        found.append(name if fits else "")
    return tuple(found)


def _field_types(kind: type[Any]) -> dict[str, Any]:
    try:
        return {field.name: field.type for field in msgspec.structs.fields(kind)}
    except (NameError, TypeError):  # hints that cannot be resolved (a class within a function), or no struct
        return dict.fromkeys(getattr(kind, "__struct_fields__", ()), Any)


def _property_type(kind: type[Any], name: str) -> Any:
    """What the property of this name says it gives; None where there is none."""
    found = getattr(kind, name, None)
    return get_type_hints(found.fget).get("return", Any) if isinstance(found, property) else None


def _is_a(hint: Any, wanted: type) -> bool:
    """Whether every value of this type is one of `wanted`, or None."""
    if get_origin(hint) is Annotated:
        return _is_a(get_args(hint)[0], wanted)
    if get_origin(hint) in (Union, UnionType):
        return all(one is type(None) or _is_a(one, wanted) for one in get_args(hint))
    return hint is Any or (isinstance(hint, type) and issubclass(hint, wanted) and hint is not bool)
