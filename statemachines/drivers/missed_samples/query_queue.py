"""QueryQueue: where queries to a cache wait until the loop has time for them; one that finds no room is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import zenoh

from statemachines.drivers.missed_samples.declaration import Declarations
from statemachines.drivers.missed_samples.mailbox import Item, Mailbox
from statemachines.drivers.missed_samples.sample_store import BUSY, CacheStatistics, refuse
from statemachines.drivers.missed_samples.zenoh_thread import direct

QUERIES_MAX: Final = 1_000
"""So many queries wait for the loop."""


class QueryQueue:
    """`name` stands in the log, `answer(query)` is called in the loop; what finds no room is counted as `busy`."""

    def __init__(
        self, name: str, answer: Callable[[zenoh.Query], None], statistics: CacheStatistics, room: int = QUERIES_MAX
    ) -> None:
        self._answer = answer
        self._statistics = statistics
        self._name = name
        self._room = room
        self._counted = 0

    async def open(self, declared: Declarations) -> None:
        """Begin to take queries out, until `declared` is closed."""
        self._mailbox = Mailbox(self._name, self._take, count_max=self._room, bytes_max=1 << 30)
        self._task = asyncio.ensure_future(self._mailbox.run(at_once))
        declared.on_close(self._close)

    def handler(self) -> Any:
        """What a queryable is declared with."""
        return direct(self._hear)

    def _hear(self, query: zenoh.Query) -> None:
        """On a thread of zenoh's."""
        if not self._mailbox.put(self._answer, query):
            refuse(query, BUSY)

    def _take(self, items: list[Item]) -> None:
        self._statistics.busy += self._mailbox.refused - self._counted
        self._counted = self._mailbox.refused
        for answer, query, _ in items:
            answer(query)

    async def _close(self) -> None:
        for _, query, _ in self._mailbox.close():
            refuse(query, BUSY)
        await stop(self._task)


async def at_once() -> None:
    """Wait for nothing before the next turn."""


async def stop(task: asyncio.Task[Any]) -> None:
    """Cancel it, and wait until it has ended; raises what it failed with before."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
