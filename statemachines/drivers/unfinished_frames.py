"""UnfinishedFrames: what peers have begun to send and not ended, bounded in time and in the sum of its bytes."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

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
