"""LocalClock: what a node believes the time is: off by a constant, fast or slow, and now and then ahead by a jump.

Integers all the way, so it is exact and the same on every machine: between two changes the local time grows by `rate`
millionths of the true time, rounded down.  That of a node never goes back, as a monotonic clock never does; a wall
clock of a device may be set back.
"""

from __future__ import annotations

from typing import Final

PPM: Final = 1_000_000
"""The rate of a true clock, in millionths."""


class LocalClock:
    """The clock of one node; all times in nanoseconds, `now_ns` is true time."""

    __slots__ = ("_local_ns", "_rate", "_true_ns")

    def __init__(self) -> None:
        self._true_ns = 0
        self._local_ns = 0
        self._rate = PPM

    def local(self, now_ns: int) -> int:
        """What the clock shows at a true time that is not before its last change."""
        return self._local_ns + (now_ns - self._true_ns) * self._rate // PPM

    def true(self, local_ns: int) -> int:
        """The first true time at which the clock shows `local_ns` or more, if it is not changed before."""
        return self._true_ns - (self._local_ns - local_ns) * PPM // self._rate

    def jump(self, now_ns: int, by_ns: int) -> None:
        """From now on it shows `by_ns` more; nobody sees the time in between."""
        self._rebase(now_ns)
        self._local_ns += by_ns

    def drift(self, now_ns: int, ppm: int) -> None:
        """From now on it runs at 1 + `ppm` millionths of the true rate; 0: as it should."""
        self._rebase(now_ns)
        self._rate = PPM + ppm

    def _rebase(self, now_ns: int) -> None:
        self._local_ns = self.local(now_ns)
        self._true_ns = now_ns
