"""Timers: a name, an event, and the states it belongs to.

Entering one of its states from outside arms a timer, leaving all of them cancels it; a step says nothing about that.
A row may re-arm it inside a state with `SetTimer`.  With `on_entry=False` only a row arms it (a lease that begins with
the first answer), and leaving its states still cancels it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from statemachines.kernel.event import TimerFired


class Timer:
    """One timer of a declaration.

    `name` as in effects and traces; `event` is what its firing feeds; `states` it belongs to; `period_ns(record)` is
    the time from entering to firing, in nanoseconds.
    """

    __slots__ = ("event", "name", "on_entry", "period_ns", "states")

    def __init__(
        self,
        name: str,
        event: type[TimerFired],
        states: tuple[Enum, ...],
        period_ns: Callable[[Any], int],
        *,
        on_entry: bool = True,
    ) -> None:
        self.name = name
        self.event = event
        self.states = states
        self.period_ns = period_ns
        self.on_entry = on_entry

    def __repr__(self) -> str:
        return f"Timer({self.name!r} in {', '.join(str(s.value) for s in self.states)})"
