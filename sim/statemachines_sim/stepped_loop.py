"""SteppedLoop: an asyncio loop whose time somebody else decides: nothing in it depends on how fast the machine is.

What is ready runs when `settle` is called, timers when the time has come, and work for a thread is done before the loop
goes on.  Loops that share a `Time` are like processes: one that is not run stands still.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, TypeVarTuple

Ts = TypeVarTuple("Ts")


class Time:
    """Nanoseconds since the beginning."""

    def __init__(self) -> None:
        self.now_ns = 0

    def read_ns(self) -> int:
        """The time now."""
        return self.now_ns


class SteppedLoop(asyncio.SelectorEventLoop):
    """`settle()` runs what is ready or due; `deadline()` is when the next timer is."""

    def __init__(self, time: Time) -> None:
        super().__init__()
        self._time = time
        self._timers: list[tuple[int, int, asyncio.TimerHandle, Callable[[], object]]] = []
        self._number = 0
        self._posted = self._settled = 0

    def settle(self) -> bool:
        """Run until nothing is ready and no timer is due; whether anything was."""
        before = self._settled
        while True:
            posted = self._posted
            self._post_due()
            super().call_soon(self.stop)
            self.run_forever()
            if self._posted == posted:
                self._settled = posted
                return posted != before

    def deadline(self) -> int | None:
        """When the next timer is due, in nanoseconds; None: there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def finish(self) -> None:
        """Cancel what is left, and close."""
        tasks = asyncio.all_tasks(self)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()

    # -- in place of what asyncio does ----------------------------------------------------------------------------

    def time(self) -> float:
        return self._time.now_ns / 1e9

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> events.Handle:
        self._posted += 1
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._number += 1

        def run() -> None:
            if not handle.cancelled():
                callback(*args)

        heappush(self._timers, (round(when * 1e9), self._number, handle, run))
        return handle

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args) if executor is None else executor.submit(func, *args).result())
        except Exception as error:
            future.set_exception(error)
        return future

    def _post_due(self) -> None:
        while (due := self.deadline()) is not None and due <= self._time.now_ns:
            self.call_soon(heappop(self._timers)[3])
