"""ClientDecoder: packets of a client; PUBACKs that follow each other are read together, and so are plain PUBLISHes."""

from __future__ import annotations

from collections.abc import Container
from struct import unpack
from typing import Final

from statemachines.kernel import Message
from statemachines.mqtt_codec import Decoder, PubackPacket, PublishPacket
from statemachines.mqtt_codec.plain_packet import read_plain_packet
from statemachines.mqtt_connections.client_packet import PubackMessage, PublishRun, wrap_packet
from statemachines.mqtt_connections.connection_record import CONNECTED, MqttConnectionRecord
from statemachines.mqtt_connections.connection_rules import count_room

PUBLISH: Final = 0x32
"""The first byte of a PUBLISH of QoS 1 that is not to be retained, and comes for the first time."""
PUBACK: Final = 0x40
PUBACK_SIZE: Final = 4
"""Bytes of a PUBACK of success: its type, 2, and the packet id."""
RUN_MAX: Final = 50
"""PUBLISHes of one step: behind them the session may have no room."""


class ClientDecoder(Decoder):
    """A decoder that also takes what is nearly all that a subscriber sends."""

    __slots__ = ()

    def take_pubacks(self, most: int) -> tuple[int, ...]:
        """Takes the PUBACKs of success that come next, at most so many; returns their packet ids."""
        at, buffer = self._at, self._buffer
        if self.version is None or self.max_packet < PUBACK_SIZE or at == len(buffer) or buffer[at] != PUBACK:
            return ()
        found = read_puback_run(bytes(memoryview(buffer)[at : at + PUBACK_SIZE * most]))
        self._at = at + PUBACK_SIZE * len(found)
        return found

    def take_publishes(self, most: int, used: Container[int], payload_max: int) -> list[PublishPacket]:
        """Takes the plain PUBLISHes of QoS 1 that come next.

        Args:
            most: so many at most.
            used: packet ids under which none is taken.
            payload_max: bytes of the longest payload that is taken; 0: any.
        """
        buffer, at, size, found = self._buffer, self._at, len(self._buffer), dict[int, PublishPacket]()
        view = memoryview(buffer)
        while len(found) < most and at + 1 < size and buffer[at] == PUBLISH:
            length, begin = buffer[at + 1], at + 2
            if length > 127:
                if begin == size or not 0 < buffer[begin] < 128:
                    break
                length, begin = length & 127 | buffer[begin] << 7, begin + 1
            end = begin + length
            if end > size or end - at > self.max_packet:
                break
            packet = read_plain_packet(PUBLISH, bytes(view[begin:end]), self.version)
            if type(packet) is not PublishPacket or packet.packet_id in found or packet.packet_id in used:
                break
            if 0 < payload_max < len(packet.payload):
                break
            found[packet.packet_id], at = packet, end
        self._at = at
        return list(found.values())


def read_puback_run(data: bytes) -> tuple[int, ...]:
    """The packet ids of the PUBACKs of success that these bytes begin with."""
    firsts, lengths = data[::4], data[1::4]
    count = min(len(firsts) - len(firsts.lstrip(b"\x40")), len(lengths) - len(lengths.lstrip(b"\x02")), len(data) // 4)
    packet_ids = unpack(f">{2 * count}H", data[: 4 * count])[1::2]
    return packet_ids[: packet_ids.index(0)] if 0 in packet_ids else packet_ids


def take_message(packets: ClientDecoder, record: MqttConnectionRecord, most: int) -> tuple[int, Message | None]:
    """Takes what came next on the connection of this record: a run of packets, or a packet.

    Args:
        most: packets of a run, at most.

    Returns:
        How many packets that is, and the event; None: the next packet is not complete.

    Raises:
        PacketError: what came is no packet.
    """
    packet_ids = packets.take_pubacks(most)
    if packet_ids:
        return len(packet_ids), PubackMessage(PubackPacket(packet_ids[0]), packet_ids[1:])
    if record.status is CONNECTED:
        most = min(most, RUN_MAX, count_room(record))
        run = packets.take_publishes(most, record.incoming, record.settings.max_payload)
        if run:
            return len(run), PublishRun(tuple(run))
    packet = next(packets, None)
    return 1, None if packet is None else wrap_packet(packet)
