"""Outbox: what a node says to one subscriber, in order, with the payloads of its messages.

Machines know messages by their ids.  A payload that this node has just stored is at hand, others are read from the
database, several at a time; whatever is behind one that is read waits.  Nothing goes out before the client is welcome,
and no more at a time than it acknowledges: a client that does not read fills no memory.

UnstoredMessages: the messages of a node whose rows are on their way into the database.

Each goes to the writers of its sessions once it is in the database itself, and with their rows once more: a collector
may have deleted it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from statemachines.drivers.lazy_queue import LazyQueue
from statemachines.drivers.persistent_sessions.host_requests import ReadPayloads, ReadStoreTime
from statemachines.drivers.persistent_sessions.life_requests import DueWill
from statemachines.drivers.persistent_sessions.machine_requests import StoreRows
from statemachines.drivers.persistent_sessions.payloads import Payload, Payloads, SharedOrigin
from statemachines.drivers.persistent_sessions.request_queue import RequestQueue
from statemachines.drivers.persistent_sessions.route_rows import PutMessage, RetainedFull, Routes, UnfinishedMessage
from statemachines.drivers.persistent_sessions.route_trie import of_sessions
from statemachines.drivers.runtime import Runtime
from statemachines.persistent_sessions.message import Delivered, Publish, Pubrel
from statemachines.persistent_sessions.request import PutRows
from statemachines.persistent_sessions.session_host_process import SessionHost
from statemachines.persistent_sessions.session_host_record import MatchedMessage, RoutedMessage
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


class UnstoredMessage(msgspec.Struct, frozen=True):
    """A message whose rows are not all stored; `stored` hears when they are; `is_once`: it comes to each subscription
    once."""

    payload: Payload
    stored: Callable[[], None]
    is_once: bool = False
    origin: SharedOrigin | None = None
    """Where it is from, if it is of a group."""


class StoredTogether(NamedTuple):
    """What goes with the rows of messages, by the message's id: as of `StoreRows`."""

    payloads: dict[str, Payload]
    once: frozenset[str]
    origins: dict[str, SharedOrigin]


NOTHING_TOGETHER: Final[tuple[tuple[str, ...], StoredTogether]] = ((), StoredTogether({}, frozenset(), {}))


def call_behind(count: int, call: Callable[[], object]) -> Callable[[], None]:
    """What is to be called so often: the last time it calls `call`."""
    left = count

    def note_call() -> None:
        nonlocal left
        left -= 1
        if not left:
            call()

    return note_call


def call_both(one: Callable[[], None], other: Callable[[], None]) -> None:
    """One after the other."""
    one()
    other()


SendDirectly = Callable[[Payload, int | None, Routes], None]
"""Sends a message with its expiry in milliseconds (None: it has none) to the owners among these routes."""


class UnstoredMessages:
    """`host`, `runtime`, `desk`: of the node; `soon` calls back when what comes at once is there; `send_directly`: what
    is for owners."""

    def __init__(
        self, host: SessionHost, runtime: Runtime, desk: RequestQueue, soon: Soon, send_directly: SendDirectly
    ) -> None:
        self.send_directly = send_directly
        self.payloads = Payloads()
        """Of messages that may be wanted soon."""
        self._host = host
        self._runtime = runtime
        self._desk = desk
        self._soon = soon
        self._published = 0
        self._unstored: dict[str, UnstoredMessage] = {}
        self._handing: list[RoutedMessage] = []
        self._targets: dict[tuple[int, int], tuple[Routes, tuple[MatchedMessage, ...]]] = {}
        """Of this turn: routes, by their identity, and QoS -> the routes, and the sessions that they lead to."""
        self._together = NOTHING_TOGETHER
        """Messages whose rows were asked for last -> what goes with them."""

    def new_message(self) -> str:
        """The id of the next message that is stored here."""
        self._published += 1
        return f"{self._host.id}/m{self._published}"

    def hand(
        self, message: str, unstored: UnstoredMessage, handed: Iterable[MatchedMessage], since_ns: int = 0
    ) -> None:
        """To the writers of these sessions; the message itself is in the database."""
        self.payloads.put(message, unstored.payload)
        self._unstored[message] = unstored
        self._handing.append(RoutedMessage(message, tuple(handed), since_ns))
        if len(self._handing) == 1:
            self._soon(self._hand_over)

    def hand_to(self, routes: Routes, qos: int) -> tuple[MatchedMessage, ...]:
        """The sessions of these routes; messages of one turn by the same routes share them."""
        known = self._targets.get((id(routes), qos))
        if known is None:
            handed = tuple(
                MatchedMessage(one.session, one.filter, min(one.qos, qos), one.until_ns) for one in of_sessions(routes)
            )
            known = self._targets[id(routes), qos] = (routes, handed)
        return known[1]

    def _hand_over(self) -> None:
        """All that were stored together."""
        messages, self._handing = self._handing, []
        self._targets.clear()
        self._runtime.act(lambda now_ns: self._host.publish(messages, now_ns))

    def with_message(self, request: PutRows) -> PutRows | StoreRows:
        """Rows to be stored, with their messages: we have each until all its rows are."""
        messages = tuple([row.message for row in request.rows])
        if self._together[0] != messages:
            self._together = messages, self._gather(messages)
        its = self._together[1]
        return StoreRows(request, *its) if its.payloads else request

    def _gather(self, messages: Iterable[str]) -> StoredTogether:
        unstored = {one: self._unstored[one] for one in messages if one in self._unstored}
        once = frozenset(one for one, found in unstored.items() if found.is_once)
        origins = {one: found.origin for one, found in unstored.items() if found.origin is not None}
        return StoredTogether({one: found.payload for one, found in unstored.items()}, once, origins)

    def settle(self, message: str) -> None:
        """All its rows are stored."""
        self._together = NOTHING_TOGETHER
        self._unstored.pop(message).stored()

    def append(self, payload: Payload, take: Callable[[], None]) -> None:
        """Append a message of the node's own to the stream of its topic, and store it for sessions; `take` hears when
        that is done."""
        message = self.new_message()

        def hand_on(found: Routes | RetainedFull | None) -> None:
            routes = found if isinstance(found, tuple) else ()
            self.send_directly(payload, None, routes)
            targets = self.hand_to(routes, 1)
            if targets:
                self.hand(message, UnstoredMessage(payload, take), targets)
            else:
                take()

        given = (message, payload.topic, payload.data, 1, None, payload.head)
        self._desk.give(PutMessage(*given, is_appended=True), hand_on)

    def publish_will(self, due: DueWill, since_ns: int, publisher: bytes, done: Callable[[], None]) -> None:
        """Publish it behind all that was stored before `since_ns`, unless another node has; `done` is called when its
        rows are stored; `publisher` as `PutMessage` has it."""
        message, will = self.new_message(), due.will
        payload = Payload(will.topic, will.payload, will.head or None)

        def take(found: Routes | RetainedFull | None) -> None:
            routes = found if isinstance(found, tuple) else ()
            self.send_directly(payload, will.expiry_ms, routes)
            handed = self.hand_to(routes, will.qos)
            if handed:
                self.hand(message, UnstoredMessage(payload, done, True), handed, since_ns)
            else:
                done()

        given = (message, will.topic, will.payload, will.qos, will.expiry_ms, payload.head, will.retain)
        self._desk.give(PutMessage(*given, will=due.connection, publisher=publisher), take)

    def finish(self, messages: Sequence[UnfinishedMessage], done: Callable[[], None]) -> None:
        """Store the rows that are missing of these messages (PS-475); `done` is called when they are there."""
        note_stored = call_behind(len(messages), done)

        def finish_all(since_ns: int) -> None:
            for one in messages:
                self._finish_message(one, since_ns, note_stored)

        if messages:
            self._desk.give(ReadStoreTime(), finish_all)
        else:
            done()

    def _finish_message(self, one: UnfinishedMessage, since_ns: int, stored: Callable[[], None]) -> None:
        known = self._unstored.get(one.message)
        if known is None:
            handed = [MatchedMessage(*route[:4]) for route in one.routes]
            self.hand(one.message, UnstoredMessage(one.payload, stored, True), handed, since_ns)
        else:
            self._unstored[one.message] = replace(known, stored=partial(call_both, known.stored, stored))
