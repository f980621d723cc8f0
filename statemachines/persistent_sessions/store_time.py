"""Store time: what ages are counted by, and how fast it may run (page: "Settled after the second trial from outside").

The clock of a database may be set ahead by a day.  Whoever uses the store compares it with a steady clock: where it
runs ahead of that by more than a slack, store time goes on as the steady clock does, and ages stand still until an
operator has looked, or the clock has come back.
"""

from __future__ import annotations

from typing import Final

import msgspec

SLACK_NS: Final = 10_000_000_000
"""So far a clock may be set ahead, in all, and store time goes with it."""

LEAD_STEP_NS: Final = 1_000_000_000
"""The lead of store time before the steady clock is noted anew where it has changed by so much."""

APART_NS: Final = 3_600_000_000_000
"""So far the clocks of a database and of a process that begins may be apart."""

RATE: Final = 1_000
"""Beside that, clocks may differ by one part in so many."""


class StoreTime(msgspec.Struct, frozen=True, gc=False):
    """What a store keeps of its time, in nanoseconds."""

    time_ns: int
    """Of the last commit."""
    ahead_ns: int = 0
    """So far the clock has leapt ahead: store time is what it shows, less this."""
    stopped_ns: int = 0
    """Ages count up to this store time, and no further (0: they count up to now)."""

    def age_limit_ns(self, now_ns: int) -> int:
        """Up to when ages count, at store time `now_ns`."""
        return min(now_ns, self.stopped_ns) if self.stopped_ns else now_ns


class ClockState(msgspec.Struct, frozen=True):
    """What the clock of a database shows; store time now; up to which store time ages count (0: up to now)."""

    clock_ns: int
    time_ns: int
    stopped_ns: int

    @property
    def is_stopped(self) -> bool:
        """Ages stand still."""
        return self.stopped_ns > 0

    @property
    def ahead_s(self) -> float:
        """How far the clock is ahead of store time; negative: behind, and store time stands still."""
        return (self.clock_ns - self.time_ns) / 1e9

    @property
    def stopped_s(self) -> float:
        """For how long ages have stood still."""
        return (self.time_ns - self.stopped_ns) / 1e9 if self.stopped_ns else 0.0


class Steady(msgspec.Struct, frozen=True, gc=False):
    """What a process knows of store time by its steady clock."""

    lead_ns: int
    """So far store time has been ahead of it, at most."""
    steady_ns: int
    """When it looked last."""

    def expected_time_ns(self, steady_ns: int) -> int:
        """Store time now, if nobody has set the clock."""
        return steady_ns + self.lead_ns

    def look(self, time_ns: int, steady_ns: int) -> Steady:
        """It has seen this store time: two clocks that differ by a little drift apart."""
        most_ns = self.lead_ns + max(0, steady_ns - self.steady_ns) // RATE
        return Steady(max(self.lead_ns, min(time_ns - steady_ns, most_ns)), steady_ns)


def find_new_lead(known: Steady | None, noted_ns: int | None) -> tuple[int, ...]:
    """The lead that is to be noted for later processes; none where nothing is known, or where it is noted."""
    if known is None or (noted_ns is not None and abs(known.lead_ns - noted_ns) < LEAD_STEP_NS):
        return ()
    return (known.lead_ns,)


def expect_first_time(known: StoreTime, clock_ns: int, wall_ns: int) -> int | None:
    """Store time for a process that has not looked yet, whose own clock shows `wall_ns`; None: as the database says.

    A clock that is far ahead of both that and the last commit may have been set ahead while others ran.
    """
    most_ns = max(known.time_ns, wall_ns)
    is_far = known.time_ns > 0 and clock_ns - known.ahead_ns > most_ns + APART_NS
    return most_ns if is_far else None


def next_time(known: StoreTime, clock_ns: int, expected_ns: int | None) -> StoreTime:
    """The time of a commit, behind that of every other: by the clock, as far as it goes with the steady one
    (`expected_ns`; None: nobody can say yet)."""
    shown_ns = clock_ns - known.ahead_ns
    if expected_ns is not None and has_leapt(shown_ns, expected_ns):
        time_ns = max(expected_ns, known.time_ns + 1)
        return StoreTime(time_ns, clock_ns - expected_ns, known.stopped_ns or expected_ns)
    if known.ahead_ns and has_come_back(known, clock_ns, expected_ns):
        return StoreTime(max(clock_ns, known.time_ns + 1))
    return StoreTime(max(shown_ns, known.time_ns + 1), known.ahead_ns, known.stopped_ns)


def time_of_read(known: StoreTime, clock_ns: int, expected_ns: int | None) -> int:
    """Store time for whoever commits nothing: never before the last commit."""
    shown_ns = clock_ns - known.ahead_ns
    if expected_ns is not None and has_leapt(shown_ns, expected_ns):
        shown_ns = expected_ns
    return max(shown_ns, known.time_ns)


def has_come_back(known: StoreTime, clock_ns: int, expected_ns: int | None) -> bool:
    """Whether a clock that had leapt shows again what it should; nobody having watched it meanwhile, whether it is
    nearer to the last commit than to where it had leapt."""
    if expected_ns is None:
        return clock_ns - known.time_ns < known.ahead_ns // 2
    return not has_leapt(clock_ns, expected_ns)


def has_leapt(shown_ns: int, expected_ns: int) -> bool:
    """Whether a clock that shows this has been set ahead by more than the slack."""
    return shown_ns > expected_ns + SLACK_NS
