"""Rows that wait for a session, in pieces, and which of them are dropped where too many wait.

A session may have so many messages, or bytes of payload, waiting.  Beyond, its oldest are dropped, so that one client
that stays away fills no disk.  Nine tenths of the bound remain, so that not every round drops something.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class Piece(msgspec.Struct):
    """Rows `first` to `last` of one writer and epoch, the last of which was stored at `time_ns`."""

    writer: bytes
    epoch: int
    first: int
    last: int
    time_ns: int
    rows: int = 0
    size_bytes: int = 0


def list_within(pieces: Sequence[Piece], first: int, last: int) -> list[Piece]:
    """Those that lie between these numbers."""
    return [piece for piece in pieces if first <= piece.first and piece.last <= last]


def list_large(pieces: Sequence[Piece], rows_min: int) -> list[Piece]:
    """Those with so many rows, or more."""
    return [piece for piece in pieces if piece.rows >= rows_min]


def list_others(pieces: Sequence[Piece], dropped: Sequence[Piece]) -> list[Piece]:
    """Those that are not dropped."""
    gone = {(piece.writer, piece.epoch, piece.first) for piece in dropped}
    return [piece for piece in pieces if (piece.writer, piece.epoch, piece.first) not in gone]


def add_up(pieces: Sequence[Piece]) -> tuple[int, int]:
    """Their rows and bytes."""
    return sum(piece.rows for piece in pieces), sum(piece.size_bytes for piece in pieces)


def choose_dropped(pieces: Sequence[Piece], rows_max: int, size_bytes_max: int) -> list[Piece]:
    """The oldest pieces of a session with more than `rows_max` rows or `size_bytes_max` bytes, until nine tenths are
    left; of a session with no more than that, none."""
    rows, size = add_up(pieces)
    dropped: list[Piece] = []
    if rows <= rows_max and size <= size_bytes_max:
        return dropped
    for piece in sorted(pieces, key=lambda one: (one.time_ns, one.writer, one.epoch, one.first)):
        if 10 * rows <= 9 * rows_max and 10 * size <= 9 * size_bytes_max:
            break
        rows -= piece.rows
        size -= piece.size_bytes
        dropped.append(piece)
    return dropped
