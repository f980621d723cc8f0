"""ClientStream: the TCP connection of one MQTT client.

It reads, decodes, feeds the machine `MQTT_CONNECTION`, performs its effects, and encodes what leaves.  It reads no more
while the session is opened (MQ-10), while the client does not read its answers, or while the session has no room.

PacketBudget: how many packets of all clients together a node handles in one turn of its loop.

A client may send 500 messages before it hears of the first one.  Of a few hundred such clients at once one turn would
last longer than the lease of the node, and others would take it for dead.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.credentials import names_in
from statemachines.drivers.mqtt_connections.client_decoder import ClientDecoder, take_message
from statemachines.drivers.payload_buffer import UnfinishedFrames
from statemachines.drivers.runtime import TraceStep
from statemachines.drivers.tcp import limit_reads
from statemachines.kernel import Effect, Event, Send, SetTimer, Status, Step, Tell
from statemachines.mqtt_codec import PacketError, ProtocolViolation, ReasonCode, encode
from statemachines.mqtt_codec.plain_packet import write_plain_publishes, write_puback
from statemachines.mqtt_connections.client_packet import BrokenPacket, PubackMessage, PublishMessage
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import (
    AWAITING,
    CLOSED,
    OPENING,
    MqttConnectionRecord,
    MqttSettings,
)
from statemachines.mqtt_connections.session_event import DeliveryReady, ServerStopping, TransportLost
from statemachines.trace import TracedParty

PACKETS_MAX: Final = 1_000
"""Packets in one turn."""

SHARE_MAX: Final = 50
"""Packets of one client in a turn, while others wait."""


class PacketBudget:
    """Of one node.  Clients that find nothing left wait for a later turn, and take it in their order."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = PACKETS_MAX
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_renewing = False

    def count_left(self) -> int:
        """How many more packets may be handled in this turn."""
        return 0 if self._waiting else self._left

    def take(self, packets: int) -> None:
        """So many of them are."""
        self._left -= packets
        if not self._is_renewing:
            self._renew_soon()

    async def wait_for_share(self) -> int:
        """Wait for a turn; how many packets may be handled in it."""
        share: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(share)
        self._renew_soon()
        await share
        return SHARE_MAX

    def _renew_soon(self) -> None:
        if not self._is_renewing:
            self._is_renewing = True
            self._loop.call_soon(self._renew)

    def _renew(self) -> None:
        self._is_renewing = False
        self._left = PACKETS_MAX
        while self._waiting and self._left >= SHARE_MAX:
            share = self._waiting.popleft()
            if not share.done():  # else its client has gone
                share.set_result(None)
                self._left -= SHARE_MAX
        if self._left < PACKETS_MAX:
            self._renew_soon()


READ_SIZE: Final = 65_536
CONNECT_READ: Final = 8_192
"""Bytes that are read at a time before there is a CONNECT: a thousand strangers may send at once."""
BUFFER_MAX: Final = 2**20
"""Bytes that wait for a client; beyond, messages of QoS 0 are dropped, and nothing is read from the client."""

CONNECT_MAX: Final = 2**18
"""Bytes of the longest CONNECT: a stranger does not fill more memory."""

ALIASED_MAX: Final = 2**15
"""Bytes of all topics that the aliases of a connection stand for."""

CLOSE_S: Final = 5.0
"""A client that does not read its last packet is cut off after so long."""

TLS_HANDSHAKE: Final = b"\x16\x03"
"""The first bytes of a TLS client; as MQTT they are a CONNECT with flags that no packet may have."""

LINGER_S: Final = 1.0
"""So long what a client still sends is read and dropped: a closed socket would take our last packet with it."""

TIMERS: Final = MQTT_CONNECTION.timer_registry()
NS: Final = 1_000_000_000


class ClientStream:
    """One connection.

    Args:
        name: of the peer, for the log.
        settings: the limits of the server.
        reader: bytes of the client.
        writer: bytes for the client.
        budget: of the packets of all clients; None: this is the only one.
        unfinished: CONNECTs of all clients that are not whole, and other packets; None: this is the only one.
        defer: calls later, when more packets may have come together; None: in the next turn of the loop.
    """

    def __init__(
        self,
        name: str,
        settings: MqttSettings,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        budget: PacketBudget | None = None,
        defer: Callable[[Callable[[], None]], object] | None = None,
        unfinished: tuple[UnfinishedFrames, UnfinishedFrames] | None = None,
    ) -> None:
        self._unfinished, self._unfinished_later = unfinished or (UnfinishedFrames(), UnfinishedFrames())
        self._budget = budget or PacketBudget()
        self.certified = names_in(writer.get_extra_info("peercert"))
        """The names of the client's certificate; none where it has shown none."""
        self.dropped = 0
        """Messages of QoS 0 that the client was too slow for."""
        self.received = self.sent = 0
        """Packets."""
        self.error: PacketError | None = None
        """What was wrong with the bytes of the client."""
        self.speaks_tls = False
        """The wrong bytes are the beginning of a TLS handshake, in place of CONNECT."""
        self.settle: Callable[[], object] = lambda: None
        """Called when the client is accepted, or refused."""
        self.has_room = True
        """The session takes more of the client."""
        self.record = MqttConnectionRecord(name, settings)
        self.take_tell: Callable[[Event], None] = lambda event: None
        """Takes what the machine tells the session."""
        self._trace: Callable[[Event, Status, Step[MqttConnectionRecord], int], None] | None = None
        self._reader, self._writer = reader, writer
        self._decoder = ClientDecoder(max_packet=min(settings.max_packet, CONNECT_MAX))
        self._events: deque[Event] = deque()
        self._is_feeding = False
        self._is_paused = False
        self._opened = asyncio.Event()
        self._room = asyncio.Event()
        self._packets: list[bytes] = []
        self._deadlines: dict[str, int] = {}
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        self._defer = self._loop.call_soon if defer is None else defer
        writer.transport.set_write_buffer_limits(high=BUFFER_MAX)
        limit_reads(writer.transport, CONNECT_READ)

    def trace_under(self, party: str, trace_step: TraceStep | None) -> None:
        """Write its steps to a log, as those of this party, before their effects are performed."""
        if trace_step is not None:
            self._trace = partial(trace_step, TracedParty(party, MQTT_CONNECTION))

    @property
    def counters(self) -> dict[str, int]:
        """Packets of the client, packets for it, and messages of QoS 0 that it was too slow for."""
        return {"received": self.received, "sent": self.sent, "dropped": self.dropped}

    @property
    def is_connecting(self) -> bool:
        """Whether the client is not accepted yet."""
        return self.record.status in (AWAITING, OPENING)

    def set_room(self, has_room: bool) -> None:
        """Whether the session takes more of the client; else it is not read."""
        self.has_room = has_room
        if has_room:
            self._room.set()
        else:
            self._room.clear()

    def abort(self) -> None:
        """End the connection at once; nothing more is sent."""
        self._writer.transport.abort()

    def refuse(self, why: str) -> None:
        """End the connection, since of a packet that it has begun the rest does not come."""
        self.error = ProtocolViolation(why, "4.13", ReasonCode.QUOTA_EXCEEDED)
        self.abort()

    async def run(self) -> None:
        """Serve the client until the connection is over."""
        self._perform(MQTT_CONNECTION.start(self.record, steady_ns()))
        try:
            with contextlib.suppress(OSError):
                await self._read()
        finally:
            self._unfinished.note(self, 0, is_new=True)
            self._decoder = ClientDecoder()  # what the client has begun goes now, and this object when Python looks
            self.feed(TransportLost())
            for alarm in self._alarms.values():
                alarm.cancel()
            await self._close()

    def stop(self, reason_code: int) -> None:
        """The server ends the connection."""
        self.feed(ServerStopping(reason_code))

    def feed(self, event: Event) -> None:
        """An event for the machine; one that comes amid a step waits for its end."""
        self._events.append(event)
        if self._is_feeding:
            return
        self._is_feeding = True
        try:
            while self._events:
                event = self._events.popleft()
                if type(event) is DeliveryReady and not event.packet.qos and self._is_slow():
                    self.dropped += 1
                    continue
                now_ns, before = steady_ns(), self.record.status
                step = MQTT_CONNECTION.step(self.record, event, now_ns)
                if before is OPENING:
                    self.settle()
                self.record = step.record
                if self._trace is not None:
                    self._trace(event, before, step, now_ns)
                self._perform(step.effects)
                if self.record.status is not before:
                    self._note_status()
        finally:
            self._is_feeding = False

    def _note_status(self) -> None:
        self._opened.set()
        if self.record.status is CLOSED:
            self._end()

    def _is_slow(self) -> bool:
        return self._writer.transport.get_write_buffer_size() > BUFFER_MAX

    # -- reading --------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while self.record.status is not CLOSED:
            data = await self._reader.read(READ_SIZE)
            if not data:
                return
            self._is_paused = True
            await self._take_bytes(data)
            await self._writer.drain()
            self._is_paused = False

    async def _take_bytes(self, data: bytes) -> None:
        share, packets = 0, self._decoder
        packets.feed(data)
        while packets.pending_bytes and self.record.status is not CLOSED:
            left = share or self._budget.count_left()
            if not left:
                share = await self._budget.wait_for_share()
                continue
            try:
                count, message = take_message(packets, self.record, left)
            except PacketError as error:
                self.error = error
                self.speaks_tls = self.record.status is AWAITING and data.startswith(TLS_HANDSHAKE)
                self.feed(BrokenPacket(error.reason_code, error.level))
                return
            if message is None:
                break
            if share:
                share -= count
            else:
                self._budget.take(count)
            self.received += count
            self._decoder.max_packet = self.record.settings.max_packet  # a CONNECT is there: the next may be longer
            if self._unfinished is not self._unfinished_later:
                self._unfinished.note(self, 0, is_new=True)
                self._unfinished = self._unfinished_later
                limit_reads(self._writer.transport, READ_SIZE)
            self.feed(message)
            if type(message) is PublishMessage and message.packet.topic and message.packet.properties.topic_alias:
                self._bound_aliases()
            while self.record.status is OPENING:
                self._opened.clear()
                await self._opened.wait()
            if not self.has_room:
                await self._room.wait()
        self._unfinished.note(self, packets.pending_bytes, is_new=packets.pending_bytes <= len(data))

    def _bound_aliases(self) -> None:
        """A client whose aliases stand for too much is disconnected (MQ-220)."""
        if sum(len(one.encode()) for one in self.record.aliases.values()) > ALIASED_MAX:
            self.stop(ReasonCode.QUOTA_EXCEEDED)

    # -- effects --------------------------------------------------------------------------------------------------

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if type(effect) is Send:
                self._write(effect.message)
            elif type(effect) is Tell:
                self.take_tell(effect.event)
            elif type(effect) is SetTimer:
                self._set_timer(effect.timer, effect.deadline_ns)
            else:
                self._deadlines.pop(effect.timer, None)  # type: ignore[union-attr]

    def _write(self, message: Any) -> None:
        """Packets of one turn of the loop, or of one batch of answers, leave together."""
        if not self._packets:
            self._defer(self._flush)
        self._packets.append(encode(message.packet, self.record.version))
        self.sent += 1
        if type(message) is PublishMessage and message.more:
            version = self.record.version
            plain = write_plain_publishes(message.more, version)
            self._packets += [one or encode(packet, version) for one, packet in zip(plain, message.more, strict=True)]
            self.sent += len(message.more)
        elif type(message) is PubackMessage and message.more:
            self._packets += [write_puback(one) for one in message.more]
            self.sent += len(message.more)

    def _flush(self) -> None:
        packets, self._packets = self._packets, []
        if packets and not self._writer.transport.is_closing():
            self._writer.write(b"".join(packets))

    def _set_timer(self, timer: str, deadline_ns: int) -> None:
        """A deadline that moves away does not touch the alarm: that looks again when it comes."""
        self._deadlines[timer] = deadline_ns
        if timer not in self._alarms:
            self._arm(timer)

    def _arm(self, timer: str) -> None:
        delay = max(0, self._deadlines[timer] - steady_ns()) / NS
        self._alarms[timer] = self._loop.call_later(delay, self._ring, timer)

    def _ring(self, timer: str) -> None:
        del self._alarms[timer]
        deadline_ns = self._deadlines.get(timer)
        if deadline_ns is None:
            return
        if self._is_paused and timer == "keep_alive":
            self._deadlines[timer] = deadline_ns = steady_ns() + NS  # we do not listen, so its silence says nothing
        if steady_ns() < deadline_ns:
            self._arm(timer)
            return
        del self._deadlines[timer]
        self.feed(TIMERS[timer]())

    # -- the end --------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """The last packet leaves, and the client sees the end behind it."""
        self.set_room(True)
        self._flush()
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.can_write_eof():
            with contextlib.suppress(OSError):
                transport.write_eof()
        self._loop.call_later(CLOSE_S, transport.abort)

    async def _close(self) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while not self._writer.transport.is_closing() and await self._reader.read(READ_SIZE):
                    pass
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
