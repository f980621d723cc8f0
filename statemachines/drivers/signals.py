"""Signals: how the process of a node ends in good order."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final

from statemachines.drivers.plain_text import PlainFormatter

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def run_until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end, or until SIGTERM or SIGINT asks it to stop in good order."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("gapless").setLevel(logging.INFO)

    async def supervised() -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        for number in SIGNALS:
            loop.add_signal_handler(number, task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            return

    asyncio.run(supervised())


def on_first_signal(act: Callable[[], object]) -> None:
    """Have the next signal `act`, and the one after it cancel the task that calls this."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    kept: list[object] = []

    def acted() -> None:
        for number in SIGNALS:
            loop.add_signal_handler(number, task.cancel)
        kept.append(act())  # the loop alone would not keep a task from being collected

    for number in SIGNALS:
        loop.add_signal_handler(number, acted)
