"""Block: one message in the data area: size, checksum, commit word, data, in cells of four bytes.

The commit word is stamped with the block's absolute position, so that neither the marker of an earlier lap nor one
inside a payload is taken for this block's.  The checksum covers position, size and data.
"""

from __future__ import annotations

from zlib import crc32

from statemachines.cursor_recovery.memory import CELL, HEADER

MAGIC = 0x9AB5_1E55_C0DE_B10C


def length_of(size: int) -> int:
    """The bytes that a block with `size` bytes of data takes: whole cells."""
    return HEADER + -(-size // CELL) * CELL


def cell(data: bytes, index: int) -> int:
    """Cell `index` of the data, little endian; the last one is filled up with zeros."""
    return int.from_bytes(data[index * CELL : (index + 1) * CELL], "little")


def commit_word(position: int) -> tuple[int, int]:
    """The marker of the block at `position`, its low and its high half."""
    word = (position * 0x9E37_79B9_7F4A_7C15 ^ MAGIC) % (1 << 64)
    return word % (1 << 32), word >> 32


def checksum(position: int, data: bytes) -> int:
    """The checksum of the block at `position` with `data`."""
    return crc32(data, crc32(position.to_bytes(8, "little") + len(data).to_bytes(4, "little")))
