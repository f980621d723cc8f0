"""ComplaintLog: lines about peers that do something wrong; whoever makes the same mistake again and again has one a
minute.

RateLimitedLog: what may happen for every client is said a few times a minute, with how often it has happened.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from statemachines.drivers.clock import Clock, steady_ns

SAY_NS: Final = 60_000_000_000
"""So long a line is not repeated."""


class RateLimitedLog:
    """`count`: how often it has happened; `burst`: lines that may be written within a minute."""

    def __init__(self, clock: Clock, burst: int = 1) -> None:
        self.count = 0
        self._clock = clock
        self._burst = burst
        self._began_ns: int | None = None
        self._lines = 0

    def count_event(self) -> bool:
        """Once more; whether it is time to say so."""
        self.count += 1
        now_ns = self._clock()
        if self._began_ns is None or now_ns - self._began_ns >= SAY_NS:
            self._began_ns, self._lines = now_ns, 0
        self._lines += 1
        return self._lines <= self._burst


logger = logging.getLogger("gapless")

REPEAT_S: Final = 60.0
"""The same complaint about the same peer is not logged again for so long: it may come back every two seconds."""

COMPLAINTS_MAX: Final = 1_000
"""Complaints that are remembered for that."""

LINES_MAX: Final = 100
"""Complaints that are logged within a minute, about whatever peers."""


class ComplaintLog:
    """One for all connections of a party, also where each has a transport of its own."""

    def __init__(self) -> None:
        self._complaints: dict[tuple[str, str], tuple[float, int]] = {}
        """(`about`, complaint) -> until when it is not logged again, and how often it was made."""
        self._lines = RateLimitedLog(steady_ns, LINES_MAX)

    def complain(self, about: str, peer: str, what: str) -> None:
        """One line about a peer that is remembered as `about`: its host, or its address if we dial that.  A line that
        is repeated says how often that was so."""
        now = asyncio.get_running_loop().time()
        until, count = self._complaints.get((about, what), (now, 0))
        is_quiet = now < until
        if not count and len(self._complaints) >= COMPLAINTS_MAX:
            self._complaints.clear()
        self._complaints[about, what] = (until if is_quiet else now + REPEAT_S, count + 1)
        if is_quiet:
            return
        if self._lines.count_event():
            logger.warning("%s %s%s", peer, what, f" ({count + 1} times so far)" if count else "")
        elif not self._lines.count % COMPLAINTS_MAX:
            logger.warning("complaints about %d peers so far; a minute has %d lines", self._lines.count, LINES_MAX)
