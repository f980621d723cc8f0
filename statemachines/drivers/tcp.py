"""TCP: packets between nodes, over connections that come back by themselves.

A packet for a node that nobody is connected to, or whose buffer is full, is dropped and counted: the protocol repeats
what matters.  A peer that sends anything wrong is cut off, with one line in the log (logger "gapless"); it never
takes the node or another connection down.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, cast

from statemachines.kernel import ConfigurationError, node_of
from statemachines.wire import Codec, FrameError, Frames, Hello, Packet, decode_hello, encode_hello, shown

logger = logging.getLogger("gapless")

BUFFER_MAX = 4 * 2**20
"""Bytes waiting to be sent to one peer; what comes on top is dropped."""

CONNECTIONS_MAX = 1_000
HELLO_S = 5.0
BACKOFF_S = (0.05, 2.0)
"""First and longest pause between attempts to connect."""

LASTED_S = 2 * BACKOFF_S[1]
"""A connection that lasted longer was a good one: the next pause is the first again."""

SILENCE_S = 10
"""A peer whose machine is gone says nothing; the kernel alone would believe in it for a quarter of an hour."""

SILENCE = {
    "TCP_KEEPIDLE": SILENCE_S // 2,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": SILENCE_S // 2,
    "TCP_USER_TIMEOUT": SILENCE_S * 1_000,
}
"""Options of a socket, as far as the system has them."""

PEER_ROLE = {"leader": "consumer", "consumer": "leader"}

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """HOST:PORT."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not _is_host(host) or not 0 <= number <= 65_535:
        raise ConfigurationError("address", text, "must be HOST:PORT, for example 127.0.0.1:7411")
    return host, number


def _is_host(host: str) -> bool:
    """Whether the system can look it up at all; such a name fails there with an error that is none of its own."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


class TcpTransport:
    """`life`, `role`: who we are; `receive(packet)` is called for each packet that arrives.

    `listen`: where to accept connections (port 0: any, see `address`); `dial`: name -> address of peers to keep
    connected to; a packet may be addressed to such a name or to the node that answered there.
    """

    def __init__(
        self,
        *,
        life: str,
        role: str,
        codec: Codec[Any],
        receive: Callable[[Packet[Any]], None],
        listen: Address | None = None,
        dial: Mapping[str, Address] | None = None,
        buffer_max: int = BUFFER_MAX,
    ) -> None:
        self.life = life
        self.role = role
        self.codec = codec
        self.receive = receive
        self.buffer_max = buffer_max
        self.dropped = 0
        self._listen = listen
        self._dial = dict(dial or {})
        self._peers: dict[str, Connection] = {}
        self._connections: set[Connection] = set()
        self._server: asyncio.Server | None = None
        self._dialling: list[asyncio.Task[None]] = []
        self.closing = False

    @property
    def address(self) -> Address:
        """Where we listen."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def __aenter__(self) -> TcpTransport:
        loop = asyncio.get_running_loop()
        if self._listen is not None:
            host, port = self._listen
            try:
                self._server = await loop.create_server(lambda: Connection(self, ""), host, port)
            except (OSError, UnicodeError) as error:
                rule = f"cannot be listened on: {_reason(error)}; choose another with --listen, or port 0"
                raise ConfigurationError("address", f"{host}:{port}", rule) from error
        self._dialling = [loop.create_task(self._keep(name, address)) for name, address in self._dial.items()]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Send what is waiting, then close everything; a second call does nothing."""
        if self.closing:
            return
        self.closing = True
        for task in self._dialling:
            task.cancel()
        await asyncio.gather(*self._dialling, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.close()
        await asyncio.gather(*(connection.closed for connection in connections))
        if self._server is not None:
            await self._server.wait_closed()

    def send(self, packet: Packet[Any]) -> None:
        """Send, or drop and count."""
        connection = self._peers.get(node_of(packet.to))
        if connection is None or not connection.send(packet):
            self.dropped += 1

    # -- connections --------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """A connection was made; whether it may stay."""
        if len(self._connections) >= CONNECTIONS_MAX:
            most = "there are %d connections, which is the most; spread the consumers over more leader hosts"
            logger.warning("cut off %s: " + most, connection.peer, CONNECTIONS_MAX)
            return False
        self._connections.add(connection)
        return True

    def greeted(self, connection: Connection, hello: Hello) -> None:
        """The peer said who it is; an older connection of the same node is replaced."""
        older = self._peers.get(hello.node)
        self._peers[hello.node] = connection
        if connection.dialled:
            self._peers[connection.dialled] = connection
        if older is not None and older is not connection:
            again = "%s has connected again from %s, its connection from %s is closed; "
            mend = "if this goes on, two processes run under one name: give one another"
            logger.warning(again + mend, shown(hello.life), connection.peer, older.peer)
            older.close()

    def gone(self, connection: Connection) -> None:
        """A connection was lost."""
        self._connections.discard(connection)
        for name in (connection.dialled, connection.hello.node if connection.hello else ""):
            if self._peers.get(name) is connection:
                del self._peers[name]

    async def _keep(self, name: str, address: Address) -> None:
        """Connect, again and again.  The pause grows until a connection has lasted: two nodes under one name, which
        replace each other, shall not do so at full speed."""
        loop = asyncio.get_running_loop()
        pause, reached = BACKOFF_S[0], True
        while True:
            try:
                async with asyncio.timeout(HELLO_S):  # a lost packet at the wrong time would hold it for minutes
                    _, connection = await loop.create_connection(lambda: Connection(self, name), *address)
            except (OSError, UnicodeError) as error:
                if reached:
                    where, why = "{}:{}".format(*address), _reason(error)
                    logger.warning("cannot reach %s at %s: %s; trying again until it answers", name, where, why)
                reached = False
            else:
                began = loop.time()
                await asyncio.shield(connection.closed)
                if connection.hello is not None:
                    reached = True
                    if loop.time() - began > LASTED_S:
                        pause = BACKOFF_S[0]
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF_S[1])


def _reason(error: Exception) -> str:
    """An error of the system in words; asyncio puts others in their place."""
    if isinstance(error, TimeoutError):
        return "no answer"
    number = error.errno if isinstance(error, OSError) else None
    return str(error) if number is None or number <= 0 else os.strerror(number)


class Connection(asyncio.Protocol):
    """One connection; `dialled` is the name it was made under ("" = accepted)."""

    def __init__(self, transport: TcpTransport, dialled: str) -> None:
        self.dialled = dialled
        self.hello: Hello | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner = transport
        self._codec = transport.codec
        self._frames = Frames(transport.codec.frame_max)
        self._wire: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.peer = "?"

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast(asyncio.Transport, transport)
        self.peer = "{}:{}".format(*(self._wire.get_extra_info("peername") or ("?", "?"))[:2])
        if self._owner.closing or not self._owner.opened(self):
            self._wire.abort()
            return
        _notice_silence(self._wire.get_extra_info("socket"))
        self._wire.write(encode_hello(self._owner.role, self._owner.life))
        self._timer = self._loop.call_later(HELLO_S, self._cut, f"no hello within {HELLO_S:g} s; is it a gapless node?")

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._frames.feed(data):
                if self.hello is None:
                    self._greet(body)
                else:
                    self._owner.receive(self._codec.decode(body))
        except FrameError as error:
            self._cut(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._owner.gone(self)
        if not self.closed.done():
            self.closed.set_result(None)

    # -- sending ------------------------------------------------------------------------------------------------

    def send(self, packet: Packet[Any]) -> bool:
        """Put it with what this turn of the loop sends; False: there is no room."""
        wire = self._wire
        if wire is None or wire.is_closing():
            return False
        try:
            encoded = self._codec.encode(packet)
        except FrameError as error:
            logger.warning("dropped a message to %s: %s", packet.to, error)
            return False
        if self._waiting_size + len(encoded) + wire.get_write_buffer_size() > self._owner.buffer_max:
            return False
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(encoded)
        self._waiting_size += len(encoded)
        return True

    def close(self) -> None:
        """Send what is waiting, then close."""
        if self._wire is not None:
            self._flush()
            self._wire.close()
            self._loop.call_later(2.0, self._wire.abort)

    def _flush(self) -> None:
        if self._waiting and self._wire is not None:
            waiting, self._waiting, self._waiting_size = self._waiting, [], 0
            self._wire.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    # -- the peer -----------------------------------------------------------------------------------------------

    def _greet(self, body: memoryview) -> None:
        self.hello = decode_hello(body, PEER_ROLE[self._owner.role])
        if self._timer is not None:
            self._timer.cancel()
        self._owner.greeted(self, self.hello)

    def _cut(self, why: str) -> None:
        logger.warning("cut off %s (%s): %s", self.peer, self.hello.node if self.hello else "unknown", why)
        if self._wire is not None:
            self._wire.abort()


def _notice_silence(wire: socket.socket) -> None:
    """Have the kernel end the connection when the peer's machine does not answer."""
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in SILENCE.items():
        option = getattr(socket, name, None)
        if option is not None:
            wire.setsockopt(socket.IPPROTO_TCP, option, value)
