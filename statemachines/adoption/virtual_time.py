"""Virtual time: timers of Timeout states, and an event loop, without threads and without waiting.

A timer is set or not set, and one that is set may fire at any moment, whatever its seconds are.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
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
def replace_attributes(places: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """Meanwhile these attributes of modules and classes are others: (owner, name, value)."""
    kept = [(owner, name, vars(owner)[name], value) for owner, name, value in places]
    try:
        for owner, name, _, value in kept:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, original, _ in kept:
            setattr(owner, name, original)


def install_timers() -> AbstractContextManager[None]:
    """Timeout states set virtual timers meanwhile."""
    return replace_attributes(((states, "Timer", VirtualTimer), (async_states.AsyncTimeout, "create_timer", set_timer)))


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
