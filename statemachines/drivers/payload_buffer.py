"""PayloadBuffer: what a driver keeps for its machines, which count numbered things and never see them.

A machine says what of an answer it has counted: a key, the grant it was for, and a range of numbers.  The things stay
here under these words until the machine hands the range over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence, Sized
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class PayloadRange(Generic[T]):
    """Things of one key and grant, numbered from `first` on without a gap."""

    __slots__ = ("first", "grant", "things")

    def __init__(self, grant: int, first: int) -> None:
        self.grant = grant
        self.first = first
        self.things: deque[T] = deque()


class Keys(Sized, Container[str], Protocol):
    """The keys that a machine still has."""


class PayloadBuffer(Generic[T]):
    """Things by key, grant and number; a key holds those of one grant, without a gap."""

    def __init__(self) -> None:
        self._shelves: dict[str, PayloadRange[T]] = {}

    def put(self, key: str, grant: int, first: int, things: Sequence[T]) -> None:
        """Keep things `first`, `first` + 1, ...; what does not continue what is kept of the key takes its place."""
        shelf = self._shelves.get(key)
        if shelf is None or shelf.grant != grant or shelf.first + len(shelf.things) != first:
            shelf = self._shelves[key] = PayloadRange(grant, first)
        shelf.things += things

    def has(self, key: str, grant: int, number: int) -> bool:
        """Whether this thing is kept."""
        shelf = self._shelves.get(key)
        return shelf is not None and shelf.grant == grant and shelf.first <= number < shelf.first + len(shelf.things)

    def take(self, key: str, grant: int, first: int, last: int) -> list[T]:
        """Hand out things `first`..`last`; what came before them is not wanted any more.

        Raises `KeyError` where they are not all there: whoever counted them was told so by a `put`.
        """
        shelf = self._shelves.get(key)
        if shelf is None or shelf.grant != grant or first < shelf.first or last >= shelf.first + len(shelf.things):
            raise KeyError(f"{key}: {first}..{last} of grant {grant} are not kept")
        for _ in range(first - shelf.first):
            shelf.things.popleft()
        shelf.first = last + 1
        return [shelf.things.popleft() for _ in range(first, last + 1)]

    def forget(self, living: Keys) -> None:
        """Drop what is of no key in `living`; looked for only when there are more keys here than there."""
        if len(self._shelves) > len(living):
            for key in [key for key in self._shelves if key not in living]:
                del self._shelves[key]

    def __len__(self) -> int:
        """How many things are kept."""
        return sum(len(shelf.things) for shelf in self._shelves.values())
