"""Declaration: what was declared at a session, undone in the opposite order.

An entity of zenoh that is left declared calls back into an interpreter that ends, which hangs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import zenoh

from statemachines.drivers.opening import finish_in_thread
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

E = TypeVar("E")


class Declarations:
    """`add` what has `undeclare`, `on_close` what is to be awaited; `close` undoes all, and can be called again.

    What a thread declares while, or after, all is undone (whoever waited for it was cancelled) is undeclared at once.
    """

    def __init__(self) -> None:
        self._acts: list[Callable[[], Awaitable[Any]]] = []
        self._is_closed = False

    def add(self, entity: E) -> E:
        """Itself."""
        if self._is_closed:
            _undeclare(entity)
        else:
            self._acts.append(lambda: finish_in_thread(lambda: _undeclare(entity)))
        return entity

    def on_close(self, act: Callable[[], Awaitable[Any]]) -> None:
        """Call it when everything that was declared later is undone."""
        self._acts.append(act)

    async def close(self) -> None:
        """All of it, whatever of it fails, and though it is cancelled; then raise what failed first."""
        failed: BaseException | None = None
        self._is_closed = True
        while self._acts:
            try:
                await self._acts.pop()()
            except (Exception, asyncio.CancelledError) as error:
                failed = failed or error
        if failed is not None:
            raise failed


def _undeclare(entity: Any) -> None:
    try:
        entity.undeclare()
    except zenoh.ZError as error:  # the session is closed: then it is undeclared
        logger.info("not undeclared: %s", quote_for_log(str(error)))
