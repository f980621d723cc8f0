"""Loop: the turns of one host: an event goes in, what comes out is performed, in order, and whatever comes up meanwhile
waits its turn.

    loop = HostLoop(host, port, now)            # now() -> nanoseconds: whoever makes the loop has the clock
    loop.feed(party, event)                     # a message, an answer, a call of the application
    wake me at loop.deadline()                  # then loop.fire()

Every interpreter of effects is a `Port`: sockets and stores, a simulated network, a script, a test.  It performs what
leaves the host, and may feed what comes of it at once, later, or often; the loop sees to it that no node is re-entered
and that nothing overtakes the effects of the step before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from statemachines.kernel.effect import Ask, Send, Tell
from statemachines.kernel.errors import GaplessError
from statemachines.kernel.event import Event
from statemachines.kernel.host import Host, Outgoing

Act = Callable[[int], list[Outgoing]]
"""Feeds the host at a time in nanoseconds, and gives what comes out."""

Feed = Callable[[str, Event], None]
"""Feeds an event to a party of the host: at once, or when its turn has come."""

TURNS_MAX: Final = 1_000_000
"""So many turns may follow each other before the host is idle again: more is a circle that never ends."""


class Port(Protocol):
    """What the effects of a host become; `perform` and `route_tell` are called in the order of the effects."""

    def perform(self, party: str, effect: Send | Ask, feed: Feed) -> None:
        """A message of `party` leaves, or a request to a service; answers are fed, at once, later, one or many."""
        ...

    def route_tell(self, party: str, event: Event) -> None:
        """Something for the application; what it does about it waits until the effects before it are performed."""
        ...


class HostLoop:
    """`before` hears what a turn brought before any of it is performed: there its rows are written."""

    __slots__ = ("_before", "_perform", "_running", "_tell", "_waiting", "host", "now")

    def __init__(
        self,
        host: Host,
        port: Port,
        now: Callable[[], int],
        *,
        before: Callable[[list[Outgoing]], None] | None = None,
    ) -> None:
        self.host = host
        self.now = now
        self._perform = port.perform
        self._tell = port.route_tell
        self._before = before
        self._running = False
        self._waiting: deque[Act] = deque()

    def feed(self, party: str, event: Event) -> None:
        """Feed `event` to `party`, and perform what comes of it."""
        self.run(lambda now_ns: self.host.feed(party, event, now_ns))

    def fire(self) -> None:
        """Fire every timer that is due."""
        self.run(self.host.fire)

    def deadline(self) -> int | None:
        """When `fire` is to be called next, in nanoseconds; None: not before something is fed."""
        return self.host.deadline()

    def run(self, act: Act) -> None:
        """Let `act` feed the host, perform what comes out, and then what has come up meanwhile; called from within, it
        is what comes up.  Where an act raises, those behind it wait for the next call."""
        waiting = self._waiting
        if self._running or waiting:
            waiting.append(act)
            if self._running:
                return
            act = waiting.popleft()
        self._running = True
        try:
            self._perform_all(act(self.now()))
            if waiting:
                self._catch_up()
        finally:
            self._running = False

    def perform(self, out: list[Outgoing]) -> None:
        """Perform what came out of the host, in order, and then what has come up meanwhile: `run` for who has fed the
        host already, from outside, and cannot afford a closure for each event."""
        self._running = True
        try:
            self._perform_all(out)
            if self._waiting:
                self._catch_up()
        finally:
            self._running = False

    def _perform_all(self, out: list[Outgoing]) -> None:
        if self._before is not None:
            self._before(out)
        feed = self.feed
        for party, effect in out:
            if type(effect) is Tell:
                self._tell(party, effect.event)
            else:
                self._perform(party, effect, feed)  # type: ignore[arg-type]

    def _catch_up(self) -> None:
        waiting, turns = self._waiting, 1
        while waiting:
            if turns >= TURNS_MAX:
                raise GaplessError(f"{turns} turns of a host and no end: what it is told makes it go on for ever")
            turns += 1
            self._perform_all(waiting.popleft()(self.now()))
