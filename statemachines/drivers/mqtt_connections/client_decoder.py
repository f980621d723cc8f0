"""ClientDecoder: packets of a client; PUBACKs that follow each other are read together."""

from __future__ import annotations

from struct import unpack
from typing import Final

from statemachines.mqtt_codec import Decoder

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


def read_puback_run(data: bytes) -> tuple[int, ...]:
    """The packet ids of the PUBACKs of success that these bytes begin with."""
    firsts, lengths = data[::4], data[1::4]
    count = min(len(firsts) - len(firsts.lstrip(b"\x40")), len(lengths) - len(lengths.lstrip(b"\x02")), len(data) // 4)
    packet_ids = unpack(f">{2 * count}H", data[: 4 * count])[1::2]
    return packet_ids[: packet_ids.index(0)] if 0 in packet_ids else packet_ids
