"""SlowLink: what is sent to a node passes at so many bytes a second, one message behind the other.

A message waits for all that is before it, and for itself; one that finds more than `QUEUE_BYTES` before it is dropped,
as by a router.  What a sender would rather wait with than lose takes its turn, however much is before it.
"""

from __future__ import annotations

from typing import Any, Final

from statemachines_sim.units import S

HEADER_BYTES: Final = 100
"""Of each message."""
PAYLOAD_BYTES: Final = 1_000
"""Of each number in a message: it is `last - first + 1` of them where a message has a range, else one."""
QUEUE_BYTES: Final = 1 << 18
"""So much waits before a link."""


def size_of(message: Any) -> int:
    """Bytes of a message."""
    first, last = getattr(message, "first", None), getattr(message, "last", None)
    count = last - first + 1 if isinstance(first, int) and isinstance(last, int) and last >= first else 1
    return HEADER_BYTES + PAYLOAD_BYTES * count


class SlowLink:
    """`bytes_per_s` go over it."""

    def __init__(self, bytes_per_s: int) -> None:
        self.bytes_per_s = bytes_per_s
        self._free_ns = 0

    def pass_through(self, now_ns: int, delay_ns: int, message: Any, *, waits: bool = False) -> int | None:
        """After how long a message arrives that would take `delay_ns`; None: it is dropped (never one that `waits`)."""
        begin_ns = max(self._free_ns, now_ns)
        queued = (begin_ns - now_ns) * self.bytes_per_s // S
        size = size_of(message)
        if not waits and queued + size > max(QUEUE_BYTES, size):
            return None
        self._free_ns = begin_ns + size * S // self.bytes_per_s
        return self._free_ns - now_ns + delay_ns
