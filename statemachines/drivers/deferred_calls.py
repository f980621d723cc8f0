"""DeferredCalls: calls that are made behind what runs now.

A turn of the loop looks at all sockets, which costs more than most of these calls.  So what a batch of answers defers
is called at the end of the batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DeferredCalls:
    """Those of one loop, which runs."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Callable[[], None]] | None = None
        """Of the batch that is under way; None: there is none."""

    def defer(self, call: Callable[[], None]) -> None:
        """Call it at the end of the batch that is under way, else in the next turn of the loop."""
        if self._calls is None:
            self._loop.call_soon(call)
        else:
            self._calls.append(call)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """What is deferred within, and by what was deferred, is called at its end, in order."""
        calls = self._calls = deque()
        try:
            yield
            while calls:
                self._call(calls.popleft())
        finally:
            self._calls = None
            for call in calls:
                self._loop.call_soon(call)

    def _call(self, call: Callable[[], None]) -> None:
        """One that fails is logged by the loop, as if that had made it."""
        try:
            call()
        except Exception as error:
            what = f"Exception in callback {call}"
            self._loop.call_exception_handler({"message": what, "exception": error})
