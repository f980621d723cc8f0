"""The data types of section 1.5: how each is read from bytes and written."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from statemachines.mqtt_codec.codec_error import MalformedPacket, ProtocolViolation, ReasonCode

VARINT_MAX: Final = 268_435_455
TEXTS_MAX: Final = 20_000  # of a packet; one with more would hold an event loop for long

write_byte: Final[Callable[[int], bytes]] = Struct(">B").pack
write_u16: Final[Callable[[int], bytes]] = Struct(">H").pack
write_u32: Final[Callable[[int], bytes]] = Struct(">I").pack


def write_varint(value: int) -> bytes:
    """Variable byte integer (1.5.5)."""
    if 0 <= value < 0x80:
        return bytes((value,))
    if not 0 <= value <= VARINT_MAX:
        raise MalformedPacket(f"{value} is no variable byte integer", "1.5.5")
    return bytes((value & 0x7F | 0x80,)) + write_varint(value >> 7)


def write_binary(value: bytes) -> bytes:
    """Binary data (1.5.6)."""
    return write_u16(len(value)) + value


def write_text(value: str) -> bytes:
    """UTF-8 string (1.5.4)."""
    if "\0" in value:
        raise MalformedPacket("a text has the character U+0000", "MQTT-1.5.4-2")
    return write_binary(value.encode())


def write_pair(value: tuple[str, str]) -> bytes:
    """UTF-8 string pair (1.5.7)."""
    return write_text(value[0]) + write_text(value[1])


class ByteReader:
    """Reads fields from `data` one after another, and none beyond `end`."""

    __slots__ = ("at", "data", "end", "texts")

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.end, self.texts = data, 0, len(data), 0

    def read_bytes(self, length: int) -> bytes:
        """So many bytes."""
        at = self.at
        self.at = at + length
        if self.at > self.end:
            raise MalformedPacket("the packet ends within a field", "2.1.4")
        return self.data[at : self.at]

    def read_byte(self) -> int:
        """One byte."""
        at = self.at
        if at >= self.end:
            raise MalformedPacket("the packet ends within a field", "2.1.4")
        self.at = at + 1
        return self.data[at]

    def read_u16(self) -> int:
        """Two byte integer (1.5.2)."""
        return self.read_byte() << 8 | self.read_byte()

    def read_u32(self) -> int:
        """Four byte integer (1.5.3)."""
        return int.from_bytes(self.read_bytes(4), "big")

    def read_varint(self) -> int:
        """Variable byte integer, in as few bytes as it needs."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.read_byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift and not byte:
                    raise MalformedPacket("a variable byte integer is longer than it needs", "MQTT-1.5.5-1")
                return value
        raise MalformedPacket("a variable byte integer has more than four bytes", "1.5.5")

    def read_binary(self) -> bytes:
        """Binary data."""
        return self.read_bytes(self.read_u16())

    def read_text(self) -> str:
        """UTF-8 string; no more than `TEXTS_MAX` of a packet."""
        self.texts += 1
        if self.texts > TEXTS_MAX:
            raise ProtocolViolation(f"more than {TEXTS_MAX} texts", "4.13", ReasonCode.QUOTA_EXCEEDED)
        data = self.read_binary()
        if 0 in data:
            raise MalformedPacket("a text has the character U+0000", "MQTT-1.5.4-2")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedPacket("a text is not UTF-8", "MQTT-1.5.4-1") from None

    def read_pair(self) -> tuple[str, str]:
        """UTF-8 string pair."""
        return self.read_text(), self.read_text()

    def read_rest(self) -> bytes:
        """All that is left."""
        return self.read_bytes(self.end - self.at)
