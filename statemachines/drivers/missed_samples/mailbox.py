"""Mailbox: from zenoh's threads into an event loop, bounded.

zenoh calls back on threads of its own.  There nothing is done but to put what came into the mailbox; one task of the
loop takes it out.  A loop that is blocked, or a reader that does not read, lets the mailbox fill up; then what comes is
refused, counted and said in the log.  A sample that is refused is lost like any other, and recovered like any other.

Outlet: what waits for the application, bounded: who fills it waits for room.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

logger = logging.getLogger("gapless")

TURN: Final = 512
"""So many things are taken out in one turn of the loop, at most."""

STREAM: Final = 8
"""After so many turns on end, with no longer pause than `PAUSE_S`, each that finds less than a turn's worth waits for
more to come: a loop that is woken for each thing hands the interpreter's lock to and fro for it, which takes several
times as long as the thing itself."""

PAUSE_S: Final = 0.0005
GATHER_S: Final = 0.002
"""So long."""

SAY_AGAIN_S: Final = 1.0

Item = tuple[Callable[[Any], object], Any, int]
"""(what is to be done with it in the loop, what came, how many bytes it counts for)"""


class Mailbox:
    """`take(items)` is called in the loop; `name` stands in the log; at most `count_max` things of `bytes_max` bytes
    wait.  `refused` counts what found no room.  `gate()` is waited for before each turn."""

    def __init__(self, name: str, take: Callable[[list[Item]], None], *, count_max: int, bytes_max: int) -> None:
        self.refused = 0
        self._name = name
        self._take = take
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._taken = 0
        self._lock = threading.Lock()
        self._said = 0.0
        self._woken = False
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many things wait."""
        return len(self._items)

    def came(self) -> int:
        """How many things have come so far."""
        return self._taken + len(self._items)

    def take_count(self) -> int:
        """How many of them were taken out."""
        return self._taken

    def put(self, act: Callable[[Any], object], given: Any, size: int = 0, *, always: bool = False) -> bool:
        """From any thread; False: there is no room, or nobody takes anything any more.  `always`: of which there are
        few anyway, and something else would wait for it in vain."""
        self._lock.acquire()  # `with` takes twice as long, and every sample comes by here
        try:
            if self._closed:
                return False
            total = self._bytes + size
            full = not always and (total > self._bytes_max or len(self._items) >= self._count_max)
            if full:
                self.refused += 1
            else:
                self._items.append((act, given, size))
                self._bytes = total
                if self._woken:
                    return True
                self._woken = True
        finally:
            self._lock.release()
        if full:
            self._say_refused()
            return False
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the loop was closed, and nobody has told us
            return False
        return True

    def _say_refused(self) -> None:
        now = time.monotonic()
        if now - self._said >= SAY_AGAIN_S:
            self._said = now
            text = "%s: no room for what comes, refused %d so far; the loop is too slow"
            logger.warning(text, self._name, self.refused)

    async def run(self, gate: Callable[[], Any]) -> None:
        """Take out what comes, until cancelled."""
        turns = 0
        while True:
            paused = time.monotonic()
            await self._ready.wait()
            self._ready.clear()
            if time.monotonic() - paused > PAUSE_S:
                turns = 0
            while True:
                await gate()
                items = self._some()
                if not items:
                    break
                self._take(items)
                turns += 1
                await asyncio.sleep(GATHER_S if turns > STREAM and len(items) < TURN else 0)

    def close(self) -> list[Item]:
        """Nothing is taken in any more; what was still waiting."""
        with self._lock:
            self._closed = True
            left, self._items = list(self._items), deque()
            return left

    def _some(self) -> list[Item]:
        with self._lock:
            count = min(TURN, len(self._items))
            next_item = self._items.popleft
            found = [next_item() for _ in range(count)]
            self._woken = bool(found)
            self._taken += count
            self._bytes -= sum([size for _, _, size in found])
        return found


T = TypeVar("T")


class Outlet(Generic[T]):
    """`room_max`: beyond so many `room()` waits.  One turn may still put more: what it delivers it delivers whole."""

    def __init__(self, room_max: int) -> None:
        self._room_max = room_max
        self._items: deque[T] = deque()
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._ended = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T) -> None:
        """At the end."""
        self._items.append(item)
        self._filled.set()
        if len(self._items) >= self._room_max:
            self._emptied.clear()

    async def get(self) -> T:
        """The next; raises `StopAsyncIteration` at the end, or what it ended with."""
        while not self._items:
            if self._ended:
                raise self._error or StopAsyncIteration
            self._filled.clear()
            await self._filled.wait()
        item = self._items.popleft()
        if len(self._items) < self._room_max:
            self._emptied.set()
        return item

    async def room(self) -> None:
        """Wait until there is some."""
        await self._emptied.wait()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes; who waits for room waits no longer."""
        self._ended = True
        self._error = self._error or error
        self._filled.set()
        self._emptied.set()
