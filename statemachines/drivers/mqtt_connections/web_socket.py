"""WebSocket: MQTT clients of a web browser (MQTT 5, section 6), over the package `websockets`.

Data frames are binary, and packets may take several of them.  A client must ask for the subprotocol `mqtt`.  A page of
a web site connects only if the site's origin is allowed; a client that is no browser has no origin.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import urlsplit

from websockets.asyncio.server import Server, ServerConnection, broadcast, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from statemachines.drivers.mqtt_connections.bounded_connection import BoundedConnection, ConnectionPool
from statemachines.drivers.tcp import Address

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
    tls: ssl.SSLContext | None,
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
        tls: of the listener; None: without.
    """

    def refuse_foreign(connection: ServerConnection, request: Request) -> Response | None:
        """An answer for a page that may not connect."""
        origin, host = (request.headers.get_all(name) for name in ("Origin", "Host"))
        is_allowed = not origin or origin[0] in origins or is_own_origin(origin[0], host[0] if host else "")
        return None if is_allowed and len(origin) < 2 else connection.respond(HTTPStatus.FORBIDDEN, "foreign origin\n")

    async def serve_open(connection: ServerConnection) -> None:
        PooledConnection.pool.note_open(connection)
        await serve_client(connection)

    class PooledConnection(BoundedConnection):
        """One of this listener."""

        pool = ConnectionPool(connections_max, opening_max)

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
        ssl=tls,
    )
