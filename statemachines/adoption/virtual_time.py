"""Virtual time: timers of Timeout states, and an event loop, without threads and without waiting.

A timer is set or not set, and one that is set may fire at any moment, whatever its seconds are.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from transitions.extensions import asyncio as async_states
from transitions.extensions import states


class VirtualTimer:
    """Stands for `threading.Timer` and for the task of an asynchronous Timeout state: it fires when it is told to."""

    def __init__(self, interval: float, function: Callable[..., Any] | None = None, args: Any = (), kwargs: Any = None):
        self.interval = interval
        self.event_data = args[0] if args else None
        self.daemon = True
        self.is_set = False

    def start(self) -> None:
        """It is set."""
        self.is_set = True

    def cancel(self) -> bool:
        """It is not set any more."""
        self.is_set = False
        return True

    def is_alive(self) -> bool:
        """Whether it is set."""
        return self.is_set

    def done(self) -> bool:
        """Whether it is not."""
        return not self.is_set


def set_timer(state: Any, event_data: Any) -> VirtualTimer:
    """A timer of `state` that is set for the model that entered it."""
    timer = VirtualTimer(state.timeout, args=(event_data,))
    timer.start()
    return timer


@contextmanager
def install_timers() -> Iterator[None]:
    """Timeout states set virtual timers meanwhile."""
    places: tuple[tuple[Any, str, Any], ...] = (
        (states, "Timer", VirtualTimer),
        (async_states.AsyncTimeout, "create_timer", set_timer),
    )
    kept = [getattr(owner, name) for owner, name, _ in places]
    try:
        for owner, name, made in places:
            setattr(owner, name, made)
        yield
    finally:
        for (owner, name, _), original in zip(places, kept, strict=True):
            setattr(owner, name, original)


class NeverEnds(RuntimeError):
    """A coroutine waits, and nothing is left that could wake it."""


class _Selector(selectors.DefaultSelector):
    """Never waits: what it would have waited is added to the time of its loop."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise NeverEnds("a callback awaits something that nobody will ever do")
        self.loop.seconds += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once: `await asyncio.sleep(60)` takes no time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        selector = _Selector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Seconds since the loop was made, as virtual time has it."""
        return self.seconds
