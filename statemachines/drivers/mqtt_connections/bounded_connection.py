"""BoundedConnection: a connection of the package `websockets` that keeps nobody else waiting, and fills no memory.

The package handles all frames of what was read at once, and 256 KiB have 40 000 pings.  Here the bytes of all
connections share the turns of the loop, and heads of HTTP and connections that are not open are bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final

from websockets.asyncio.server import ServerConnection
from websockets.protocol import State

TURN_BYTES: Final = 8_192
"""Bytes of all connections that are handled in one turn of the loop: 1 000 of the smallest frames."""

HEAD_MAX: Final = 16_384
"""Bytes that a client may send before it is answered: the head of its request."""

FLOOD_MAX: Final = 8 * 2**20
"""Bytes that wait for a client that still sends: what it may have unread is far less, so these are answers to pings."""


class ConnectionPool:
    """The connections of one listener.

    Args:
        most: of them, whether open or not; one more is ended at once.
        opening_max: of them that are not open yet; where there are more, the oldest is ended.
    """

    def __init__(self, most: int, opening_max: int) -> None:
        self._most = most
        self._opening_max = opening_max
        self._connections: set[BoundedConnection] = set()
        self._opening: dict[ServerConnection, None] = {}
        self._waiting: deque[BoundedConnection] = deque()
        """Those that have bytes to be handled."""
        self._left = TURN_BYTES
        self._is_renewing = False

    def enter(self, one: BoundedConnection) -> None:
        """A connection is there."""
        self._connections.add(one)
        self._opening[one] = None
        if len(self._connections) > self._most:
            one.transport.abort()
        elif len(self._opening) > self._opening_max:
            oldest = next(iter(self._opening))
            self.note_open(oldest)
            oldest.transport.abort()

    def note_open(self, one: ServerConnection) -> None:
        """Its client has been answered."""
        self._opening.pop(one, None)

    def leave(self, one: BoundedConnection) -> None:
        """It is gone."""
        self.note_open(one)
        self._connections.discard(one)

    def add(self, one: BoundedConnection) -> None:
        """It has bytes; they are handled now, or in later turns, in the order of the connections."""
        if one.has_bytes:
            self._waiting.append(one)
            self._handle()

    def _handle(self) -> None:
        while self._waiting and self._left > 0:
            one = self._waiting.popleft()
            self._left -= one.take_bytes(self._left)
            if one.has_bytes:
                self._waiting.append(one)
        if not self._is_renewing:
            self._is_renewing = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._is_renewing, self._left = False, TURN_BYTES
        if self._waiting:
            self._handle()


class BoundedConnection(ServerConnection):
    """One connection; a subclass names the `pool` of its listener."""

    pool: ConnectionPool

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._unread = bytearray()
        self._received = 0
        self._is_full = False
        """The session takes no more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a connection, and no request yet."""
        super().connection_made(transport)
        self.recv_messages.pause, self.recv_messages.resume = self._pause, self._resume
        self.pool.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._unread.clear()
        self.pool.leave(self)
        super().connection_lost(exc)

    @property
    def has_bytes(self) -> bool:
        """Whether some are to be handled, and the session takes more."""
        return bool(self._unread) and not self._is_full

    def data_received(self, data: bytes) -> None:
        """They are handled in turns of the loop; until then nothing more is read."""
        self._received += len(data)
        if self.protocol.state is State.CONNECTING and self._received > HEAD_MAX:
            self.transport.abort()
            return
        is_first = not self._unread
        self._unread += data
        if is_first:
            self.pool.add(self)
        if self._unread:
            self.transport.pause_reading()

    def take_bytes(self, most: int) -> int:
        """Handle so many at most; how many it were."""
        if self.transport.is_closing():
            self._unread.clear()
            return 0
        piece = bytes(self._unread[:most])
        del self._unread[:most]
        super().data_received(piece)
        if self.transport.get_write_buffer_size() > FLOOD_MAX:
            self.transport.abort()
        self._read_again()
        return len(piece)

    def send_data(self) -> None:
        """Answers to many frames leave together; an empty one, behind them, is the end."""
        writes = self.protocol.writes
        if len(writes) > 1:
            writes[:] = [b"".join(writes), *([] if writes[-1] else writes[-1:])]
        super().send_data()

    def _pause(self) -> None:
        self._is_full = True
        self.transport.pause_reading()

    def _resume(self) -> None:
        self._is_full = False
        if self._unread:
            self.pool.add(self)
        else:
            self._read_again()

    def _read_again(self) -> None:
        if not self._unread and not self._is_full:
            self.transport.resume_reading()
