"""Clock: what tells a driver the time.

Deadlines and leases count by `steady_ns`: no clock that somebody sets, and one that goes on while the machine sleeps.
An event loop's own clock may stand still meanwhile, so whoever waits for a deadline on one looks again every second.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

Clock = Callable[[], int]
"""Nanoseconds, since the epoch or of a steady clock."""

LOOK_AGAIN_S: Final = 1.0
"""A host that waits for a deadline looks at its clock at least so often."""

steady_ns: Final[Clock] = (
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns
)
"""Nanoseconds since some moment, never set; it goes on while the machine is suspended, where the system has such a
clock (Linux), and stands still with the monotonic one elsewhere."""


BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id() -> str:
    """Which boot of the machine this is ("": the system does not say): so long `steady_ns` counts on."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def wall_offset_ns() -> int:
    """What to add to `steady_ns` for nanoseconds since the epoch."""
    return time.time_ns() - steady_ns()
