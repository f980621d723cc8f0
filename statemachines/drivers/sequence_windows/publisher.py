"""SequencedPublisher: numbers what an application publishes, over any transport."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from statemachines.drivers.clock import Clock, steady_ns
from statemachines.drivers.sequence_windows.datagram import DATAGRAM_MAX, PUBLISHER_MAX, check_size, encode
from statemachines.kernel import ConfigurationError
from statemachines.sequence_windows.publisher_table import PublisherTable
from statemachines.sequence_windows.publisher_window import Stamped
from statemachines.sequence_windows.rotation import Window
from statemachines.sequence_windows.subject_publishers import LIFE_MAX


class SequencedPublisher:
    """`send(data)` is the transport's; `publisher`: an id that nobody has beside us.  `life`: a number of 64 bits that
    no earlier publisher of this id had, for its numbers begin anew; none: one is drawn.  0: there is none, and a
    program that starts again must take another id.  `window`: when to forget subjects; `size`: the most bytes that
    `send` takes; `wall`: the clock that numbers come from, `now`: one that does not step, for windows;
    `observe(subject, stamped, t_ns)` sees every number.

    Not for several threads at a time.  A number whose message `send` raises for is used up: receivers count a loss.
    """

    def __init__(
        self,
        send: Callable[[bytes], object],
        *,
        publisher: str,
        life: int | None = None,
        window: Window | None = None,
        size: int = DATAGRAM_MAX,
        wall: Clock = time.time_ns,
        now: Clock = steady_ns,
        observe: Callable[[str, Stamped, int], object] | None = None,
    ) -> None:
        if not 0 < len(publisher) <= PUBLISHER_MAX:
            raise ConfigurationError("publisher", publisher[:64], f"must be 1 to {PUBLISHER_MAX} letters")
        life = secrets.randbits(64) or 1 if life is None else life
        if not 0 <= life <= LIFE_MAX:
            raise ConfigurationError("life", life, "must be 0 to 2**64 - 1")
        self.publisher = publisher
        self.life = life
        self.table = PublisherTable(window, now())
        self._send = send
        self._size = size
        self._wall = wall
        self._now = now
        self._observe = observe

    def publish(self, subject: str, payload: bytes) -> int:
        """Number a message and send it; its number.

        Raises `MessageTooLarge` and `ConfigurationError` (an empty subject, or one of more than 4 096 bytes), before
        anything is numbered; `FramesUsedUp` in 2116; and what `send` raises.
        """
        if not subject:
            raise ConfigurationError("subject", subject, "must not be empty")
        check_size(self.publisher, subject, payload, self._size, self.life)
        self.table.tick(self._now())
        t_ns = self._wall()
        told = self.table.stamp(subject, t_ns)
        if self._observe is not None:
            self._observe(subject, told, t_ns)
        number = told.number
        data = encode(self.publisher, subject, number, told.time_ns, told.chain, payload, self.life)
        self._send(data)
        return number

    def start_new_streams(self, t_ns: int | None = None) -> None:
        """The network has converged, at `t_ns` of the wall's clock (None: now): older streams begin anew
        with their next message, so that who comes late can verify them."""
        self.table.converge(self._wall() if t_ns is None else t_ns)

    def poll(self) -> None:
        """Let the window turn, and free what it has dropped for up to a millisecond (`publish` does a little of it)."""
        self.table.tick(self._now())
        end = self._now() + 1_000_000
        while self.table.subjects.free() and self._now() < end:
            pass
