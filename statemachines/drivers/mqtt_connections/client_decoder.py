"""ClientDecoder: packets of a client; PUBACKs that follow each other are read together, and so are plain PUBLISHes."""

from __future__ import annotations

from collections.abc import Container
from struct import unpack
from typing import Final

from statemachines.mqtt_codec import Decoder, PublishPacket
from statemachines.mqtt_codec.plain_packet import read_plain_packet

PUBLISH: Final = 0x32
"""The first byte of a PUBLISH of QoS 1 that is not to be retained, and comes for the first time."""
PUBACK: Final = 0x40
PUBACK_SIZE: Final = 4
"""Bytes of a PUBACK of success: its type, 2, and the packet id."""


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
