"""ComplaintLog: lines about peers that do something wrong; whoever makes the same mistake again and again has one a
minute."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.rate_limited_log import RateLimitedLog

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
