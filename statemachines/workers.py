"""Workers: processes of a command that compute beside it, and end with it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from typing import Any, Final

from statemachines.interrupts import not_interrupted

THREAD_S: Final = 5.0
"""Seconds for the thread of a pool without processes; it has little left to do."""

_ENDED: Final[list[ProcessPoolExecutor]] = []
"""Pools that ended with an exception, which is rarely more than one: their own threads look at them until they end."""


class _Worker(SpawnProcess):
    def start(self) -> None:
        """It never hears of Ctrl-C.  (What multiprocessing begins for its own use, and once, lets Ctrl-C in again.)"""
        resource_tracker.ensure_running()
        with not_interrupted():
            super().start()


class _Spawning(SpawnContext):
    Process = _Worker


SPAWNED: Final = _Spawning()
"""Processes that are begun anew, and never hear of Ctrl-C."""


@contextmanager
def open_workers(count: int, begin: Callable[..., None] | None = None, *given: Any) -> Iterator[ProcessPoolExecutor]:
    """So many processes, each of which calls `begin(*given)` first.  They are begun anew, not forked: the caller may
    hold threads (a progress bar).  Who leaves with an exception, as Ctrl-C is one, does not wait for what they are at.
    """
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, SPAWNED, begin, given)
    try:
        yield pool
    except BaseException:
        _end_at_once(pool, set(multiprocessing.active_children()) - others)
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _end_at_once(pool: ProcessPoolExecutor, processes: Iterable[BaseProcess]) -> None:
    """What waits is taken off the pool before its processes end: as of a pool that loses one while tasks of it are
    cancelled, its own thread would fall over those (Python 3.11); and so it would of a pool that is no more."""
    _ENDED.append(pool)
    thread = getattr(pool, "_executor_manager_thread", None)  # the pool itself forgets it now
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in processes:
        worker.terminate()
    for worker in processes:
        wait([worker.sentinel])  # the pool's thread joins it
    if thread is not None:
        thread.join(THREAD_S)  # at the end of Python it would be woken by a pipe that it is just closing
