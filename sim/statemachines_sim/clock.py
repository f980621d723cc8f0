"""Clock: a SimPy environment whose time is integer nanoseconds, and so exact."""

from __future__ import annotations

import simpy


class Clock(simpy.Environment):
    """Events at equal times are processed in the order in which they were scheduled: a total order."""

    def __init__(self) -> None:
        super().__init__(0)

    @property
    def now(self) -> int:
        """Nanoseconds since the run began."""
        return self._now  # type: ignore[return-value]
