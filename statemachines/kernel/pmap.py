"""Persistent maps for records, and how they are written down.

`Map` is `immutables.Map`: a copy-on-write hash trie, decoded typed by msgspec through the hooks here.  Its order of
iteration depends on the hash seed, so no step, snapshot, trace or encoder iterates one unsorted: use `in_order`.
Where sorting is too dear a record holds a FIFO: a map from a running number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from immutables import Map as Map

K = TypeVar("K")
V = TypeVar("V")


def in_order(mapping: Map[K, V]) -> Iterator[tuple[K, V]]:
    """The items of `mapping`, sorted by key: the way to iterate one."""
    return iter(sorted(mapping.items()))  # keys differ, so no values are compared


def keys_in_order(mapping: Map[K, V]) -> list[K]:
    """The keys of `mapping`, sorted."""
    return sorted(mapping)  # type: ignore[type-var]


def enc_hook(value: Any) -> Any:
    """msgspec `enc_hook`: a map as its sorted [key, value] pairs."""
    if isinstance(value, Map):
        return sorted(value.items())  # as `in_order` has them, and without an iterator: it is called for every map
    raise NotImplementedError(
        f"a record may not hold a {type(value).__name__}: use frozen Structs, enums, ints and Map"
    )


def dec_hook(kind: Any, value: Any) -> Any:
    """msgspec `dec_hook`: [key, value] pairs to a `Map[K, V]`, typed."""
    origin = get_origin(kind) or kind
    if origin is Map:
        args = get_args(kind) or (Any, Any)
        pairs: list[tuple[Any, Any]] = msgspec.convert(value, list[tuple[args]], dec_hook=dec_hook)  # type: ignore[valid-type]
        return Map(pairs)
    raise NotImplementedError(f"cannot read a {kind!r}")


class Fifo(msgspec.Struct, frozen=True, gc=False):
    """A persistent first-in first-out queue of strings: a map from a running number, for what is too dear to sort."""

    items: Map[int, str] = Map()
    head: int = 0
    tail: int = 0

    def push(self, item: str) -> Fifo:
        """With `item` at the end."""
        return Fifo(self.items.set(self.tail, item), self.head, self.tail + 1)

    def pop(self) -> tuple[str, Fifo]:
        """The first item, and the rest; raises KeyError when empty."""
        return self.items[self.head], Fifo(self.items.delete(self.head), self.head + 1, self.tail)

    def __bool__(self) -> bool:
        return self.head != self.tail

    def __len__(self) -> int:
        return self.tail - self.head

    def __iter__(self) -> Iterator[str]:
        return (self.items[number] for number in range(self.head, self.tail))
