"""Timing: which timers of a component are timed, and which fields of its record hold a time.

In a system with a tick (`TickClock`) a component steps at one and the same `now_ns` for ever, and when time passes the
times that its record holds move into the past.  So what the shipped `step` reckons are deadlines relative to now.  For
that the explorer must know every field that holds a time: a `Stamp`.  That none is missing, and that the largest
constant is as large as said, is checked for every entry (`shift`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Fsm

Move = Callable[[int], int]
"""A time in nanoseconds, and the one to take its place."""


class Stamp(msgspec.Struct, frozen=True):
    """A field that holds a time: its `name`, for people; `largest_ns`: the largest constant that is ever added to it;
    beyond that age it grows no older, since every deadline reckoned from it is over.

    `over(record, live, dead)`: the record with `live(time)` in place of each time that may still be read, and
    `dead(time)` in place of each that is written anew before it is read again.
    """

    name: str
    largest_ns: int
    over: Callable[[Any, Move, Move], Any]


class Timing(msgspec.Struct, frozen=True):
    """`tick_ns`: the length of a tick; `timers`: those that are timed (all others may fire at any moment while they are
    set); `late`: timer -> by how many ticks it may fire late (else: at once); `stamps` of the record; `now_ns`: what
    steps are told; `authority`: the timers that fire before others that are due (from the machine)."""

    tick_ns: int
    timers: tuple[str, ...] = ()
    stamps: tuple[Stamp, ...] = ()
    late: dict[str, int] = {}
    now_ns: int = 0
    authority: frozenset[str] = frozenset()

    def check(self, name: str, fsm: Fsm[Any], silent: frozenset[str]) -> None:
        """Raises `ConfigurationError` for a timer that the machine of component `name` does not have, or that never
        fires; and for a tick or a delay that is none."""
        if self.tick_ns < 1:
            raise ConfigurationError(f"tick of {name}", self.tick_ns, "must be 1 nanosecond at least")
        known = fsm.timer_registry()
        for timer in self.timers:
            if timer not in known:
                raise ConfigurationError(f"timed timers of {name}", timer, f"unknown; there are: {', '.join(known)}")
            if timer in silent:
                rule = "never fires (it is silent), so time would stand still: it is either timed or silent"
                raise ConfigurationError(f"timed timers of {name}", timer, rule)
        for timer, ticks in self.late.items():
            if timer not in self.timers or ticks < 1:
                rule = "must be a timed timer, and late by 1 tick at least"
                raise ConfigurationError(f"late timers of {name}", f"{timer}: {ticks}", rule)

    def ticks_until(self, deadline_ns: int) -> int:
        """How many ticks from now a deadline is reached; 0 and below: it is."""
        return -(-(deadline_ns - self.now_ns) // self.tick_ns)

    def move_stamps(self, record: Any, ticks: int) -> Any:
        """The record, its stamps so many ticks older; those that are dead are all alike."""
        for stamp in self.stamps:
            record = stamp.over(record, self._older(stamp, ticks), _forget_time)
        return record

    def alter_dead_times(self, record: Any) -> Any:
        """The record with other times in place of the dead ones: nothing may come of it."""
        for stamp in self.stamps:
            record = stamp.over(record, _same, lambda time_ns: self.now_ns + 1_000_003 * self.tick_ns)
        return record

    def _older(self, stamp: Stamp, ticks: int) -> Move:
        oldest = self.now_ns - self.oldest(stamp) * self.tick_ns
        return lambda time_ns: max(time_ns - ticks * self.tick_ns, oldest)

    def oldest(self, stamp: Stamp) -> int:
        """The age in ticks beyond which a stamp grows no older."""
        return -(-stamp.largest_ns // self.tick_ns) + max(self.late.values(), default=0)

    def describe_timing(self) -> dict[str, str]:
        """What is printed of it beside every verdict."""
        lines = {"timed": ", ".join(map(self._timer, self.timers))} if self.timers else {}
        if self.stamps:
            stamps = (f"{one.name} (up to {one.largest_ns} ns, {self.oldest(one)} ticks)" for one in self.stamps)
            lines["stamps"] = ", ".join(stamps)
        return lines

    def _timer(self, timer: str) -> str:
        return f"{timer} (late by {self.late[timer]} ticks at most)" if timer in self.late else timer


def complete_timings(
    name: str, given: Mapping[str, Timing], machines: Mapping[str, Fsm[Any]], silent: frozenset[str]
) -> dict[str, Timing]:
    """A timing for each kind of party of component `name`: those without one have no timed timers.  Raises
    `ConfigurationError` for unknown kinds and timers, and for two ticks."""
    for kind, timing in given.items():
        if kind not in machines:
            raise ConfigurationError(f"timing of {name}", kind, f"no kind of party; there are: {', '.join(machines)}")
        timing.check(f"{name} ({kind})", machines[kind], silent)
    ticks = {(timing.tick_ns, timing.now_ns) for timing in given.values()}
    if len(ticks) > 1:
        raise ConfigurationError(f"tick of {name}", sorted(ticks), "the parties of a process have one tick")
    every = {kind: given.get(kind, Timing(tick, now_ns=now_ns)) for tick, now_ns in ticks for kind in machines}
    return {kind: replace(timing, authority=machines[kind].authority) for kind, timing in every.items()}


def merge_timings(timings: Mapping[str, Timing]) -> Timing | None:
    """What is printed of them, and the tick that they share (None: there are none)."""
    if not timings:
        return None
    some = [one for one in timings.values() if one.timers or one.stamps]
    if len(some) == 1:
        return some[0]
    names = {kind: tuple(f"{timer} of {kind}" for timer in one.timers) for kind, one in timings.items()}
    late = {f"{timer} of {kind}": ticks for kind, one in timings.items() for timer, ticks in one.late.items()}
    timers = tuple(name for some in names.values() for name in some)
    stamps = tuple(stamp for one in timings.values() for stamp in one.stamps)
    first = next(iter(timings.values()))
    return Timing(first.tick_ns, timers, stamps, late, first.now_ns)


def _forget_time(time_ns: int) -> int:
    return 0


def _same(time_ns: int) -> int:
    return time_ns
