"""WebSocket: MQTT clients of a web browser (MQTT 5, section 6), over the package `websockets`.

Data frames are binary, and packets may take several of them.  A client must ask for the subprotocol `mqtt`.  A page of
a web site connects only if the site's origin is allowed; a client that is no browser has no origin.

BoundedConnection: a connection of the package `websockets` that keeps nobody else waiting, and fills no memory.

The package handles all frames of what was read at once, and 256 KiB have 40 000 pings.  Here the bytes of all
connections share the turns of the loop, and heads of HTTP and connections that are not open are bounded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.typing import Subprotocol

from statemachines.drivers.mqtt_connections.tls_gate import GatedProtocol, TlsGate
from statemachines.drivers.tcp import Address

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


SUBPROTOCOL: Final = Subprotocol("mqtt")
BUFFER_MAX: Final = 2**20
"""Bytes that wait for a client before `drain` waits."""

FIRST_MAX: Final = 2**18
"""Bytes of a message of a client that is not accepted yet: a stranger does not fill more memory."""

FRAMING: Final = 1_024
"""Bytes that a message may have beside the longest packet."""

CLOSE_S: Final = 2.0
DRAIN_S: Final = 0.02

_silent: Final = logging.getLogger("gapless.web_socket")
"""What strangers do wrong before they are connected floods no log."""
_silent.setLevel(logging.CRITICAL + 1)


class WebSocketPipe:
    """Reader, writer and transport of one connection, as `ClientStream` uses those of TCP.

    Args:
        connection: of the client.
        max_packet: bytes of the longest packet.
        is_connecting: whether the client is not accepted yet.
    """

    def __init__(self, connection: ServerConnection, max_packet: int, is_connecting: Callable[[], bool]) -> None:
        self.transport = self
        self._connection = connection
        self._max_packet = max_packet
        self._is_connecting = is_connecting
        self._ending: asyncio.Task[None] | None = None

    async def read(self, size: int) -> bytes:
        """The next message; empty: the connection is over.  A text ends it (MQTT-6.0.0-1)."""
        if not self._is_connecting():
            self._connection.protocol.max_message_size = self._max_packet + FRAMING
        data: str | bytes = b""
        while not data:
            try:
                data = await self._connection.recv()
            except ConnectionClosed:
                return b""
            if isinstance(data, str):
                await self._connection.close(CloseCode.UNSUPPORTED_DATA, "frames of MQTT are binary")
                return b""
        return cast("bytes", data)

    def write(self, data: bytes) -> None:
        """Send it; what is too much waits in the transport."""
        broadcast((self._connection,), data)

    async def drain(self) -> None:
        """Wait while too much waits for the client."""
        while not self.is_closing() and self.get_write_buffer_size() > BUFFER_MAX:
            await asyncio.sleep(DRAIN_S)

    def get_extra_info(self, name: str) -> Any:
        """Of the connection below."""
        return self._connection.transport.get_extra_info(name)

    def get_write_buffer_size(self) -> int:
        """Bytes that wait for the client."""
        return self._connection.transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int) -> None:
        """`drain` has its own."""

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._connection.transport.is_closing() or self._ending is not None

    def can_write_eof(self) -> bool:
        """A closing handshake is the end of what we send."""
        return True

    def write_eof(self) -> None:
        """Begin the closing handshake."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._connection.close())

    def close(self) -> None:
        """The same."""
        self.write_eof()

    async def wait_closed(self) -> None:
        """It is over."""
        if self._ending is not None:
            await self._ending

    def abort(self) -> None:
        """End it at once."""
        self._connection.transport.abort()


def is_own_origin(origin: str, host: str) -> bool:
    """Whether it is the address of the listener, by number or as localhost.  A name would not do: its owner may let it
    lead here."""
    try:
        parts = urlsplit(origin)
        if parts.netloc != host:
            return False
        return parts.hostname == "localhost" or bool(ipaddress.ip_address(parts.hostname or ""))
    except ValueError:
        return False


Serve = Callable[[ServerConnection], Awaitable[None]]


async def start_web_sockets(
    serve_client: Serve,
    address: Address,
    *,
    origins: Sequence[str],
    open_timeout_s: float,
    connections_max: int,
    opening_max: int,
    backlog: int,
    gate: TlsGate | None,
) -> Server:
    """Listen.

    Args:
        serve_client: is called with each client that has opened its connection.
        address: where; port 0: any that is free.
        origins: of pages that may connect.
        open_timeout_s: the handshake must be over within it.
        connections_max: of them, whether open or not; one more is ended at once.
        opening_max: of them that are not open yet; where there are more, the oldest is ended.
        backlog: of them that are accepted in one turn of the loop.
        gate: of TLS; None: without.
    """

    def refuse_foreign(connection: ServerConnection, request: Request) -> Response | None:
        """An answer for a page that may not connect."""
        origin, host = (request.headers.get_all(name) for name in ("Origin", "Host"))
        is_allowed = not origin or origin[0] in origins or is_own_origin(origin[0], host[0] if host else "")
        return None if is_allowed and len(origin) < 2 else connection.respond(HTTPStatus.FORBIDDEN, "foreign origin\n")

    async def serve_open(connection: ServerConnection) -> None:
        PooledConnection.pool.note_open(connection)
        await serve_client(connection)

    class PooledConnection(GatedProtocol, BoundedConnection):
        """One of this listener."""

        pool = ConnectionPool(connections_max, opening_max)

    PooledConnection.gate = gate

    host, port = address
    return await serve(
        serve_open,
        host,
        port,
        process_request=refuse_foreign,
        subprotocols=[SUBPROTOCOL],
        compression=None,
        server_header=None,
        open_timeout=open_timeout_s,
        close_timeout=CLOSE_S,
        ping_interval=None,  # MQTT has its own keep alive
        max_size=FIRST_MAX,
        max_queue=1,
        logger=_silent,
        create_connection=PooledConnection,
        backlog=backlog,
    )
