"""ReorderBuffer: messages that wait a moment for those that they have overtaken (SW-102)."""

from __future__ import annotations

from bisect import insort
from typing import Final

from statemachines.drivers.sequence_windows.datagram import Datagram
from statemachines.kernel import ConfigurationError

REORDER_NS: Final = 50_000_000
"""No message waits for longer."""
REORDER_MAX: Final = 64
"""No receiver waits for more missing messages than these."""
HELD_MAX: Final = 4096
HELD_BYTES_MAX: Final = 16 << 20

Line = tuple[str, str, int]
"""A publisher, a subject, and a life of the publisher."""


class ReorderBuffer:
    """`most`: a message waits where no more messages than these are missing before it (0: none waits)."""

    def __init__(self, most: int) -> None:
        if not 0 <= most <= REORDER_MAX:
            raise ConfigurationError("reorder_max", most, f"must be 0 to {REORDER_MAX}")
        self.most = most
        self.lines: dict[Line, tuple[int, list[tuple[int, int, Datagram]]]] = {}
        self._count = self._size_bytes = 0

    def hold(self, line: Line, one: Datagram, now_ns: int) -> bool:
        """Let the message wait; False where there is no room."""
        if self._count >= HELD_MAX or self._size_bytes + len(one.payload) > HELD_BYTES_MAX:
            return False
        _, held = self.lines.setdefault(line, (now_ns + REORDER_NS, []))
        if len(held) >= self.most:
            return False
        insort(held, (one.number, len(held), one))
        self._count += 1
        self._size_bytes += len(one.payload)
        return True

    def pop(self, line: Line, number: int) -> Datagram | None:
        """The first message of the line that waits, if it has no higher number than this."""
        _, held = self.lines.get(line, (0, []))
        if not held or held[0][0] > number:
            return None
        one = held.pop(0)[2]
        self._count -= 1
        self._size_bytes -= len(one.payload)
        if not held:
            del self.lines[line]
        return one

    def find_due(self, now_ns: int) -> list[Line]:
        """The lines whose messages have waited long enough."""
        return [line for line, (until_ns, _) in self.lines.items() if until_ns <= now_ns]

    def deadline(self) -> int | None:
        """When the first line has waited long enough; None: none waits."""
        return min((until_ns for until_ns, _ in self.lines.values()), default=None)
