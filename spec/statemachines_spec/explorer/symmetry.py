"""Symmetry: components that may change places, so that of the states that differ only in who is who, one is explored.

A system declares which of its components are interchangeable.  A renaming gives each of them the name of another; what
it does to a local state, or to an envelope, is one function (`rename_value`, unless the system says otherwise).  None
of it is believed: `orbits` compares every entry with the renamed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import permutations, product
from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, GaplessError, Map, identity

PERMUTATIONS_MAX = 24

Names = Mapping[str, str]
"""Name of a component -> the name that it has after the renaming; every other name stays."""


class Asymmetric(GaplessError):
    """Components that were declared interchangeable are not: names the entry, or what else tells them apart."""


def rename_value(value: Any, names: Names) -> Any:
    """`value` with every name, and every id of a party (`name~1/2`), renamed, wherever it stands.

    Maps and sets have no order.  A tuple keeps its order: a Struct that keeps one sorted, or that writes names down in
    another way, says itself what becomes of it, in a method `rename(names)`.
    """
    kind = type(value)
    if kind is str:
        node = identity.node_of(value)
        return value if node not in names else names[node] + value[len(node) :]
    if isinstance(value, msgspec.Struct):
        own = getattr(kind, "rename", None)
        return _struct(value, names) if own is None else own(value, names)
    if isinstance(value, Map):
        return Map({rename_value(key, names): rename_value(item, names) for key, item in value.items()})
    if isinstance(value, tuple | list | frozenset):
        return kind(rename_value(item, names) for item in value)
    if isinstance(value, dict):
        return {rename_value(key, names): rename_value(item, names) for key, item in value.items()}
    own = getattr(kind, "rename", None)
    return value if own is None else own(value, names)


def _struct(value: Any, names: Names) -> Any:
    changed = {}
    for field in value.__struct_fields__:
        before = getattr(value, field)
        after = rename_value(before, names)
        if after is not before:
            changed[field] = after
    return msgspec.structs.replace(value, **changed) if changed else value


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two values of one kind differ: `fields.within[key]: this, not that`."""
    if type(one) is type(other) and isinstance(one, msgspec.Struct):
        for field in one.__struct_fields__:
            name = f"{where}.{field}" if where else field
            yield from differences(getattr(one, field), getattr(other, field), name)
    elif isinstance(one, Map) and isinstance(other, Map) and set(one) == set(other):
        for key in sorted(one):
            yield from differences(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for place, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            yield from differences(mine, theirs, f"{where}[{place}]")
    elif one != other and hasattr(one, "party") and hasattr(other, "party"):
        yield from differences(one.party, other.party, where)
    elif one != other:
        yield f"{where or 'it'}: {one!r}, not {other!r}"


class Symmetry(msgspec.Struct, frozen=True):
    """`actors` may change places in every way; `rename(value, names)` is a local state, or an envelope, renamed."""

    actors: tuple[str, ...]
    rename: Callable[[Any, Names], Any] = rename_value

    def __str__(self) -> str:
        return f"{', '.join(self.actors[:-1])} and {self.actors[-1]} are interchangeable"


class Renaming(msgspec.Struct, frozen=True):
    """One way to change places: for each symmetry, the names afterwards."""

    parts: tuple[tuple[Symmetry, dict[str, str]], ...]

    @property
    def names(self) -> dict[str, str]:
        """All names that change or might."""
        return {before: after for _, names in self.parts for before, after in names.items()}

    def of(self, value: Any) -> Any:
        """A local state or an envelope, renamed."""
        for symmetry, names in self.parts:
            value = symmetry.rename(value, {before: after for before, after in names.items() if before != after})
        return value

    def __str__(self) -> str:
        return ", ".join(f"{before} is {after}" for before, after in self.names.items() if before != after)


def check(symmetries: Iterable[Symmetry], actors: Iterable[str]) -> None:
    """Raises `ConfigurationError` for a symmetry of components that are not there, of too few or too many."""
    known, taken, count = set(actors), set[str](), 1
    for one in symmetries:
        if len(one.actors) < 2:
            raise ConfigurationError("symmetry", one.actors, "needs at least two components")
        for place, name in enumerate(one.actors, 1):
            if name not in known:
                raise ConfigurationError("symmetry", name, f"no such component; there are: {', '.join(sorted(known))}")
            if name in taken:
                raise ConfigurationError("symmetry", name, "stands in it twice; a component has one set of equals")
            taken.add(name)
            count *= place
    if count > PERMUTATIONS_MAX:
        raise ConfigurationError("symmetry", count, f"ways to change places; at most {PERMUTATIONS_MAX} are tried")


def renamings(symmetries: tuple[Symmetry, ...]) -> tuple[Renaming, ...]:
    """Every way to change places; the first one changes nothing."""
    each = [[dict(zip(one.actors, order, strict=True)) for order in permutations(one.actors)] for one in symmetries]
    return tuple(Renaming(tuple(zip(symmetries, parts, strict=True))) for parts in product(*each))


def one_after_another(them: tuple[Renaming, ...]) -> tuple[tuple[int, ...], ...]:
    """[second][first] -> the number of the renaming that is `first` and then `second`."""
    numbers = {_key(one.names): number for number, one in enumerate(them)}
    return tuple(
        tuple(numbers[_key({name: second.names[after] for name, after in first.names.items()})] for first in them)
        for second in them
    )


def _key(names: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(names.items()))
