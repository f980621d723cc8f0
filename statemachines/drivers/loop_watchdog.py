"""LoopWatchdog: whether the loop of a host turns, and what is said when it did not.

Who holds a lease has little time: while its loop stands still (an application that computes in it, a process that is
stopped) no ping goes out and no answer is heard.  The host plans to look at its clock every eighth of a lease; how far
beyond that moment it is tells for how long its loop has not turned.
"""

from __future__ import annotations

import logging
from typing import Final

from statemachines.drivers.clock import Clock

logger = logging.getLogger("gapless")

SAY_AGAIN_NS: Final = 60_000_000_000
"""A host that stands still again and again says so this often."""


class LoopWatchdog:
    """`node`: who it is; `lease_ns`: what others count on; `clock`: the steady one; `mend`: what to do about it."""

    def __init__(self, node: str, lease_ns: int, clock: Clock, mend: str) -> None:
        self.look_again_s = lease_ns / 8 / 1e9
        self.quarter_ns = lease_ns // 4
        self._node = node
        self._lease_ns = lease_ns
        self._clock = clock
        self._mend = mend
        self._planned_ns: int | None = None
        self._said_ns: int | None = None

    def plan(self, at_ns: int) -> None:
        """The loop is to come by at this moment; a plan that is overdue stays, since the loop has not turned since."""
        if self._planned_ns is None or (at_ns != self._planned_ns and self._overdue_ns() <= 0):
            self._planned_ns = at_ns

    def note_turn(self) -> None:
        """The loop turns; where it stood still for more than half a lease that is said."""
        planned_ns, self._planned_ns = self._planned_ns, None
        if planned_ns is None:
            return
        now_ns = self._clock()
        stood_ns = now_ns - planned_ns
        if stood_ns * 2 <= self._lease_ns:
            return
        if self._said_ns is not None and now_ns - self._said_ns < SAY_AGAIN_NS:
            return
        self._said_ns = now_ns
        what = "node %s: its loop stood still for %.1f s or more, and its leases last %.1f s: %s"
        logger.warning(what, self._node, stood_ns / 1e9, self._lease_ns / 1e9, self._mend)

    def is_late(self) -> bool:
        """A quarter of a lease has passed since the loop turned: it is an eighth beyond what was planned."""
        return self._overdue_ns() * 8 > self._lease_ns

    def _overdue_ns(self) -> int:
        return 0 if self._planned_ns is None else self._clock() - self._planned_ns
