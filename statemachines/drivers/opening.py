"""Opening: what a thread opens for the event loop is closed again where nobody waits for it any more.

A thread cannot be cancelled.  Whoever awaits it can, and then what it opens would be nobody's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
