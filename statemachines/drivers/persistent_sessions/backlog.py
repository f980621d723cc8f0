"""Backlog: what waits for each session, added up while a collector walks the rows (`waiting_rows` says what of it is
dropped)."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from statemachines.drivers.persistent_sessions.host_request import DropRows
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.waiting_rows import Piece, choose_dropped

MESSAGES: Final = 1_000_000
BYTES: Final = 2**30

PIECES: Final = 100
"""In so many pieces the bound is divided: rows are dropped by whole pieces."""

PIECE_MAX: Final = 1_000
"""Rows of the largest piece: it is dropped in one transaction."""


class SessionBounds(msgspec.Struct, frozen=True):
    """What may wait for a session: `messages`, and `size_bytes` of their payloads.

    `ConfigurationError` names the value that cannot be.
    """

    messages: int = MESSAGES
    size_bytes: int = BYTES

    def __post_init__(self) -> None:
        for key in ("messages", "size_bytes"):
            value = getattr(self, key)
            if isinstance(value, bool) or value < 1:
                raise ConfigurationError(f"session_{key}", value, "must be at least 1")


class WaitingRow(NamedTuple):
    """A row that its session has not taken, and the bytes of its payload."""

    session: bytes
    writer: bytes
    epoch: int
    number: int
    time_ns: int
    size_bytes: int


class BacklogTally:
    """`add` each row that waits, in the order of the table, and `finish` at its end; `take_drops` is what is to be
    dropped of the sessions that were walked through meanwhile."""

    def __init__(self, bounds: SessionBounds) -> None:
        self._bounds = bounds
        self._rows_max = min(PIECE_MAX, max(1, bounds.messages // PIECES))
        self._session = b""
        self._pieces: list[Piece] = []
        self._drops: list[DropRows] = []

    def begin(self) -> None:
        """A walk begins: what was added of one that did not come to its end counts for nothing."""
        self._pieces.clear()

    def add(self, row: WaitingRow) -> None:
        """The next row that waits."""
        if row.session != self._session:
            self.finish()
            self._session = row.session
        last = self._pieces[-1] if self._pieces else None
        if last is None or self._is_full(last) or (last.writer, last.epoch) != (row.writer, row.epoch):
            last = Piece(row.writer, row.epoch, row.number, row.number, row.time_ns)
            self._pieces.append(last)
        last.last, last.time_ns = row.number, row.time_ns
        last.rows += 1
        last.size_bytes += row.size_bytes

    def finish(self) -> None:
        """The session has no more rows."""
        session = self._session.decode()
        for piece in choose_dropped(self._pieces, self._bounds.messages, self._bounds.size_bytes):
            self._drops.append(DropRows(session, piece.writer.decode(), piece.epoch, piece.first, piece.last))
        self._pieces.clear()

    def take_drops(self) -> list[DropRows]:
        """What is to be dropped, once."""
        drops, self._drops = self._drops, []
        return drops

    def _is_full(self, piece: Piece) -> bool:
        return piece.rows >= self._rows_max or piece.size_bytes * PIECES >= self._bounds.size_bytes
