"""RateLimitedLog: what may happen for every client is said a few times a minute, with how often it has happened."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.clock import Clock

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
