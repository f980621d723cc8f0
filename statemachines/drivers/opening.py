"""Opening: what was opened is closed again where what follows fails, or the task that waits for it is cancelled.

A thread cannot be cancelled.  The task that awaits it can be, and then nobody owns what the thread opens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closed_on_failure(close: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Where the body raises, or is cancelled, `close()` first: the node has not begun, so nobody else closes it."""
    try:
        yield
    except BaseException:
        await close()
        raise


async def open_in_thread(make: Callable[[], T], close: Callable[[T], object]) -> T:
    """What `make()` gives, in a thread; where this is cancelled meanwhile, `close` gets it once it is there."""
    opening = asyncio.ensure_future(asyncio.to_thread(make))

    def end(done: asyncio.Future[T]) -> None:
        if not done.cancelled() and done.exception() is None:
            close(done.result())

    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(end)
        raise


async def finish_in_thread(call: Callable[[], object]) -> None:
    """Call it in a thread and return when it has ended, also if this task is cancelled meanwhile.

    `asyncio.to_thread` alone drops a call that is cancelled before its thread takes it up.

    Raises:
        asyncio.CancelledError: this task was cancelled; the call has ended all the same.
    """
    running = asyncio.ensure_future(asyncio.to_thread(call))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    running.result()
