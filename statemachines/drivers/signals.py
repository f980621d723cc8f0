"""Signals: how the process of a node ends in good order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, Final, TypeVar

from statemachines.interrupts import INTERRUPTED, end_here, leave_threads
from statemachines.plain_text import PlainFormatter

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

TURNS: Final = 40
TURN_S: Final = 0.1
"""Good order may take so many turns of the loop: 4 s, or more where the loop is not given the processor."""
GAVE_UP: Final = 3
"""The exit code where it took longer."""

COLLECT_EVERY: Final = (10_000, 20, 1_000)
"""Thresholds of the garbage collector: new objects, young collections, and collections before a full one.  A full one
stands still for as long as it takes to look at all objects: 0.5 s and more where a group has 70 000 streams.  Records
hold no cycles, so it finds next to nothing."""

T = TypeVar("T")

logger = logging.getLogger("gapless")


def run_until_signal(work: Coroutine[Any, Any, None], unfinished: Callable[[], str] = lambda: "") -> None:
    """Run it to its end, or until SIGTERM or SIGINT asks it to stop in good order.

    `unfinished`: of work that has an end of its own, how far it came where a signal ended it before ("": to its end).
    That is said on stderr, and the exit code is `INTERRUPTED`, not 0.
    """
    log_plainly()
    collected_every = gc.get_threshold()
    gc.set_threshold(*COLLECT_EVERY)
    _unfinished[:] = [unfinished]

    async def supervised() -> None:
        task = asyncio.get_running_loop().create_task(work)
        _handle(lambda: _soon(task.cancel))
        _ignore_hangup()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        asyncio.run(run_without_waiting(supervised()))
    finally:
        gc.set_threshold(*collected_every)
        if not _kept:  # else one more signal does nothing: the process ends already
            for number, handler in before.items():
                signal.signal(number, handler)
    code = 0
    if _kept and (text := unfinished()):
        print(text, file=sys.stderr)
        code = INTERRUPTED
    if _kept:
        leave_threads(code)
    if code:
        raise SystemExit(code)


def _ignore_hangup() -> None:
    """A node ends by SIGTERM.  `on_hangup` comes later, where there are files that can be read again."""
    what = "SIGHUP: this node has no file to read again, and goes on; for other secrets or certificates start it anew"
    on_hangup(lambda: logger.warning(what))


def _handle(act: Callable[[], object]) -> None:
    """Have every signal `act` in the running loop, and do nothing once that is closed.  (The loop's own handlers are
    gone with it: whoever is told twice to end would die of the second while Python comes to its end.)"""
    loop = asyncio.get_running_loop()

    def handler(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(act)

    for number in SIGNALS:
        signal.signal(number, handler)


def on_hangup(act: Callable[[], object]) -> None:
    """Have every SIGHUP `act` in the running loop: files are to be read again."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, act)


def log_plainly() -> None:
    """Log to stderr, with the time, and nothing raw."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainFormatter())
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("gapless").setLevel(logging.INFO)


async def run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """`work` in a loop that, at its end, does not wait for what others do in threads for it: who waits for a database
    to be opened can be told to end."""
    asyncio.get_running_loop().set_default_executor(_Unwaited())
    return await work


class _Unwaited(ThreadPoolExecutor):
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Not waiting, whoever asks."""
        super().shutdown(wait=False, cancel_futures=True)


def _soon(act: Callable[[], object]) -> None:
    """Do it, and see to it that the process ends; a second signal changes nothing."""
    if _kept:
        return
    _kept.append(asyncio.get_running_loop().create_task(_give_up()))
    _kept.append(act())


_unfinished: list[Callable[[], str]] = []
"""What the work that runs says of how far it came."""

_kept: list[object] = []
"""Who was told to end, has: the loop alone would not keep a task from being collected."""


async def _give_up() -> None:
    """A store that stands still would keep a node for ever; it is ended as by SIGKILL, which loses nothing either."""
    for _ in range(TURNS):
        await asyncio.sleep(TURN_S)
    waited = f"{TURNS * TURN_S:g} s"
    logger.warning("does not end in good order within %s, since what it waits for does not answer; ends now", waited)
    for text in filter(None, (unfinished() for unfinished in _unfinished)):
        print(text, file=sys.stderr)
    end_here(GAVE_UP)


def on_first_signal(act: Callable[[], object]) -> None:
    """Have the next signal `act`, and the one after it cancel the task that calls this."""
    task = asyncio.current_task()
    assert task is not None

    def acted() -> None:
        _handle(task.cancel)
        _soon(act)

    _handle(acted)
