"""TimerThread: calls functions at their time, in one thread of the process, which sleeps while nothing is due."""

from __future__ import annotations

import logging
import sched
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from statemachines.drivers.clock import steady_ns


class TimerThread:
    """The thread begins with the first call that is planned.  What is called must not block."""

    def __init__(self) -> None:
        self._planned = sched.scheduler(steady_ns, lambda delay: None)
        self._changed = threading.Lock()
        self._thread = threading.Thread()

    def call_at(self, at_ns: int, call: Callable[[], object]) -> sched.Event:
        """Call it then, by `steady_ns`; what `cancel` takes."""
        event = self._planned.enterabs(at_ns, 0, call)
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="gapless-timers", daemon=True)
            self._thread.start()
        with suppress(RuntimeError):  # it does not sleep
            self._changed.release()
        return event

    def cancel(self, event: Any) -> None:
        """A call that is under way, or over, is none that can be cancelled."""
        with suppress(ValueError):
            self._planned.cancel(event)

    def _run(self) -> None:
        while True:
            try:
                wait_ns = self._planned.run(blocking=False)
                self._changed.acquire(timeout=-1 if wait_ns is None else min(wait_ns / 1e9, threading.TIMEOUT_MAX))
            except Exception:
                logging.getLogger("gapless").exception("a timer failed")


TIMERS: Final = TimerThread()
