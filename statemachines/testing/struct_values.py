"""Struct values: one value of any Struct type, field by field, from whatever decides: Hypothesis, or a seeded
generator.

    example(Grant, Random(7))                    # the same seed, the same value, without Hypothesis

`strategies` is the same for Hypothesis, and says what is drawn.

Pool: the values that are going round in a test, by the name of their field.

An event made of nothing but random values is stale in almost every state: its epoch is not ours, its grant is held by
nobody.  A pool knows the values that a record (or a message seen before) holds under each name, one by one and as they
belong together, so that a strategy can aim: `grant` is often a grant that exists, with the stream and the registration
that it exists under; sometimes it is the next one, now and then something else.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from statemachines.kernel import ConfigurationError, Fifo, GaplessError, Map, in_order
from statemachines.testing.protocol import Values, values_of

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


S = TypeVar("S", bound=msgspec.Struct)

MANY = 3
"""Tuples, lists and maps have at most so many items."""

TRIES = 5
"""So often a value is drawn that its type then refuses, before something else is tried."""

MS = 1_000_000
HIGHEST = 2**63 - 1

SMALL = (0, 1, 2, 3, 4, 5)
INTS: dict[str, tuple[int, ...]] = {
    "last": (*SMALL, 9, 17),
    "limit": (1, 2, 5, 100),
    "count": (1, 2, 5, 25),
    "incarnation": (1, 2, 3),
}
"""Numbers by the name of their field where no protocol says otherwise; other fields have `SMALL`, times (`_ns`)
`TIMES`."""

TIMES = (0, 1, 1_000 * MS, 5_000 * MS, 60_000 * MS)
LETTERS = ("a", "b", "c")
BYTES = (b"", b"a", b"four", b"sixteen or more!!")

HOSTILE_INTS = (-1, 0, 1, 2**31, HIGHEST, -(2**63))
HOSTILE_NAMES = ("", "a", "\0", "é/+/#", "x" * 300)


class ValueRefused(GaplessError):
    """A type's own check refused whatever was drawn."""


class Choose(Protocol):
    """Who decides."""

    def index(self, count: int) -> int:
        """0 to `count` - 1; the lowest is the simplest."""

    def between(self, low: int, high: int) -> int:
        """`low` to `high`."""


class Chance:
    """A seeded generator decides."""

    def __init__(self, chance: Random) -> None:
        self.index = chance.randrange
        self.between = chance.randint


def draw_example(
    kind: type[S], chance: Random, pool: Pool = EMPTY, *, hostile: bool = False, values: Values | None = None
) -> S:
    """One value of `kind`.  Raises `Refused` for a type whose own check refuses what is drawn."""
    return ValueDrawing(Chance(chance), pool, hostile, values).struct(kind)


class MapType(inspect.Type):
    """What `msgspec.inspect` does not tell of a map: the types of its keys and values."""

    key: inspect.Type
    item: inspect.Type


class Field(NamedTuple):
    """A field of a Struct; `required`: it has no default."""

    name: str
    type: inspect.Type
    required: bool


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a Struct, in order."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    hints = get_type_hints(kind)
    return tuple(Field(field.name, type_of(field.type, hints[field.name]), field.required) for field in info.fields)


def type_of(kind: inspect.Type, hint: Any) -> inspect.Type:
    """The type of a field; a map with the types of its keys and values."""
    if isinstance(kind, inspect.CustomType) and (get_origin(hint) or hint) is Map:
        key, item = get_args(hint) or (str, int)
        return MapType(inspect.type_info(key), type_of(inspect.type_info(item), item))
    return kind


class ValueDrawing:
    """One value being drawn; `values` holds for all of it (None: each type goes by its own protocol)."""

    def __init__(self, choose: Choose, pool: Pool, hostile: bool, values: Values | None = None) -> None:
        self._choose = choose
        self._pool = pool
        self._hostile = hostile
        self._given = values
        self._own = values or Values()

    def struct(self, kind: type[S], bare: bool = False) -> S:
        """A whole Struct; with `bare` only the fields that have no default.  Hostile or not, what the type's own check
        refuses is not drawn: nobody could make it, or decode it."""
        outer = self._own
        self._own = self._given or values_of(kind)
        try:
            return self._struct(kind, bare)
        finally:
            self._own = outer

    def _struct(self, kind: type[S], bare: bool) -> S:
        if kind in self._own.choices:
            chosen: S = self._one_of(self._own.choices[kind])
            return chosen
        if kind is Fifo:
            return self._fifo("")  # type: ignore[return-value]
        fields = [field for field in fields_of(kind) if field.required or not bare]
        for _ in range(TRIES):
            values = self._values(fields)
            try:
                return kind(**values)
            except (ValueError, ConfigurationError):
                self._hostile = False
        raise ValueRefused(f"{kind.__name__} refused {TRIES} values; give some that it takes as `Values.choices`")

    def _values(self, fields: list[Field]) -> dict[str, Any]:
        together = self._pool.together
        near = together[chosen - 1] if together and (chosen := self._choose.index(len(together) + 1)) else {}
        values = {}
        for field in fields:
            known = near.get(shorten_name(field.name))
            if isinstance(field.type, inspect.IntType):
                low, high = _bounds_of(field.type)
                fits = type(known) is int and low <= known <= high
            else:
                fits = type(known) is str
            if known is not None and fits and self._choose.index(4) < 3:
                values[field.name] = known
            else:
                values[field.name] = self.value(field.type, field.name)
        if not self._hostile:
            _put_in_order(values)
        return values

    def value(self, kind: inspect.Type, name: str) -> Any:
        """A value of any type that a field may have."""
        match kind:
            case inspect.IntType():
                return self._int(kind, name)
            case inspect.StrType():
                return self._one_of(self._names(name))
            case inspect.BoolType():
                return self._one_of((False, True))
            case inspect.FloatType():
                return self._one_of((0.0, 0.5, 1.0))
            case inspect.BytesType():
                return self._one_of(BYTES)
            case inspect.NoneType():
                return None
            case inspect.EnumType():
                return self._one_of(tuple(kind.cls))
            case inspect.LiteralType():
                return self._one_of(kind.values)
            case inspect.StructType() if kind.cls is Fifo:
                return self._fifo(name)
            case inspect.StructType():
                return self.struct(kind.cls)
            case inspect.UnionType():
                return self.value(self._one_of(kind.types), name)
            case inspect.TupleType():
                return tuple(self.value(item, name) for item in kind.item_types)
            case inspect.VarTupleType():
                return tuple(self._many(kind.item_type, name, kind.min_length or 0))
            case inspect.ListType():
                return self._many(kind.item_type, name)
            case MapType():
                return self._map(kind, name)
        raise TypeError(
            f"no strategy for the field {name!r} of type {kind!r}: give values of its Struct as `Values.choices`"
        )

    def _int(self, kind: inspect.IntType, name: str) -> int:
        low, high = _bounds_of(kind)
        choices = [number for number in self._ints(name) if low <= number <= high]
        return int(self._one_of(choices)) if choices else self._choose.between(low, high)

    def _ints(self, name: str) -> list[int]:
        if self._hostile:
            return [*self._pool.ints_of(name), *HOSTILE_INTS]
        usual = _said_of(name, self._own.ints) or INTS.get(name, TIMES if name.endswith("_ns") else SMALL)
        return list(usual) if name in self._own.closed else [*2 * self._pool.ints_of(name), *usual]

    def _names(self, name: str) -> list[str]:
        if self._hostile:
            return [*self._pool.names_of(name), *HOSTILE_NAMES]
        return [*2 * self._pool.names_of(name), *(_said_of(name, self._own.names) or LETTERS)]

    def _many(self, kind: inspect.Type, name: str, least: int = 0) -> list[Any]:
        return [self.value(kind, name) for _ in range(max(least, self._choose.index(MANY + 1)))]

    def _map(self, kind: MapType, name: str) -> Map[Any, Any]:
        many = range(self._choose.index(MANY + 1))
        return Map([(self.value(kind.key, name), self.value(kind.item, name)) for _ in many])

    def _fifo(self, name: str) -> Fifo:
        fifo = Fifo()
        for item in self._many(inspect.StrType(), name):
            fifo = fifo.push(item)
        return fifo

    def _one_of(self, choices: Any) -> Any:
        return choices[self._choose.index(len(choices))]


def _said_of(name: str, by_name: dict[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    """What a protocol says of a field, by its name or the singular of it."""
    return by_name.get(name) or by_name.get(shorten_name(name), ())


def _bounds_of(kind: inspect.IntType) -> tuple[int, int]:
    low = -(2**63) if kind.ge is None else kind.ge
    high = HIGHEST if kind.le is None else kind.le
    return low if kind.gt is None else max(low, kind.gt + 1), high if kind.lt is None else min(high, kind.lt - 1)


def _put_in_order(values: dict[str, Any]) -> None:
    """A range begins before it ends."""
    first, last = values.get("first"), values.get("last")
    if type(first) is int and type(last) is int and last < first:
        values["first"], values["last"] = last, first
