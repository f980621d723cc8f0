"""Awaited: a database that is not there when somebody needs it first is waited for, as it is later.

Who ends where its database is away is started again by a supervisor until it is there, or by nobody.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from statemachines.drivers.sql.failure import StoreAway, StoreUnavailable

AGAIN_S: Final = 0.5
"""The pause before a database that is not there is looked for again."""

ONE_OPERATION_S: Final = 30.0
"""How long a command, or a call, that ends by itself waits for the database; a node waits until it is there."""

SAY_AGAIN_S: Final = 60.0
"""Who waits says so again after that."""

logger = logging.getLogger("gapless")

T = TypeVar("T")


async def retry_while_unavailable(
    attempt: Callable[[], Awaitable[T]],
    *,
    who: str,
    patience_s: float = math.inf,
    again_s: float = AGAIN_S,
    say_again_s: float = SAY_AGAIN_S,
) -> T:
    """What `attempt()` comes to, again and again while the database is away, starts, or is too busy, as requests are
    repeated later; `who`: waits, as the log says it.

    Raises what `attempt` does; where the database is only not there, when `patience_s` is over.
    """
    deadline, say_at = time.monotonic() + patience_s, 0.0
    while True:
        try:
            return await attempt()
        except (StoreAway, StoreUnavailable) as error:
            now = time.monotonic()
            if now >= deadline:
                raise
            if now >= say_at:
                logger.warning("%s waits for its store: %s", who, error)
                say_at = now + say_again_s
        await asyncio.sleep(again_s)
