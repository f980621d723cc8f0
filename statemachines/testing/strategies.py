"""Strategies: values of every event, message, request and record type, found by looking at their fields.

    from hypothesis import given, strategies as st

    @given(st.from_type(Grant))                  # works wherever gapless and Hypothesis are installed
    def test_something(grant): ...

    of(Grant, Pool(record))                      # aimed: the numbers and ids that `record` holds turn up often
    of(Grant, hostile=True)                      # of the right types, and wrong in every other way
    register(MyEvent)                            # the same for a type of your own

Values are valid by construction: numbers are small so that they collide, `first <= last`, a progress is the end of the
stream now and then, constraints of `msgspec.Meta` hold, and what a type's own check refuses is not drawn.  Types in
`CHOICES` are drawn whole.  Bad input is one call away with `hostile=True`: only what msgspec itself would decode.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import reject
from hypothesis import strategies as st
from msgspec import inspect

from statemachines import registry
from statemachines.cursor_recovery.memory import Queue
from statemachines.kernel import ConfigurationError, Event, Fifo, Fsm, Map
from statemachines.missed_samples.source import Recovery
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.testing.pool import EMPTY, Pool, short

S = TypeVar("S", bound=msgspec.Struct)
Draw = Callable[[st.SearchStrategy[Any]], Any]

MANY = 3
"""Tuples, lists and maps have at most so many items."""

TRIES = 5
"""So often a value is drawn that its type then refuses, before Hypothesis is told to try something else."""

MS = 1_000_000
SMALL = (0, 1, 2, 3, 4, 5)
INTS: dict[str, tuple[int, ...]] = {
    "progress": (*SMALL, END_OF_STREAM),
    "last": (*SMALL, 9, 17),
    "limit": (1, 2, 5, 100),
    "count": (1, 2, 5, 25),
    "incarnation": (1, 2, 3),
    "start_ns": (0, -1, 1_000 * MS),
    "resend_ns": (1_000 * MS,),
    "revoke_timeout_ns": (10_000 * MS,),
    "poll_ns": (20 * MS,),
}
"""Numbers by the name of their field, the simplest first; other fields have `SMALL`, times (`_ns`) have `TIMES`."""

TIMES = (0, 1, 1_000 * MS, 5_000 * MS, 60_000 * MS)

NAMES: dict[str, tuple[str, ...]] = {
    "borrower": ("consumer-1~1/1", "consumer-2~1/1"),
    "leader": ("leader-1~1/1", "leader-2~1/1"),
    "stream": ("0.0/a", "1.0/b", "2.0/c"),
    "group": ("g",),
    "filter": ("#", "a/+"),
    "topic": ("a", "b", "a/b"),
    "owner": ("consumer-1~1/1", "consumer-2~1/1"),
    "registries": ("leader-1",),
}
"""Texts by the name of their field; other fields have `LETTERS`."""

LETTERS = ("a", "b", "c")
BYTES = (b"", b"a", b"four", b"sixteen or more!!")

HOSTILE_INTS = (-1, 0, 1, 2**31, END_OF_STREAM, -(2**63))
HOSTILE_NAMES = ("", "a", "\0", "é/+/#", "x" * 300)

CHOICES: dict[type[Any], tuple[Any, ...]] = {
    Configuration: (
        Configuration(),
        Configuration(exclusive=False),
        Configuration(validity_ms=9_000, clock_drift=0.0, claim_ttl_ms=30_000),
    ),
    Recovery: (
        Recovery(),
        Recovery(past=True, reliable=False, retries=1, pending=3, history_limit=2),
        Recovery(retries=0, backoff_ms=1, backoff_max_ms=1, period_ms=500, retention_ms=1_000),
    ),
    Queue: (Queue(), Queue(capacity=32, read_cursors=1, write_cursors=1), Queue(threshold_only=True)),
}
"""Types of which only certain values make sense together."""


def of(kind: type[S], pool: Pool = EMPTY, *, hostile: bool = False) -> st.SearchStrategy[S]:
    """Values of the Struct `kind`; `pool` is what to aim at; `hostile`: any value of the right types."""
    return _structs(kind, pool, hostile, False)


def starting(kind: type[S]) -> st.SearchStrategy[S]:
    """Records as a machine begins with them: what must be given is drawn, everything else is at its default."""
    return _structs(kind, EMPTY, False, True)


def events(
    fsm: Fsm[Any], pool: Pool = EMPTY, *, hostile: bool = False, leave_out: tuple[type[Event], ...] = ()
) -> st.SearchStrategy[Event]:
    """Events of the alphabet of `fsm`, without those of the types `leave_out`."""
    kinds = [kind for kind in fsm.alphabet if not issubclass(kind, leave_out)]
    return st.sampled_from(kinds).flatmap(lambda kind: of(kind, pool, hostile=hostile))


def register(*kinds: type[msgspec.Struct]) -> None:
    """From now on `st.from_type` (and what is built on it) draws these types with `of`."""
    for kind in kinds:
        st.register_type_strategy(kind, of(kind))


def register_all() -> None:
    """Every event, request and record of every protocol, and maps: Hypothesis calls this when it is imported."""
    for kind in shipped():
        st.register_type_strategy(kind, of(kind))
    st.register_type_strategy(Map, _maps)


def shipped() -> tuple[type[msgspec.Struct], ...]:
    """The Struct types that the modules of the catalogued protocols declare, by module and name."""
    for protocol in registry.protocols():
        package = import_module(f"statemachines.{protocol.name}")
        for found in iter_modules(package.__path__, f"{package.__name__}."):
            import_module(found.name)  # all of them: what is known must not depend on what was imported before
    packages = tuple(f"statemachines.{protocol.name}." for protocol in registry.protocols())
    types = [
        value
        for name, module in sorted(sys.modules.items())
        if name.startswith(packages)
        for _, value in sorted(vars(module).items())
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == name
    ]
    return (*dict.fromkeys(types), Fifo)


# -- drawing --------------------------------------------------------------------------------------------------------


@st.composite
def _structs(draw: Draw, kind: type[S], pool: Pool, hostile: bool, bare: bool) -> S:
    return _Drawing(draw, pool, hostile).struct(kind, bare)


@st.composite
def _maps(draw: Draw, kind: Any) -> Any:
    return _Drawing(draw, EMPTY, False).value(_told(inspect.type_info(kind), kind), "")


@cache
def _index(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


class _MapType(inspect.Type):
    """What `msgspec.inspect` does not tell of a map: the types of its keys and values."""

    key: inspect.Type
    item: inspect.Type


class _Field(NamedTuple):
    name: str
    type: inspect.Type
    required: bool


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[_Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    hints = get_type_hints(kind)
    return tuple(_Field(field.name, _told(field.type, hints[field.name]), field.required) for field in info.fields)


def _told(kind: inspect.Type, hint: Any) -> inspect.Type:
    """The type of a field; a map with the types of its keys and values."""
    if isinstance(kind, inspect.CustomType) and (get_origin(hint) or hint) is Map:
        key, item = get_args(hint) or (str, int)
        return _MapType(inspect.type_info(key), inspect.type_info(item))
    return kind


class _Drawing:
    """One value being drawn."""

    def __init__(self, draw: Draw, pool: Pool, hostile: bool) -> None:
        self._draw = draw
        self._pool = pool
        self._hostile = hostile

    def struct(self, kind: type[S], bare: bool = False) -> S:
        """A whole Struct; with `bare` only the fields that have no default.  Hostile or not, what the type's own check
        refuses is not drawn: nobody could make it, or decode it."""
        if kind in CHOICES:
            chosen: S = self._one_of(CHOICES[kind])
            return chosen
        if kind is Fifo:
            return self._fifo()  # type: ignore[return-value]
        fields = [field for field in _fields(kind) if field.required or not bare]
        for _ in range(TRIES):
            values = self._values(fields)
            try:
                return kind(**values)
            except (ValueError, ConfigurationError):
                self._hostile = False
        return reject()

    def _values(self, fields: list[_Field]) -> dict[str, Any]:
        together = self._pool.together
        near = together[chosen - 1] if together and (chosen := self._draw(_index(len(together) + 1))) else {}
        values = {}
        for field in fields:
            known = near.get(short(field.name))
            fits = type(known) is int if isinstance(field.type, inspect.IntType) else type(known) is str
            if known is not None and fits and self._draw(_index(4)) < 3:
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
            case _MapType():
                return self._map(kind, name)
        raise TypeError(f"no strategy for the field {name!r} of type {kind!r}: add its Struct to CHOICES")

    def _int(self, kind: inspect.IntType, name: str) -> int:
        low = -(2**63) if kind.ge is None else kind.ge
        low = low if kind.gt is None else max(low, kind.gt + 1)
        high = END_OF_STREAM if kind.le is None else kind.le
        high = high if kind.lt is None else min(high, kind.lt - 1)
        choices = [number for number in self._ints(name) if low <= number <= high]
        return int(self._one_of(choices)) if choices else int(self._draw(st.integers(low, high)))

    def _ints(self, name: str) -> list[int]:
        if self._hostile:
            return [*self._pool.ints_of(name), *HOSTILE_INTS]
        usual = INTS.get(name, TIMES if name.endswith("_ns") else SMALL)
        return [*2 * self._pool.ints_of(name), *usual]

    def _names(self, name: str) -> list[str]:
        if self._hostile:
            return [*self._pool.names_of(name), *HOSTILE_NAMES]
        return [*2 * self._pool.names_of(name), *NAMES.get(name, LETTERS)]

    def _many(self, kind: inspect.Type, name: str, least: int = 0) -> list[Any]:
        return [self.value(kind, name) for _ in range(max(least, self._draw(_index(MANY + 1))))]

    def _map(self, kind: _MapType, name: str) -> Map[Any, Any]:
        many = range(self._draw(_index(MANY + 1)))
        return Map([(self.value(kind.key, name), self.value(kind.item, name)) for _ in many])

    def _fifo(self) -> Fifo:
        fifo = Fifo()
        for item in self._many(inspect.StrType(), "stream"):
            fifo = fifo.push(item)
        return fifo

    def _one_of(self, choices: Any) -> Any:
        return choices[self._draw(_index(len(choices)))]


def _put_in_order(values: dict[str, Any]) -> None:
    """A range begins before it ends."""
    first, last = values.get("first"), values.get("last")
    if type(first) is int and type(last) is int and last < first:
        values["first"], values["last"] = last, first
