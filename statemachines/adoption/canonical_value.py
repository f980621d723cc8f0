"""Canonical values: one encoding for each value of an attribute, the same under every hash seed and in every process.

    encoder = Encoder(known)
    encoder.encode({"paid": 3})      # bytes; equal values have equal bytes

Aliases and cycles are kept: an object that is met again is written as the number of its first meeting.  The order of a
dictionary is a part of its value, since a callback may iterate it; the order of a set is not.  What has no encoding (a
lock, a socket, a generator, a file) is a `NoEncoding` that says where it hangs.
"""

from __future__ import annotations

import datetime
import decimal
import fractions
import logging
import pathlib
import re
import types
import uuid
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

DEPTH_MAX: Final = 200
"""Nesting beyond this is no value of an attribute."""

PATH_SHOWN: Final = 80

ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)})
"""Types whose values are immutable and have a `repr` that says all."""

TEXTS: Final = (
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    range,
    slice,
    pathlib.PurePath,
    re.Pattern,
)
"""Types whose `repr` says all, besides."""


class NoEncoding(Exception):
    """A value has no encoding: `path` from the attribute on, and what the value is."""

    def __init__(self, path: str, value: object, kind: str = "") -> None:
        self.path = path if len(path) <= PATH_SHOWN else f"{path[:PATH_SHOWN]}..."
        self.kind = kind or f"a {kind_name(type(value))}"
        super().__init__(f"{path} is {self.kind}")


class Encoder:
    """Encodes the values of one model (or of several that belong together), with aliases across all of them.

    `known`: id of an object -> the name that stands for it: models and machines, which are no part of a value;
    `find_name` gives the name of others that are none ("": it is a value).
    """

    def __init__(self, known: Mapping[int, str], find_name: Callable[[Any], str] | None = None) -> None:
        self._known = known
        self._find_name = find_name
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []
        """Objects that were met stay alive, so that no other one gets their id."""

    def encode(self, value: Any, path: str = "value") -> bytes:
        """The bytes of one value; raises `NoEncoding`."""
        out: list[str] = []
        self._write(value, path, out.append, 0)
        return "".join(out).encode("utf-8", "surrogatepass")

    @property
    def mutable_ids(self) -> dict[int, Any]:
        """id -> object of everything that was met and can change."""
        return {id(one): one for one in self._kept}

    def _write(self, value: Any, path: str, put: Callable[[str], None], depth: int) -> None:
        kind = type(value)
        if kind in ATOMS:
            put(f"{kind.__name__}:{value!r};")
            return
        known = self._known.get(id(value))
        if known is not None:
            put(f"<{known}>;")
            return
        if depth > DEPTH_MAX:
            raise NoEncoding(path, value, f"{DEPTH_MAX} objects within one another")
        if isinstance(value, Enum):
            put(f"{kind_name(kind)}.{value.name};")
        elif kind in TEXTS or isinstance(value, pathlib.PurePath):
            put(f"{kind_name(kind)}:{value!r};")
        elif isinstance(value, type):
            put(f"class {kind_name(value)};")
        elif isinstance(value, types.ModuleType):
            put(f"module {value.__name__};")
        elif isinstance(value, logging.Logger):
            put(f"logger {value.name};")
        elif self._find_name is not None and (name := self._find_name(value)):
            put(f"<{name}>;")
        else:
            self._write_once(value, kind, path, put, depth)

    def _write_once(self, value: Any, kind: type[Any], path: str, put: Callable[[str], None], depth: int) -> None:
        """What can be met again: it is numbered, unless it is a tuple or a frozen set, which are equal by content."""
        if kind not in (tuple, frozenset):
            number = self._seen.get(id(value))
            if number is not None:
                put(f"@{number};")
                return
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
        put(f"{kind_name(kind)}(")
        self._write_parts(value, kind, path, put, depth + 1)
        put(")")

    def _write_parts(self, value: Any, kind: type[Any], path: str, put: Callable[[str], None], depth: int) -> None:
        if isinstance(value, tuple | list | deque):
            for place, one in enumerate(value):
                self._write(one, f"{path}[{place}]", put, depth)
            if isinstance(value, deque):
                put(f"maxlen:{value.maxlen};")
        elif isinstance(value, dict):
            for key, one in value.items():
                self._write(key, f"a key of {path}", put, depth)
                self._write(one, f"{path}[{_short(key)}]", put, depth)
            if hasattr(value, "default_factory"):
                self._write(value.default_factory, f"{path}.default_factory", put, depth)
        elif isinstance(value, set | frozenset):
            for text in sorted(self._apart(one, path, depth) for one in value):
                put(text)
        elif isinstance(value, bytearray | array):
            put(f"{value!r};")
        elif isinstance(value, types.MethodType):
            put(f"method {value.__func__.__qualname__};")
            self._write(value.__self__, f"{path}.__self__", put, depth)
        elif isinstance(value, types.FunctionType):
            self._write_function(value, path, put, depth)
        elif isinstance(value, types.BuiltinFunctionType):
            put(f"{value.__module__}.{value.__qualname__};")
            owner = value.__self__
            if owner is not None and not isinstance(owner, types.ModuleType):
                self._write(owner, f"{path}.__self__", put, depth)
        elif isinstance(value, partial):
            for part in (value.func, value.args, value.keywords):
                self._write(part, f"{path} (partial)", put, depth)
        elif not is_readable(kind):
            raise NoEncoding(path, value)
        elif isinstance(value, int | float | complex | str | bytes):
            put(f"{_base_repr(value)};")
        elif isinstance(value, BaseException):
            self._write(value.args, f"{path}.args", put, depth)
        for name, one in own_attributes(value):
            put(f"{name}=")
            self._write(one, f"{path}.{name}", put, depth)

    def _write_function(self, value: Any, path: str, put: Callable[[str], None], depth: int) -> None:
        put(f"{value.__module__}.{value.__qualname__}:{value.__code__.co_firstlineno};")
        for name, held in closure_of(value):
            put(f"{name}=")
            self._write(held, f"{name} in the closure of {path}", put, depth)

    def _apart(self, value: Any, path: str, depth: int) -> str:
        """A member of a set.  Members that are met elsewhere too would be numbered by the order of the set: members are
        hashable, so nearly always immutable, and each is written in full."""
        out: list[str] = []
        inner = Encoder(self._known, self._find_name)
        inner._write(value, f"a member of {path}", out.append, depth)
        self._kept += inner._kept
        return "".join(out)


def closure_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a closure holds."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def own_attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of the object itself, of its dictionary and its slots, by name."""
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return
    yield from sorted(read_attributes(value).items(), key=lambda item: str(item[0]))


def read_attributes(value: Any) -> dict[str, Any]:
    """The same as they come."""
    found: dict[str, Any] = dict(getattr(value, "__dict__", None) or {})
    for name in slot_names(type(value)):
        try:
            found[name] = getattr(value, name)
        except AttributeError:
            continue
    return found


_SLOTS: Final[WeakKeyDictionary[type[Any], tuple[str, ...]]] = WeakKeyDictionary()


def slot_names(kind: type[Any]) -> tuple[str, ...]:
    """The names of the slots of a class and its bases, as attributes are read."""
    names = _SLOTS.get(kind)
    if names is None:
        names = _SLOTS[kind] = _find_slots(kind)
    return names


def _find_slots(kind: type[Any]) -> tuple[str, ...]:
    names = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__"):
                private = slot.startswith("__") and not slot.endswith("__")
                names.append(f"_{base.__name__.lstrip('_')}{slot}" if private else slot)
    return tuple(names)


_PLAIN_BASES: Final = (
    *(OrderedDict, defaultdict, deque, array, bytearray, tuple, list, dict, set, frozenset),
    *(int, float, complex, str, bytes, object),
)
"""Types of C whose content is written, the special ones first."""

_POINTER: Final = 8


def is_readable(kind: type[Any]) -> bool:
    """Whether all that an object of the class has is in its content and its attributes.

    A class of Python adds to the size of its base one pointer for its dictionary, one for weak references and one for
    each slot; what is larger keeps something where nobody can read it.
    """
    base = next(one for one in kind.__mro__ if one in _PLAIN_BASES or _is_exception_of_c(one))
    readable = len(slot_names(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    return bool(base.__itemsize__) or kind.__basicsize__ <= base.__basicsize__ + _POINTER * readable


def _base_repr(value: Any) -> str:
    base = next(one for one in (int, float, complex, str, bytes) if isinstance(value, one))
    return base.__repr__(value)


def _is_exception_of_c(kind: type[Any]) -> bool:
    return issubclass(kind, BaseException) and kind.__module__ == "builtins"


def kind_name(kind: type[Any]) -> str:
    """A class as people name it: without `builtins`."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def hide_addresses(text: str) -> str:
    """The text without the addresses of objects, which are others each time."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _short(key: object) -> str:
    text = repr(key)
    return text if len(text) < 40 else f"{text[:37]}..."
