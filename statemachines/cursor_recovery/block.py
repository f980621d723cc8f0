"""Block: one message in the data area, or several: size, checksum, commit word, data, in cells of four bytes.

The commit word is stamped with the block's absolute position, so that neither the marker of an earlier lap nor one
inside a payload is taken for this block's.  The checksum covers position, size and data.  The highest bit of the size
says that there are several messages: then the first cell of the data holds their number.
"""

from __future__ import annotations

from zlib import crc32

from statemachines.cursor_recovery.memory import CELL, HEADER

MAGIC = 0x9AB5_1E55_C0DE_B10C
MARKS = 0x9E37_79B9_7F4A_7C15
"""What a position is multiplied by, so that commit words of neighbours are unlike each other."""

SEVERAL = 1 << 31
"""Of a size word: the block holds several messages."""


def length_of(size: int) -> int:
    """The bytes that a block with `size` bytes of data takes: whole cells."""
    return HEADER + -(-size // CELL) * CELL


def data_of(payload: bytes, messages: int) -> bytes:
    """The data of a block with so many messages."""
    return payload if messages == 1 else messages.to_bytes(CELL, "little") + payload


def size_word(data: bytes, messages: int) -> int:
    """What its header says of the size."""
    return len(data) if messages == 1 else len(data) | SEVERAL


def size_in(word: int) -> int:
    """The bytes of data that a size word says."""
    return word & SEVERAL - 1


def commit_word(position: int) -> tuple[int, int]:
    """The marker of the block at `position`, its low and its high half."""
    word = (position * MARKS ^ MAGIC) % (1 << 64)
    return word % (1 << 32), word >> 32


def checksum(position: int, size: int, data: bytes) -> int:
    """The checksum of the block at `position` with the size word `size` and `data`."""
    return crc32(data, crc32(position.to_bytes(8, "little") + size.to_bytes(4, "little")))
