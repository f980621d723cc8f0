"""DurableProgress: tells an application when what it acknowledged is in the group store.

A leader commits the progress of a stream at most a commit interval after it was reported.  While somebody waits, the
records of the streams in question are read, all of them in one request, several times in a commit interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from statemachines.kernel import Answer, GaplessError
from statemachines.shared_subscriptions.acknowledged_ranges import is_acknowledged_in
from statemachines.shared_subscriptions.claim import PAGE
from statemachines.shared_subscriptions.group_store import Read, ReadDone, StoredRecord
from statemachines.shared_subscriptions.returned_messages import find_awaited
from statemachines.shared_subscriptions.session_record import StreamReading

LOOKS: Final = 4
"""The records are read so often in a commit interval."""
LOOK_MIN_S: Final = 0.01
INTERVALS: Final = 3
"""A grant that is over for so many commit intervals commits nothing more."""


class AcknowledgementUncertain(GaplessError):
    """An acknowledgement is not known to be durable: the message may be delivered again."""


class Waiter(msgspec.Struct, eq=False):
    """Somebody who waits until the records `keys` (of the progress, and of what stands beside it) cover `offset`.
    `reading`: what is read under the grant, while it stands; `over_s`: when it was first seen to be over (0: it was
    not)."""

    keys: tuple[str, str]
    stream: str
    offset: int
    reading: Callable[[], StreamReading | None]
    outcome: asyncio.Future[None]
    over_s: float = 0.0


class DurableProgress:
    """`ask`: the group store; `commit_interval_s`: how long a leader collects progress."""

    def __init__(self, ask: Callable[[Read], Awaitable[tuple[Answer, ...]]], commit_interval_s: float) -> None:
        self._ask = ask
        self._look_s = max(commit_interval_s / LOOKS, LOOK_MIN_S)
        self._patience_s = INTERVALS * commit_interval_s
        self._waiters: list[Waiter] = []
        self._task: asyncio.Task[None] | None = None

    async def wait(
        self, keys: tuple[str, str], stream: str, offset: int, reading: Callable[[], StreamReading | None]
    ) -> None:
        """Returns when the records `keys` say that `offset` is acknowledged.

        Raises `AcknowledgementUncertain` where the grant ends, a message before it is given back, or this is closed.
        """
        loop = asyncio.get_running_loop()
        waiter = Waiter(keys, stream, offset, reading, loop.create_future())
        self._waiters.append(waiter)
        self.check_returned()
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._look())
        try:
            await waiter.outcome
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def check_returned(self) -> None:
        """Give up where a message before the awaited one was given back: the application would wait for itself."""
        for waiter in self._waiters:
            returned = find_awaited(waiter.reading(), waiter.offset)
            if returned is not None:
                give_up(waiter, f"message {returned} was given back, and progress waits until it is acknowledged")

    def close(self) -> None:
        """Nobody learns anything any more."""
        if self._task is not None:
            self._task.cancel()
        for waiter in self._waiters:
            give_up(waiter, "the session has ended")

    async def _look(self) -> None:
        """Read what is waited for, again and again, until nobody waits."""
        while self._waiters:
            keys = tuple(dict.fromkeys(key for waiter in self._waiters for key in waiter.keys))[:PAGE]
            (answer,) = await self._ask(Read(0, keys))
            if isinstance(answer, ReadDone):
                self._judge(dict(zip(keys, answer.records, strict=True)))
            await asyncio.sleep(self._look_s)

    def _judge(self, records: dict[str, StoredRecord | None]) -> None:
        now_s = asyncio.get_running_loop().time()
        for waiter in [waiter for waiter in self._waiters if waiter.keys[1] in records]:
            if any(is_acknowledged_in(records[key], waiter.offset) for key in waiter.keys):
                self._waiters.remove(waiter)
                if not waiter.outcome.done():
                    waiter.outcome.set_result(None)
            elif waiter.reading() is not None:
                waiter.over_s = 0.0
            elif not waiter.over_s:
                waiter.over_s = now_s
            elif now_s - waiter.over_s > self._patience_s:
                self._waiters.remove(waiter)
                give_up(waiter, "the stream was given to another member, or the group was destroyed")


def give_up(waiter: Waiter, why: str) -> None:
    """Say that nobody knows."""
    if not waiter.outcome.done():
        what = f"message {waiter.offset} of {waiter.stream} is not known to be acknowledged durably: {why}"
        waiter.outcome.set_exception(AcknowledgementUncertain(f"{what}; it may be delivered again"))
