"""RateLimitedLog: what may happen for every client is said once a minute, with how often it has happened."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.clock import Clock

SAY_NS: Final = 60_000_000_000
"""So long nobody is told again."""


class RateLimitedLog:
    """`count`: how often it has happened."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._clock = clock
        self._said_ns: int | None = None

    def count_event(self) -> bool:
        """Once more; whether it is time to say so."""
        self.count += 1
        now_ns = self._clock()
        if self._said_ns is not None and now_ns - self._said_ns < SAY_NS:
            return False
        self._said_ns = now_ns
        return True
