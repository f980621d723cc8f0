"""RebalanceCallbacks: tells an application which streams it was granted, is to give back, and has lost.

The session's own steps say it: a grant that is installed, one that is to be finished, one that is gone.  Callbacks run
one after the other in a task of their own, so that a handler that is busy delays none of them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from statemachines.kernel import Event, Node, Step
from statemachines.shared_subscriptions.relaxed_order import find_in_hand
from statemachines.shared_subscriptions.session import Dismiss, SessionRecord
from statemachines.shared_subscriptions.session_record import reading_key
from statemachines.shared_subscriptions.stream import Finish, Install, Uninstall

logger = logging.getLogger("gapless")

Callback = Callable[[tuple[str, ...]], Awaitable[None] | None]
"""Is called with ids of streams, as `message.stream` has them."""

GRANTED: Final = "on_granted"
REVOKED: Final = "on_revoked"
LOST: Final = "on_lost"

RAISED: Final = "%s: %s raised for stream %s (%d streams); the session goes on without it"
CUT_OFF: Final = "%s: %s for stream %s (%d streams) has not returned for %.1f s; the session cancels it and goes on"
BLOCKED: Final = "%s: %s for stream %s (%d streams) kept the loop for %.1f s; use async def, or a thread"


class RebalanceCallbacks:
    """`callbacks` by name (None: the application does not care); `limit_s`: how long a stream that is taken back is
    waited for, and so how long a callback may take."""

    def __init__(self, callbacks: dict[str, Callback | None], limit_s: float) -> None:
        self.node = ""
        """For the log."""
        self.is_leaving = False
        """The application gives its streams back itself."""
        self._callbacks = {name: callback for name, callback in callbacks.items() if callback is not None}
        self._limit_s = limit_s
        self._queue: deque[tuple[str, list[str]]] = deque()
        self._last: SessionRecord | None = None
        self._task: asyncio.Task[None] | None = None

    def __bool__(self) -> bool:
        """Whether the application wants to hear anything."""
        return bool(self._callbacks)

    def observe(self, node: Node[Any], event: Event, before: Any, step: Step[Any], now_ns: int) -> None:
        """A step of any machine of this consumer; those of its session say what happens to streams."""
        after = step.record
        if type(after) is SessionRecord:
            known, self._last = self._last, after
            if known is not None and isinstance(event, Install | Finish | Uninstall | Dismiss):
                self._note(known, after, event)

    def _note(self, before: SessionRecord, after: SessionRecord, event: Install | Finish | Uninstall | Dismiss) -> None:
        if isinstance(event, Dismiss):
            lease = before.leases.get(event.owner)
            for stream in sorted(lease.streams) if lease is not None else ():
                self._note_end(before, event.owner, stream)
            return
        key = reading_key(event.owner, event.stream)
        found, left = before.readings.get(key), after.readings.get(key)
        if isinstance(event, Uninstall):
            if found is not None and left is None:
                self._note_end(before, event.owner, event.stream)
        elif isinstance(event, Install):
            if left is not None and left.grant and (found is None or left.grant != found.grant):
                if found is not None:
                    self._note_end(before, event.owner, event.stream)
                self._say(GRANTED, event.stream)
        elif found is not None and left is not None and left.finishing and left.grant and not found.finishing:
            self._say(REVOKED, event.stream)

    def _note_end(self, before: SessionRecord, owner: str, stream: str) -> None:
        """The grant is over: in order if it was to be finished, and nothing of it was in hand any more."""
        reading = before.readings.get(reading_key(owner, stream))
        if reading is None or not reading.grant:
            return
        if self.is_leaving and not reading.finishing:
            self._say(REVOKED, stream)
        elif not reading.finishing or find_in_hand(reading) is not None:
            self._say(LOST, stream)

    def _say(self, name: str, stream: str) -> None:
        if name not in self._callbacks:
            return
        if self._queue and self._queue[-1][0] == name:
            self._queue[-1][1].append(stream)
        else:
            self._queue.append((name, [stream]))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_settled(self) -> bool:
        """No callback runs or waits."""
        return self._task is None

    async def settle(self) -> None:
        """Returns when no callback runs or waits any more."""
        while self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """Call nobody any more; a callback that runs is cancelled."""
        self._queue.clear()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            await asyncio.sleep(0)  # what one turn of the machines brings is one call
            while self._queue:
                name, streams = self._queue.popleft()
                await self._call(name, tuple(streams))
        finally:
            self._task = None

    async def _call(self, name: str, streams: tuple[str, ...]) -> None:
        said = (self.node, name, streams[0], len(streams))
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            found = self._callbacks[name](streams)
            if inspect.isawaitable(found):
                await self._wait(said, asyncio.ensure_future(found))
            elif loop.time() - began > self._limit_s:
                logger.warning(BLOCKED, *said, loop.time() - began)
        except Exception:
            logger.exception(RAISED, *said)

    async def _wait(self, said: tuple[str, str, str, int], call: asyncio.Future[None]) -> None:
        """Nothing is handed over before a callback has returned, so none may take longer."""
        try:
            if not (await asyncio.wait([call], timeout=self._limit_s))[0]:
                logger.warning(CUT_OFF, *said, self._limit_s)
                return
            if call.cancelled():
                raise RuntimeError("the callback was cancelled")
            call.result()
        finally:
            if not call.done():
                call.cancel()
