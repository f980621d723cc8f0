"""The data types of section 1.5: how each is read from bytes and written."""

from __future__ import annotations

from typing import Final

from statemachines.mqtt_codec.codec_error import MalformedPacket

VARINT_MAX: Final = 268_435_455


class ByteReader:
    """Reads fields from `data` one after another, and none beyond `end`."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def read_byte(self) -> int:
        """One byte."""
        at = self._take(1)
        return self.data[at]

    def read_u16(self) -> int:
        """Two byte integer (1.5.2)."""
        at = self._take(2)
        return self.data[at] << 8 | self.data[at + 1]

    def read_u32(self) -> int:
        """Four byte integer (1.5.3)."""
        at = self._take(4)
        return int.from_bytes(self.data[at : at + 4], "big")

    def read_varint(self) -> int:
        """Variable byte integer (1.5.5), in as few bytes as it needs."""
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
        """Binary data (1.5.6)."""
        length = self.read_u16()
        at = self._take(length)
        return self.data[at : at + length]

    def read_text(self) -> str:
        """UTF-8 string (1.5.4)."""
        data = self.read_binary()
        if 0 in data:
            raise MalformedPacket("a text has the character U+0000", "MQTT-1.5.4-2")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedPacket("a text is not UTF-8", "MQTT-1.5.4-1") from None

    def read_pair(self) -> tuple[str, str]:
        """UTF-8 string pair (1.5.7)."""
        return self.read_text(), self.read_text()

    def read_rest(self) -> bytes:
        """All that is left."""
        at, self.at = self.at, self.end
        return self.data[at : self.end]

    def check_end(self) -> None:
        """Raises `MalformedPacket` where bytes are left."""
        if self.at != self.end:
            raise MalformedPacket(f"{self.end - self.at} bytes follow the last field", "2.1.4")

    def _take(self, length: int) -> int:
        at = self.at
        self.at = at + length
        if self.at > self.end:
            raise MalformedPacket("the packet ends within a field", "2.1.4")
        return at


def write_byte(value: int) -> bytes:
    """One byte."""
    return value.to_bytes(1, "big")


def write_u16(value: int) -> bytes:
    """Two byte integer."""
    return value.to_bytes(2, "big")


def write_u32(value: int) -> bytes:
    """Four byte integer."""
    return value.to_bytes(4, "big")


def write_varint(value: int) -> bytes:
    """Variable byte integer."""
    if 0 <= value < 0x80:
        return bytes((value,))
    if not 0 <= value <= VARINT_MAX:
        raise MalformedPacket(f"{value} is no variable byte integer", "1.5.5")
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def write_binary(value: bytes) -> bytes:
    """Binary data."""
    return len(value).to_bytes(2, "big") + value


def write_text(value: str) -> bytes:
    """UTF-8 string."""
    if "\0" in value:
        raise MalformedPacket("a text has the character U+0000", "MQTT-1.5.4-2")
    return write_binary(value.encode())


def write_pair(value: tuple[str, str]) -> bytes:
    """UTF-8 string pair."""
    return write_text(value[0]) + write_text(value[1])
