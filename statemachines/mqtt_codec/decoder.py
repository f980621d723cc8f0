"""Decoder: packets out of a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from statemachines.mqtt_codec.codec_error import MalformedPacket, PacketError, ProtocolViolation, ReasonCode
from statemachines.mqtt_codec.packet import ConnectPacket, MqttVersion, PacketValue
from statemachines.mqtt_codec.packet_form import check_header, check_length, read_packet
from statemachines.mqtt_codec.plain_packet import PLAIN, read_plain_packet

PACKET_MAX: Final = 268_435_460
"""Bytes of the longest packet that MQTT can have."""


class Decoder:
    """Yields the packets of one connection.

        for packet in decoder.feed(data):
            ...

    The iteration raises `PacketError` where the bytes are no packet, behind the packets before it.  From then on it
    raises the same error again, and drops what it is fed.

    Args:
        version: 4 or 5; None: the first packet must be a CONNECT, which says it.
        max_packet: bytes of the longest packet, its header included.  Of a longer one nothing is kept.

    Raises:
        ValueError: for another version or limit.
    """

    __slots__ = ("_at", "_buffer", "_error", "max_packet", "version")

    def __init__(self, version: int | None = None, max_packet: int = 1_048_576) -> None:
        if not 2 <= max_packet <= PACKET_MAX:
            raise ValueError(f"max_packet = {max_packet}: must be from 2 to {PACKET_MAX}")
        self.version = None if version is None else MqttVersion(version)
        self.max_packet = max_packet
        self._buffer, self._at = bytearray(), 0
        self._error: PacketError | None = None

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait for the rest of their packet."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> Decoder:
        """Takes bytes; iterate over the result before you feed more."""
        if self._error is None:
            if self._at:
                del self._buffer[: self._at]
                self._at = 0
            self._buffer += data
        return self

    def __iter__(self) -> Iterator[PacketValue]:
        return self

    def __next__(self) -> PacketValue:
        if self._error is not None:
            raise self._error
        try:
            packet = self._next_packet()
        except PacketError as error:
            self._error = error
            self._buffer, self._at = bytearray(), 0
            raise
        if packet is None:
            raise StopIteration
        return packet

    def _next_packet(self) -> PacketValue | None:
        """The next packet; None: it is not complete."""
        buffer, at = self._buffer, self._at
        if at == len(buffer):
            return None
        first = buffer[at]
        packet_type = None if first in PLAIN and self.version else check_header(first, self.version)
        length = shift = 0
        while True:
            at += 1
            if at == len(buffer):
                return None
            byte = buffer[at]
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise MalformedPacket("the remaining length has more than four bytes", "2.1.4")
        if shift and not byte and self.version is not MqttVersion.V3_1_1:
            raise MalformedPacket("the remaining length is longer than it needs", "MQTT-1.5.5-1")
        at += 1
        size = at - self._at + length
        if size > self.max_packet:
            text = f"the packet has {size} bytes, and at most {self.max_packet} are taken"
            raise ProtocolViolation(text, "MQTT-3.1.2-24", ReasonCode.PACKET_TOO_LARGE)
        if packet_type is not None:
            check_length(packet_type, length, self.version)
        end = at + length
        if end > len(buffer):
            return None
        body = bytes(memoryview(buffer)[at:end])
        packet = None if packet_type else read_plain_packet(first, body, self.version)
        packet = packet or read_packet(first, body, self.version)
        self._at = end
        if self.version is None and isinstance(packet, ConnectPacket):
            self.version = packet.version
        return packet
