"""Backlog: what waits for each session, added up while a collector walks the rows (`waiting_rows` says what of it is
dropped)."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from statemachines.drivers.persistent_sessions.host_request import DropRows
from statemachines.kernel import ConfigurationError
from statemachines.persistent_sessions.waiting_messages import (
    Piece,
    add_up,
    choose_dropped,
    list_large,
    list_others,
    list_within,
)

PIECES: Final = 100
"""In so many pieces the bound is divided: rows are dropped by whole pieces."""

PIECE_MAX: Final = 1_000
"""Rows of the largest piece: it is dropped in one transaction."""


FIRST: Final = (b"", b"", 0, 0)
"""Before all rows."""

KNOWN_MIN: Final = 100
"""Rows of a piece that is remembered until the next walk: fewer are as soon read again."""


class SessionBounds(msgspec.Struct, frozen=True):
    """What may wait for a session: `messages`, and `size_bytes` of their payloads.

    `ConfigurationError` names the value that cannot be.
    """

    messages: int = 1_000_000
    size_bytes: int = 2**30

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


class Backlog(NamedTuple):
    """What waits in a store: `messages` and `size_bytes` of their payloads, of all sessions, and the most `messages`
    of one."""

    messages: int = 0
    size_bytes: int = 0
    largest: int = 0

    def include(self, rows: int, size_bytes: int) -> Backlog:
        """And those of one more session."""
        return Backlog(self.messages + rows, self.size_bytes + size_bytes, max(self.largest, rows))


class BacklogTally:
    """`add` each row that waits, in the order of the table, and `finish` at its end; `take_drops` is what is to be
    dropped of the sessions that were walked through meanwhile.  Rows that waited in the walk before, and wait still,
    are added as its pieces."""

    def __init__(self, bounds: SessionBounds) -> None:
        self._bounds = bounds
        self._rows_max = min(PIECE_MAX, max(1, bounds.messages // PIECES))
        self._session = b""
        self._pieces: list[Piece] = []
        self._drops: list[DropRows] = []
        self._known: dict[tuple[bytes, bytes, int], list[Piece]] = {}
        """(session, writer, epoch) -> pieces of the last walk that came to its end."""
        self._walked: dict[tuple[bytes, bytes, int], list[Piece]] = {}
        self._reused = 0
        """Pieces of this session that are known from the walk before."""
        self._sum = Backlog()
        self._last: tuple[bytes, bytes, int, int] = FIRST
        """The row that was counted last: a page may begin before it, and have it once more."""
        self.backlog: Backlog | None = None
        """As of the last walk that came to its end, at most: what pieces of before have lost since is not known."""

    def begin(self) -> None:
        """A walk begins: what was added of one that did not come to its end counts for nothing."""
        self._pieces.clear()
        self._walked = {}
        self._reused = 0
        self._sum = Backlog()
        self._last = FIRST

    def list_known(self, session: bytes, writer: bytes, epoch: int, first: int, last: int) -> list[Piece]:
        """Pieces of the walk before that lie between these numbers: their rows wait still."""
        known = self._known.get((session, writer, epoch), ())
        return list_within(known, first, last)

    def add_piece(self, session: bytes, piece: Piece) -> None:
        """The next rows that wait are those of a piece of the walk before."""
        is_new = self._enter(session, (session, piece.writer, piece.epoch, piece.last))
        if is_new:
            self._pieces.append(piece)
            self._reused += 1

    def add(self, row: WaitingRow) -> None:
        """The next row that waits."""
        is_new = self._enter(row.session, row[:4])
        if not is_new:
            return
        last = self._pieces[-1] if self._pieces else None
        if last is None or self._is_full(last) or (last.writer, last.epoch) != (row.writer, row.epoch):
            last = Piece(row.writer, row.epoch, row.number, row.number, row.time_ns)
            self._pieces.append(last)
        last.last, last.time_ns = row.number, row.time_ns
        last.rows += 1
        last.size_bytes += row.size_bytes

    def finish(self) -> None:
        """There are no more rows."""
        self._end_session()
        self._known = self._walked
        self.backlog = self._sum

    def _enter(self, session: bytes, place: tuple[bytes, bytes, int, int]) -> bool:
        """Whether the row at this place was not counted yet."""
        if place <= self._last:
            return False
        self._last = place
        if session != self._session:
            self._end_session()
            self._session = session
        return True

    def _end_session(self) -> None:
        """What has grown less since a piece was counted is not known: where pieces of before say that something is to
        be dropped, the next walk counts the session anew."""
        session = self._session.decode()
        left = self._pieces
        dropped = list(choose_dropped(self._pieces, self._bounds.messages, self._bounds.size_bytes))
        if not dropped:
            for piece in list_large(self._pieces, KNOWN_MIN):
                self._walked.setdefault((self._session, piece.writer, piece.epoch), []).append(piece)
        elif not self._reused:
            left = list_others(left, dropped)
            for piece in dropped:
                self._drops.append(DropRows(session, piece.writer.decode(), piece.epoch, piece.first, piece.last))
        if left:
            self._sum = self._sum.include(*add_up(left))
        self._pieces.clear()
        self._reused = 0

    def take_drops(self) -> list[DropRows]:
        """What is to be dropped, once."""
        drops, self._drops = self._drops, []
        return drops

    def _is_full(self, piece: Piece) -> bool:
        return piece.rows >= self._rows_max or piece.size_bytes * PIECES >= self._bounds.size_bytes
