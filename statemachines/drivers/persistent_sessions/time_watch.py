"""TimeWatch: one process's look at the time of its store, by its steady clock; it says when ages stand still."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.persistent_sessions.store_time import (
    ClockState,
    Steady,
    StoreTime,
    expect_first_time,
    find_new_lead,
    next_time,
    time_of_read,
)

logger = logging.getLogger("gapless")

SAY_AGAIN_NS: Final = 60_000_000_000
"""While ages stand still it is said again after that."""

STOPPED: Final = (
    "%s: its clock has been set ahead by %.0f s: nothing expires and nothing is deleted for its age, "
    "until the clock is set back, or you run `gapless sessions clock --accept --store ...` (no age counts what the "
    "clock has leapt over)"
)

UNUSED_NS: Final = 3_600_000_000_000
UNUSED: Final = (
    "%s: nobody has written to it for %.1f hours: that time counts in all ages, so what has expired meanwhile is "
    "deleted now; if the clock is wrong, stop all nodes and set it back"
)


class TimeWatch:
    """`where`: the store, for the log; `steady`: nanoseconds of a clock that nobody sets; `warn`: as a logger does;
    `boot`: of the machine, as long as that clock runs ("": unknown); `wall`: the clock of this machine."""

    def __init__(
        self,
        where: str,
        steady: Clock = steady_ns,
        warn: Callable[..., object] = logger.warning,
        boot: str = "",
        wall: Clock = time.time_ns,
    ) -> None:
        self.boot = boot
        self._wall = wall
        self._noted_ns: int | None = None
        self._is_new = True
        self._where = where
        self._steady = steady
        self._warn = warn
        self._known: Steady | None = None
        self._said_ns = 0
        self._is_stopped = False
        self._read: tuple[StoreTime, int, int | None, int] = (StoreTime(0), 0, None, 0)
        """Of the last read: what was known, what the clock showed, what was expected, and store time."""

    @property
    def is_new(self) -> bool:
        """It has not looked yet, and knows nothing of an earlier process."""
        return self._known is None

    def begin(self, lead_ns: int) -> None:
        """A process of the same boot has seen store time so far ahead of the steady clock."""
        self._known = Steady(lead_ns, self._steady())
        self._noted_ns = lead_ns

    def take_lead(self) -> tuple[int, ...]:
        """The lead that is to be noted for later processes of this boot; none where it is noted."""
        found = find_new_lead(self._known, self._noted_ns)
        if found and self.boot:
            self._noted_ns = found[0]
            return found
        return ()

    def commit(self, known: StoreTime, clock_ns: int) -> StoreTime:
        """The time of a commit that follows `known`, where the clock of the database shows `clock_ns`."""
        steady_ns = self._steady()
        expected_ns = self._expected_ns(known, clock_ns, steady_ns)
        if self._is_new:
            self._say_unused(known, clock_ns, expected_ns)
        found = next_time(known, clock_ns, expected_ns)
        self._look(found.time_ns, steady_ns)
        self._say(found, steady_ns)
        return found

    def read(self, known: StoreTime, clock_ns: int) -> int:
        """Store time for a read."""
        steady_ns = self._steady()
        expected_ns = self._expected_ns(known, clock_ns, steady_ns)
        if self._is_new:
            self._say_unused(known, clock_ns, expected_ns)
        now_ns = time_of_read(known, clock_ns, expected_ns)
        self._look(now_ns, steady_ns)
        self._read = (known, clock_ns, expected_ns, now_ns)
        return now_ns

    def describe_clock(self) -> ClockState:
        """The clock at the last read: a commit would find it so."""
        known, clock_ns, expected_ns, now_ns = self._read
        return ClockState(clock_ns, now_ns, next_time(known, clock_ns, expected_ns).stopped_ns)

    def _expected_ns(self, known: StoreTime, clock_ns: int, steady_ns: int) -> int | None:
        if self._known is None:
            return expect_first_time(known, clock_ns, self._wall())
        return self._known.expected_time_ns(steady_ns)

    def _look(self, time_ns: int, steady_ns: int) -> None:
        known = self._known
        self._known = Steady(time_ns - steady_ns, steady_ns) if known is None else known.look(time_ns, steady_ns)

    def _say_unused(self, known: StoreTime, clock_ns: int, expected_ns: int | None) -> None:
        """At the first look: unless the machine runs since, nobody can tell such a time from a clock that was set ahead
        meanwhile."""
        passed_ns = time_of_read(known, clock_ns, expected_ns) - known.time_ns
        self._is_new = False
        if known.time_ns and passed_ns > UNUSED_NS:
            self._warn(UNUSED, self._where, passed_ns / UNUSED_NS)

    def _say(self, found: StoreTime, steady_ns: int) -> None:
        was, self._is_stopped = self._is_stopped, bool(found.stopped_ns)
        if self._is_stopped and (not was or steady_ns - self._said_ns >= SAY_AGAIN_NS):
            self._said_ns = steady_ns
            self._warn(STOPPED, self._where, found.ahead_ns / 1e9)
        elif was and not self._is_stopped:
            self._warn("%s: ages count again", self._where)
