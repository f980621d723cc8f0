"""Timers: a name, an event, and the states it belongs to.

Entering one of its states from outside arms a timer, leaving all of them cancels it; a step says nothing about that.
A row may re-arm it inside a state with `SetTimer`.  A row that takes its event and stays must, or the timer never fires
again; a declaration warns of one that does not (`DeclarationWarning`), unless the timer says `once`.  Without a period,
or with `on_entry=False`, only a row arms it (a lease that begins with the first answer), and leaving its states still
cancels it.

Timers have a class.  One of *authority* is the end of something that its machine may do: a lease, a claim.  When it is
due it fires before any event and before all other timers, whatever their deadlines: whoever wakes late does not begin
with what it may not do any more.  All others have *patience*: they fire after what waits to be heard, so that nobody is
given up whose answer is there.  But one that is set for now, or for a moment that is over, is no timeout: it is how a
machine goes on (a *continuation*), and fires before the next event.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from statemachines.kernel.event import TimerFired


class Timer:
    """One timer of a declaration.

    `name` as in effects and traces; `event` is what its firing feeds; `states` it belongs to; `period_ns(record)` is
    the time from entering to firing, in nanoseconds (None: entering does not arm it); `authority`: it ends what the
    machine may do; `once`: a row that takes its event and stays is not meant to arm it again.
    """

    __slots__ = ("authority", "event", "name", "on_entry", "once", "period_ns", "states")

    def __init__(
        self,
        name: str,
        event: type[TimerFired],
        states: tuple[Enum, ...],
        period_ns: Callable[[Any], int] | None = None,
        *,
        on_entry: bool = True,
        authority: bool = False,
        once: bool = False,
    ) -> None:
        self.once = once
        self.authority = authority
        self.name = name
        self.event = event
        self.states = states
        self.period_ns = period_ns
        self.on_entry = on_entry and period_ns is not None

    def __repr__(self) -> str:
        return f"Timer({self.name!r} in {', '.join(str(s.value) for s in self.states)})"
