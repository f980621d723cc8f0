"""LoopThread: an event loop in a thread of its own, for applications that have none.

with LoopThread() as thread:
    publisher = thread.enter(declare_reliable_publisher(session, "room/1"))
    thread.call(publisher.put, "22.5")
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """What is entered here is left when this is, in the opposite order; its callbacks are called in the thread."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._loop.run_forever, name="gapless-loop", daemon=True)
        self.thread.start()
        self._stack = AsyncExitStack()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        try:
            self.wait(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self.thread.join()
            self._loop.close()

    def enter(self, what: AbstractAsyncContextManager[T]) -> T:
        """Enter it there; what it gives."""
        return self.wait(self._stack.enter_async_context(what))

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine gives there.  Not from within the thread, which would wait for itself."""
        return self.submit(work).result()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin it there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Call it there, and wait for what it returns, or raises."""

        async def called() -> T:
            return function(*given, **named)

        return self.wait(called())
