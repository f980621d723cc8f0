"""Strategies: values of every event, message, request and record type, found by looking at their fields.

    from hypothesis import given, strategies as st

    @given(st.from_type(Grant))                  # works wherever gapless and Hypothesis are installed
    def test_something(grant): ...

    of(Grant, Pool(record))                      # aimed: the numbers and ids that `record` holds turn up often
    of(Grant, hostile=True)                      # of the right types, and wrong in every other way
    register(MyRecord)                           # `st.from_type` for a type that no protocol declares

Values are valid by construction: numbers are small so that they collide, `first <= last`, constraints of `msgspec.Meta`
hold, and what a type's own check refuses is not drawn.  What a protocol says of its fields (`TestProtocol.values`) is
drawn for its types, whatever else is loaded.  Bad input is one call away with `hostile=True`: only what msgspec itself
would decode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec
from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.strategies._internal import types  # the one place to be asked for types that are not loaded yet
from msgspec import inspect

from statemachines.kernel import Answer, Call, ConfigurationError, Event, Fifo, Fsm, Map, Message, Request, TimerFired
from statemachines.testing.protocol import Values, home_of
from statemachines.testing.struct_values import EMPTY, Pool, ValueDrawing, ValueRefused, type_of

S = TypeVar("S", bound=msgspec.Struct)
Draw = Callable[[st.SearchStrategy[Any]], Any]

KERNEL = "statemachines.kernel"
BASES: tuple[type[msgspec.Struct], ...] = (Event, Message, Call, Answer, TimerFired, Request)
"""Types of the vocabulary, of which there are no values."""


def of(
    kind: type[S], pool: Pool = EMPTY, *, hostile: bool = False, values: Values | None = None
) -> st.SearchStrategy[S]:
    """Values of the Struct `kind`; `pool` is what to aim at; `hostile`: any value of the right types; `values`: in
    place of what its protocol says."""
    return _structs(kind, pool, hostile, False, values)


def starting(kind: type[S], values: Values | None = None) -> st.SearchStrategy[S]:
    """Records as a machine begins with them: what must be given is drawn, everything else is at its default."""
    return _structs(kind, EMPTY, False, True, values)


def events(
    fsm: Fsm[Any],
    pool: Pool = EMPTY,
    *,
    hostile: bool = False,
    leave_out: tuple[type[Event], ...] = (),
    values: Values | None = None,
) -> st.SearchStrategy[Event]:
    """Events of the alphabet of `fsm`, without those of the types `leave_out`."""
    kinds = [kind for kind in fsm.alphabet if not issubclass(kind, leave_out)]
    return st.sampled_from(kinds).flatmap(lambda kind: of(kind, pool, hostile=hostile, values=values))


def register(*kinds: type[msgspec.Struct]) -> None:
    """From now on `st.from_type` (and what is built on it) draws these types with `of`."""
    for kind in kinds:
        st.register_type_strategy(kind, of(kind))


def register_all() -> None:
    """Hypothesis calls this when it is imported.  No protocol is: a type is looked at when a strategy for it is wanted,
    and then its protocol is there."""
    lookup: dict[str, Any] = getattr(types, "_global_extra_lookup", {})  # without it `of` and `register` do the same
    lookup[KERNEL] = find_strategy
    st.register_type_strategy(Map, _maps)
    for base in BASES:
        st.register_type_strategy(base, _no_value_of)


def find_strategy(kind: Any) -> st.SearchStrategy[Any] | None:
    """The strategy of an event, a request, or a Struct that stands beside a protocol's machines; None for others."""
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return None
    if issubclass(kind, BASES) or kind is Fifo or home_of(kind) is not None:
        return of(kind)
    return None


def _no_value_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    """What there is of it depends on what is loaded, and so would every draw."""
    rule = "has no values of its own: say which, or take statemachines.testing.strategies.events(MACHINE)"
    raise ConfigurationError("type", kind.__name__, rule)  # (Hypothesis swallows a TypeError here)


# -- drawing --------------------------------------------------------------------------------------------------------


@cache
def _index(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


class _Drawn:
    """Hypothesis decides."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def index(self, count: int) -> int:
        return int(self._draw(_index(count)))

    def between(self, low: int, high: int) -> int:
        return int(self._draw(st.integers(low, high)))


@st.composite
def _structs(draw: Draw, kind: type[S], pool: Pool, hostile: bool, bare: bool, values: Values | None) -> S:
    try:
        return ValueDrawing(_Drawn(draw), pool, hostile, values).struct(kind, bare)
    except ValueRefused:
        return reject()


@st.composite
def _maps(draw: Draw, kind: Any) -> Any:
    return ValueDrawing(_Drawn(draw), EMPTY, False).value(type_of(inspect.type_info(kind), kind), "")
