"""PayloadBuffer: what a driver keeps for its machines, which count numbered things and never see them.

A machine says what of an answer it has counted: a key, the grant it was for, and a range of numbers.  The things stay
here under these words until the machine hands the range over.

UnfinishedFrames: what peers have begun to send and not ended, bounded in time and in the sum of its bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container, Sequence, Sized
from typing import Final, Generic, Protocol, TypeVar

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


LIMIT_S: Final = 30.0
"""The rest of a frame comes within that time."""
SUM_MAX: Final = 64 * 2**20
"""Bytes of all frames that are not whole; beyond, the one goes that was begun first."""
LOOKS: Final = 4
"""Looks within the limit."""
TOO_LATE: Final = "began a frame and did not end it within {:g} s"
TOO_MUCH: Final = "began a frame first of those that are not whole, and all of them have more than {} bytes"


class Cuttable(Protocol):
    """A connection."""

    def refuse(self, why: str) -> None:
        """It may not stay; what it has begun to send is dropped."""


class UnfinishedFrames:
    """Of all connections of a listener; `limit_s`: seconds for one frame, `sum_max`: bytes of all."""

    def __init__(self, limit_s: float = LIMIT_S, sum_max: int = SUM_MAX) -> None:
        self._limit_s = limit_s
        self._sum_max = sum_max
        self._begun: dict[Cuttable, tuple[float, int]] = {}
        """When it was begun, and its bytes so far; the oldest first."""
        self._sum = 0
        self._wake: asyncio.TimerHandle | None = None

    def note(self, one: Cuttable, size: int, *, is_new: bool) -> None:
        """So many bytes of a frame are there (0: none is begun); `is_new`: it is not the frame of before."""
        if not size and one not in self._begun:
            return
        loop = asyncio.get_running_loop()
        began, before = self._begun.get(one, (loop.time(), 0))
        self._sum += size - before
        if is_new or not size:
            self._begun.pop(one, None)
            began = loop.time()
        if size:
            self._begun[one] = began, size
        while self._sum > self._sum_max:
            self._cut(next(iter(self._begun)), TOO_MUCH.format(self._sum_max))
        if self._begun and self._wake is None:
            self._look_later(loop)

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake = loop.call_later(self._limit_s / LOOKS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake = None
        latest = loop.time() - self._limit_s
        for one in [one for one, (began, _) in self._begun.items() if began <= latest]:
            self._cut(one, TOO_LATE.format(self._limit_s))
        if self._begun:
            self._look_later(loop)

    def _cut(self, one: Cuttable, why: str) -> None:
        self.note(one, 0, is_new=True)
        one.refuse(why)
