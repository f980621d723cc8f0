"""Outlet: what waits for the application, bounded: who fills it waits for room."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Generic, TypeVar

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
