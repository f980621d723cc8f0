"""Outbox: what a node says to one subscriber, in order, with the payloads of its messages.

Machines know messages by their ids.  A payload that this node has just stored is at hand, others are read from the
database, several at a time; whatever is behind one that is read waits.  Nothing goes out before the client is welcome,
and no more at a time than it acknowledges: a client that does not read fills no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from statemachines.drivers.lazy_queue import LazyQueue
from statemachines.drivers.persistent_sessions.host_request import ReadPayloads
from statemachines.drivers.persistent_sessions.payloads import Payload, Payloads
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.persistent_sessions.message import Delivered, Publish, Pubrel
from statemachines.persistent_sessions.times import MS

UNACKNOWLEDGED_MAX: Final = 2**20
"""Bytes that are on their way to a client; one message may be larger."""

READ_MAX: Final = 1_000
"""Messages that are read at a time, or fewer, if they are large: so many bytes as may be on their way."""

Soon = Callable[[Callable[[], None]], object]
"""Calls back later, or at once."""


def at_once(call: Callable[[], None]) -> None:
    """It is not worth waiting for more."""
    call()


QOS_0_MAX: Final = 10_000
"""Messages of QoS 0 that wait for a client; those beyond are dropped, as QoS 0 may be."""


class Outbox:
    """`say` brings messages to the client; `gone(message)` hears of one that was deleted while it waited here; `soon`
    calls back when what comes at once is there."""

    def __init__(
        self,
        desk: RequestQueue,
        payloads: Payloads,
        say: Callable[[Sequence[Delivered | Pubrel]], None],
        gone: Callable[[Publish], None],
        soon: Soon = at_once,
    ) -> None:
        self.dropped = 0
        """Messages of QoS 0 that there was no room for."""
        self._desk = desk
        self._payloads = payloads
        self._say = say
        self._gone = gone
        self._soon = soon
        self._waiting: LazyQueue[Publish | Pubrel] = LazyQueue()
        self._read: dict[str, Payload] = {}
        self._missing: frozenset[str] = frozenset()
        """Of those that were read last: what is not there."""
        self.is_welcome = False
        """The client is connected, and hears of messages."""
        self._closed = False
        self._reading = False
        self._is_saying = False
        self._sizes: dict[int, int] = {}
        self._unacknowledged = 0

    def welcome(self) -> None:
        """The client is connected: what has waited may go out."""
        self.is_welcome = True
        self._go_on()

    def bring(self, messages: Sequence[Publish | Pubrel]) -> None:
        """The next for the client."""
        is_next = self._waiting.items is None
        if len(self._waiting) + len(messages) > QOS_0_MAX:
            messages = self._drop_beyond(messages)
        self._waiting.extend(messages)
        if is_next:  # else what keeps those before them back keeps them back, too
            self._go_on()

    def _drop_beyond(self, messages: Sequence[Publish | Pubrel]) -> list[Publish | Pubrel]:
        """Without those of QoS 0 that there is no room for."""
        kept: list[Publish | Pubrel] = []
        for one in messages:
            if isinstance(one, Publish) and not one.packet and len(self._waiting) + len(kept) >= QOS_0_MAX:
                self.dropped += 1
            else:
                kept.append(one)
        return kept

    def acknowledge(self, packets: Iterable[int]) -> None:
        """The client has the messages."""
        for packet in packets:
            self._unacknowledged -= self._sizes.pop(packet, 0)
        self._go_on()

    def close(self) -> None:
        """Nothing goes out any more."""
        self._closed = True
        self._waiting.clear()
        self._read.clear()

    def _go_on(self) -> None:
        """Say what may go out; what is acknowledged meanwhile makes room for more of it."""
        if self._is_saying:
            return
        self._is_saying = True
        try:
            while self.is_welcome and self._waiting.items and not self._reading and not self._closed:
                ready = self._take_ready()
                if ready:
                    self._say(ready)
                elif self._unacknowledged >= UNACKNOWLEDGED_MAX:
                    return
                else:
                    self._find_next(self._waiting.items[0])
        finally:
            self._is_saying = False

    def _take_ready(self) -> list[Delivered | Pubrel]:
        """Those in front whose payloads are at hand, as far as the client has room: thousands, and no call for each."""
        ready: list[Delivered | Pubrel] = []
        waiting, read, kept, sizes = self._waiting.items, self._read, self._payloads.kept, self._sizes
        while waiting:
            message = waiting[0]
            if isinstance(message, Pubrel):
                ready.append(message)
            else:
                if self._unacknowledged >= UNACKNOWLEDGED_MAX:
                    break
                payload = (read.pop(message.message, None) if read else None) or kept.get(message.message)
                if payload is None:
                    break
                (topic, data, head), packet, left_ns = payload, message.packet, message.left_ns
                if packet:
                    sizes[packet] = size = len(topic) + len(data) + len(head or b"") + len(message.filter)
                    self._unacknowledged += size
                expiry_ms = None if left_ns is None else -(-left_ns // MS)  # up: 0 says that it is over
                ready.append(Delivered(packet, topic, data, message.filter, message.qos, message.dup, expiry_ms, head))
            waiting.popleft()
        if not waiting:
            self._waiting.clear()
        return ready

    def _find_next(self, message: Publish | Pubrel) -> None:
        """The payload of the next is not at hand."""
        if isinstance(message, Publish) and message.message in self._missing:
            self._waiting.popleft()
            self._gone(message)
        else:
            self._reading = True
            self._soon(self._look_up)

    def _look_up(self) -> None:
        """Read the first that are not at hand."""
        if self._closed:
            return
        wanted: dict[str, None] = {}
        for one in self._waiting:
            if isinstance(one, Publish) and one.message not in self._read and self._payloads.get(one.message) is None:
                wanted[one.message] = None
                if len(wanted) == READ_MAX:
                    break

        def take(found: dict[str, Payload | None]) -> None:
            self._reading = False
            if not self._closed:
                self._read |= {one: payload for one, payload in found.items() if payload is not None}
                self._missing = frozenset(one for one, payload in found.items() if payload is None)
                self._go_on()

        self._desk.give(ReadPayloads(tuple(wanted), UNACKNOWLEDGED_MAX), take)
