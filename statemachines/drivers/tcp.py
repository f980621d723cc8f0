"""TCP: packets between nodes, over connections that come back by themselves.

A packet for a node that nobody is connected to, or whose buffer is full, is dropped and counted: the protocol repeats
what matters.  A peer that sends anything wrong is cut off, with one line in the log (logger "gapless"); it never
takes the node or another connection down.  Wrong is, too, a packet from a party that does not live on the node that
said hello, or to one that does not live here: nobody speaks with another's voice, and nobody has us do so.

With `Credentials` a peer proves who it is (TLS, a shared secret, or both) before any packet of it is looked at.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

from statemachines.drivers.clock import steady_ns
from statemachines.drivers.complaint_log import ComplaintLog, RateLimitedLog
from statemachines.drivers.credentials import NONE, Credentials, names_in, tls_reason, units_in
from statemachines.drivers.greeting import GREETING_MAX, NONCE_SIZE, Greeting, Terms
from statemachines.drivers.payload_buffer import UnfinishedFrames
from statemachines.drivers.role import NodeRole
from statemachines.kernel import ConfigurationError, life_of, node_of
from statemachines.wire import (
    FrameError,
    Frames,
    Hello,
    Packet,
    PacketCodec,
    choose_version,
    encode_refusal,
    hello_of,
    quote_for_log,
    refusal_in,
)

logger = logging.getLogger("gapless")

BUFFER_MAX = 4 * 2**20
"""Bytes waiting to be sent to one peer; what comes on top is dropped."""

CONNECTIONS_MAX = 1_000
TOO_MANY = "there are {} connections, which is the most; spread those who dial over more nodes, or allow more"
READ_MAX = 65_536
"""Bytes that are read from a socket at a time."""

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

TELL_S = 1.0
"""How long a peer that is cut off may take to hear why; what it says meanwhile is not looked at."""

Address = tuple[str, int]


def parse_address(text: str) -> Address:
    """HOST:PORT."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not _is_host(host) or not 0 <= number <= 65_535:
        raise ConfigurationError(
            "address", text, "must be HOST:PORT (a port is 0 to 65535), for example 127.0.0.1:7411"
        )
    return host, number


def parse_addresses(text: str) -> list[Address]:
    """HOST:PORT,HOST:PORT,...; none of an empty text."""
    return [parse_address(one.strip()) for one in text.split(",") if one.strip()]


def _is_host(host: str) -> bool:
    """Whether the system can look it up at all; such a name fails there with an error that is none of its own."""
    try:
        return "\0" not in host and bool(host.encode("idna"))
    except UnicodeError:
        return False


class TcpTransport:
    """`life`, `role`: who we are; `receive(packet)` is called for each packet that arrives; `codec`: for other limits
    than those of the role's own.

    `listen`: where to accept connections (port 0: any, see `address`); `dial`: name -> address of peers to keep
    connected to; a packet may be addressed to such a name or to the node that answered there.  `credentials`: what a
    peer must prove, and what we show it; `store`: the identity of the store that we work on, and every peer must work
    on the same ("": we have none); `connections_max`: how many there may be at a time; `complaints`: where peers are
    complained about (None: in a log of its own).

    `joined(hello)` hears of peers that can be sent to from now on, in the version that `choose_version` says;
    `left(hello, dialled)` of connections that are gone behind their greeting (`dialled`: it is one that we made),
    `refused(why)` of peers that refuse us.
    """

    def __init__(
        self,
        *,
        life: str,
        role: NodeRole,
        receive: Callable[[Packet[Any]], None],
        codec: PacketCodec[Any] | None = None,
        listen: Address | None = None,
        dial: Mapping[str, Address] | None = None,
        buffer_max: int = BUFFER_MAX,
        credentials: Credentials = NONE,
        store: str = "",
        joined: Callable[[Hello], None] | None = None,
        left: Callable[[Hello, bool], None] | None = None,
        refused: Callable[[str], None] | None = None,
        connections_max: int | None = None,
        complaints: ComplaintLog | None = None,
    ) -> None:
        self.life = life
        self.store = store
        self._joined = joined
        self._left = left
        self.role = role
        self.codec = codec or role.codec()
        self.receive = receive
        self.buffer_max = buffer_max
        self.connections_max = CONNECTIONS_MAX if connections_max is None else connections_max
        self.refused = refused
        self.dropped = 0
        self.credentials = credentials
        self.listen_tls = credentials.listening() if listen else None
        self.dial_tls = credentials.dialling() if dial else None
        self.prefix = f"{node_of(life)}~"
        """What the id of every party that lives here begins with."""
        self._complaints = complaints or ComplaintLog()
        self._too_many = RateLimitedLog(steady_ns)
        self._listen = listen
        self._dial = dict(dial or {})
        self._peers: dict[str, Connection] = {}
        self._connections: set[Connection] = set()
        self.unfinished = UnfinishedFrames()
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
                # asyncio leaves out a socket that the system does not give; if none is left Python 3.13 raises that.
                if isinstance(error, OSError) and error.errno is None:
                    raise self._no_socket(host, port) from error
                rule = f"cannot be listened on: {describe_failure(error)}; choose another with --listen, or port 0"
                raise ConfigurationError("address", f"{host}:{port}", rule) from error
            if not self._server.sockets:
                raise self._no_socket(host, port)
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

    @staticmethod
    def _no_socket(host: str, port: int) -> ConfigurationError:
        rule = "cannot be listened on: no socket can be made; allow more open files (ulimit -n)"
        return ConfigurationError("address", f"{host}:{port}", rule)

    def send(self, packet: Packet[Any]) -> None:
        """Send, or drop and count."""
        connection = self._peers.get(node_of(packet.to))
        if connection is None or not connection.send(packet):
            self.dropped += 1

    def send_all(self, packets: Sequence[Packet[Any]]) -> int:
        """Send packets for one party, up to the first that there is no room for, which counts as dropped: how many."""
        connection = self._peers.get(node_of(packets[0].to))
        sent = 0 if connection is None else connection.send_all(packets)
        self.dropped += sent < len(packets)
        return sent

    def count_waiting(self, party: str) -> int:
        """Bytes that wait to be sent to the node of the party."""
        connection = self._peers.get(node_of(party))
        return 0 if connection is None else connection.count_waiting()

    # -- connections --------------------------------------------------------------------------------------------

    def add_connection(self, connection: Connection) -> bool:
        """A connection was made; whether it may stay."""
        if len(self._connections) >= self.connections_max:
            if self._too_many.count_event():
                most = TOO_MANY.format(self.connections_max)
                logger.warning("cut off %s: %s (%d so far)", connection.peer, most, self._too_many.count)
            return False
        self._connections.add(connection)
        return True

    def accept_hello(self, connection: Connection, hello: Hello) -> None:
        """The peer said who it is; an older connection of the same node is replaced."""
        if hello.role == self.role.full_name and not connection.dialled:
            return  # it talks to us; what we have to say to it goes over the connection that we dial
        older = self._peers.get(hello.node)
        if older is not None and older.hello is not None:
            if reason := self._yields(hello, older.hello):
                connection.refuse(reason)
                return
            if reason := self._outranked(older.hello, hello):
                older.refuse(reason)
                older = None
        self._peers[hello.node] = connection
        if connection.dialled:
            self._peers[connection.dialled] = connection
        if older is not None and older is not connection:
            again = "%s has connected again from %s, its connection from %s is closed; "
            mend = "if this goes on, two processes run under one name: give one another"
            logger.warning(again + mend, quote_for_log(hello.life), connection.peer, older.peer)
            older.close()
        if self._joined is not None:
            self._joined(hello)

    def _yields(self, hello: Hello, other: Hello) -> str:
        """Why a connection ends at once beside the older one of `other`, of the same name ("": it does not)."""
        if reason := self._outranked(hello, other):
            return reason
        if hello.number < other.number and not self._outranked(other, hello):
            return f"is an older life of {hello.node}, and {other.life} is connected; it will end"
        return ""

    def _outranked(self, hello: Hello, other: Hello) -> str:
        """Whose role must be proved has its name to itself: another role takes nothing that is sent there, whatever
        number its life has."""
        proved = self.role.proved_roles
        if hello.role in proved or other.role not in proved:
            return ""
        return f"goes by the name of {other.life}, which is connected as {other.role}; give it another name"

    def is_peer_of(self, role: str, party: str) -> bool:
        """Whether the party is of a life that is connected and said that it has this role."""
        life, wanted = life_of(party), self.role.full(role)
        return any(
            one.hello is not None and one.hello.life == life and one.hello.role == wanted
            for one in self._connections
            if not one.ended
        )

    def names_of(self, party: str) -> frozenset[str]:
        """The names of the certificate that the party's node has shown; none where it is not connected to us."""
        connection = self._peers.get(node_of(party))
        hello = None if connection is None else connection.hello
        return frozenset() if connection is None or hello is None or hello.life != life_of(party) else connection.names

    def complain(self, connection: Connection, what: str) -> None:
        """One line about a peer; not again at once, if it goes on."""
        peer = connection.peer
        self._complaints.complain(peer if connection.dialled else peer.rpartition(":")[0], peer, what)

    def remove_connection(self, connection: Connection) -> None:
        """A connection was lost."""
        self._connections.discard(connection)
        self.unfinished.note(connection, 0, is_new=True)
        for name in (connection.dialled, connection.hello.node if connection.hello else ""):
            if self._peers.get(name) is connection:
                del self._peers[name]
        if self._left is not None and connection.hello is not None:
            self._left(connection.hello, bool(connection.dialled))

    async def _keep(self, name: str, address: Address) -> None:
        """Connect, again and again.  The pause grows until a connection has lasted: two nodes under one name, which
        replace each other, shall not do so at full speed."""
        loop = asyncio.get_running_loop()
        tls = self.dial_tls
        host = None if tls is None else address[0]
        pause, said = BACKOFF_S[0], ""
        while True:
            try:
                async with asyncio.timeout(HELLO_S):  # a lost packet at the wrong time would hold it for minutes
                    _, connection = await loop.create_connection(
                        lambda: Connection(self, name), *address, ssl=tls, server_hostname=host
                    )
            except (OSError, UnicodeError) as error:
                why = describe_failure(error, tls is not None)
                if why != said:
                    where = "{}:{}".format(*address)
                    logger.warning("cannot reach %s at %s: %s; trying again until it answers", name, where, why)
                said = why
            else:
                began = loop.time()
                await asyncio.shield(connection.closed)
                if connection.hello is not None:
                    said = ""
                    if loop.time() - began > LASTED_S:
                        pause = BACKOFF_S[0]
            await asyncio.sleep(pause)
            pause = min(2 * pause, BACKOFF_S[1])


def describe_failure(error: Exception, tls: bool = False) -> str:
    """An error of the system in words; asyncio puts others in their place."""
    if isinstance(error, TimeoutError):
        return "no answer"
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, ssl.SSLError) or (tls and isinstance(error, ConnectionError) and number is None):
        return tls_reason(error)
    return str(error) if number is None or number <= 0 else os.strerror(number)


class Connection(asyncio.Protocol):
    """One connection; `dialled` is the name it was made under ("" = accepted).

    It waits for TLS where that is spoken, then for the greeting; `hello` is set when the peer is known.
    """

    def __init__(self, transport: TcpTransport, dialled: str) -> None:
        self.dialled = dialled
        self.hello: Hello | None = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.peer = "?"
        self.names: frozenset[str] = frozenset()
        """Of its certificate."""
        self._owner = transport
        self._codec = transport.codec
        self._frames = Frames(min(GREETING_MAX, transport.codec.frame_max))
        self._wire: asyncio.Transport | None = None
        self._greeting: Greeting | None = None
        self._early = b""
        self._prefix = "/"  # nobody's
        self._sender: str | None = None
        self._to: str | None = None
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._securing: asyncio.Task[None] | None = None
        self.ended = False
        """It is of no use any more, whether or not it is closed yet."""

    # -- asyncio ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = self._wire = cast(asyncio.Transport, transport)
        limit_reads(wire)
        self.peer = "{}:{}".format(*(wire.get_extra_info("peername") or ("?", "?"))[:2])
        if self._owner.closing:
            self.ended = True
            wire.abort()
            return
        if not self._owner.add_connection(self):
            self._turn_away(wire)
            return
        _notice_silence(wire.get_extra_info("socket"))
        self._timer = self._loop.call_later(HELLO_S, self._cut, f"no hello within {HELLO_S:g} s; is it a gapless node?")
        tls = None if self.dialled else self._owner.listen_tls
        if tls is None:
            self._begin()
        else:
            wire.pause_reading()
            self._securing = self._loop.create_task(self._secure(wire, tls))

    def _turn_away(self, wire: asyncio.Transport) -> None:
        """There are too many; the peer hears it, where it can be told before TLS is spoken."""
        self.ended = True
        if self._owner.listen_tls is not None:
            wire.abort()
            return
        wire.write(encode_refusal(TOO_MANY.format(self._owner.connections_max)))
        wire.close()
        self._loop.call_later(TELL_S, wire.abort)

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return  # it is being told why, or hears the last of what we had to say
        if self._greeting is None:
            self._early += data  # TLS is there, and `_secure` has not heard of it yet: what came with its last message
            return
        body: bytes | memoryview = b""
        try:
            for body in self._frames.feed(data):
                if self.ended:
                    return  # refused by what came before it
                if self.hello is None:
                    self._greet(body)
                    continue
                packet = self._codec.decode(body)
                if packet.sender != self._sender or packet.to != self._to:
                    self._check_parties(packet)
                self._owner.receive(packet)
            pending = self._frames.pending_bytes
            self._owner.unfinished.note(self, pending, is_new=pending <= len(data))
        except FrameError as error:
            if why := refusal_in(body):
                if self._owner.refused is not None:
                    self._owner.refused(why)
                self._say(f"refuses this node, of which it says: {why}")
                self.ended = True
                self._abort()
            elif self._greeting.peer is None and data[:2] in (b"\x16\x03", b"\x15\x03"):
                self._cut(SPEAKS_TLS[bool(self.dialled)])
            else:
                self._cut(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        if self.hello is None and not self.ended and not self._owner.closing:
            self._explain(exc)
        self._owner.remove_connection(self)
        self.closed.set_result(None)

    # -- sending ------------------------------------------------------------------------------------------------

    def send(self, packet: Packet[Any]) -> bool:
        """Put it with what this turn of the loop sends; False: there is no room."""
        wire = self._wire
        if wire is None or self.ended or wire.is_closing():
            return False
        try:
            encoded = self._codec.encode(packet)
        except FrameError as error:
            logger.warning("dropped a message to %s: %s", packet.to, error)
            return False
        if self.count_waiting() + len(encoded) > self._owner.buffer_max:
            return False
        self._put(encoded)
        return True

    def send_all(self, packets: Sequence[Packet[Any]]) -> int:
        """The same with several, which are encoded in one go: how many there was room for."""
        wire = self._wire
        if wire is None or self.ended or wire.is_closing():
            return 0
        room, there = self._owner.buffer_max - self.count_waiting(), []
        try:
            for encoded in self._codec.encode_all(packets):
                room -= len(encoded)
                if room < 0:
                    break
                there.append(encoded)
        except FrameError as error:
            logger.warning("dropped a message to %s: %s", packets[len(there)].to, error)
        if there:
            self._put(*there)
        return len(there)

    def _put(self, *encoded: bytes) -> None:
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting += encoded
        self._waiting_size += sum(map(len, encoded))

    def count_waiting(self) -> int:
        """Bytes that are still here."""
        return self._waiting_size + (0 if self._wire is None else self._wire.get_write_buffer_size())

    def close(self) -> None:
        """Send what is waiting, then close."""
        self.ended = True
        if self._securing is not None:
            self._abort()
        elif self._wire is not None:
            self._flush()
            self._wire.close()
            self._loop.call_later(2.0, self._wire.abort)

    def refuse(self, why: str) -> None:
        """It may not stay."""
        self._frames = Frames()
        self._cut(why)

    def _flush(self) -> None:
        if self._waiting and self._wire is not None:
            waiting, self._waiting, self._waiting_size = self._waiting, [], 0
            self._wire.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    # -- the peer -----------------------------------------------------------------------------------------------

    async def _secure(self, wire: asyncio.Transport, tls: ssl.SSLContext) -> None:
        """TLS on an accepted connection; its failures would otherwise be nobody's business."""
        secured = None
        try:
            secured = await self._loop.start_tls(wire, self, tls, server_side=True, ssl_handshake_timeout=2 * HELLO_S)
        except OSError as error:
            self._say(f"is cut off: {tls_reason(error)}")
        except asyncio.CancelledError:
            pass  # cut off, or closed
        self._securing = None
        if secured is None or self.closed.done():
            self.ended = True
            self.connection_lost(None)
            return
        self._wire = secured
        self._begin()

    def _begin(self) -> None:
        """Say hello; with a secret, over a new nonce."""
        assert self._wire is not None
        owner = self._owner
        credentials = owner.credentials
        nonce = secrets.token_bytes(NONCE_SIZE) if credentials.secrets else b""
        certificate = self._wire.get_extra_info("peercert")
        self.names = names_in(certificate)
        self._greeting = Greeting(
            hello_of(owner.role.full_name, owner.life, nonce=nonce, mutual=credentials.mutual, store=owner.store),
            *owner.role.peers(bool(self.dialled)),
            dialled=bool(self.dialled),
            terms=Terms(
                credentials.secrets,
                credentials.role_secrets,
                owner.role.proved_roles,
                names_in(certificate) if credentials.mutual else None,
                units_in(certificate),
            ),
            has_store=owner.role.has_store,
        )
        self._wire.write(self._greeting.begin())
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def _greet(self, body: memoryview) -> None:
        assert self._greeting is not None
        assert self._wire is not None
        answer = self._greeting.feed(body)
        if answer:
            self._wire.write(answer)
        if self._greeting.done:
            hello = self.hello = self._greeting.peer
            assert hello is not None
            if self.dialled and hello.version != self._greeting.mine.version:
                self._say(f"speaks version {hello.version} of the wire; {choose_version(hello)} is spoken with it")
            self._prefix = f"{hello.life}/"
            self._frames.frame_max = self._codec.frame_max
            if self._timer is not None:
                self._timer.cancel()
            self._owner.accept_hello(self, hello)

    def _check_parties(self, packet: Packet[Any]) -> None:
        """A party of this life of the peer speaks, to one of ours, of whatever life; the pair is remembered, since most
        packets have that of the one before.  A name without a life is one that the peer dials us under."""
        if not f"{packet.sender}/".startswith(self._prefix):
            raise FrameError(f"sent a message as {quote_for_log(packet.sender)}, which does not live on it")
        if not packet.to.startswith(self._owner.prefix) and "~" in packet.to:
            raise FrameError(f"sent a message to {quote_for_log(packet.to)}, which does not live here")
        self._sender, self._to = packet.sender, packet.to

    def _cut(self, why: str) -> None:
        """It is told why, and what it says after that is not looked at."""
        self._say(f"is cut off: {why}")
        self.ended = True
        wire = self._wire
        if self._greeting is None or wire is None or wire.is_closing():
            self._abort()
            return
        self._waiting, self._waiting_size = [], 0
        wire.write(encode_refusal(why))
        if wire.can_write_eof():
            wire.write_eof()  # closed with words of its own unread it might lose ours
        else:
            wire.close()
        self._loop.call_later(TELL_S, wire.abort)

    def _abort(self) -> None:
        if self._securing is not None:
            self._securing.cancel()
        if self._wire is not None:
            self._wire.abort()

    def _explain(self, exc: Exception | None) -> None:
        """The peer ended the connection before it was open: what may be behind it."""
        greeting = self._greeting
        if isinstance(exc, ssl.SSLError):
            self._say(f"ended the connection: {tls_reason(exc)}")
        elif greeting is not None and greeting.has_sent_proof:
            self._say(f"ended the connection when it had our proof; give both nodes the same {greeting.secret_option}")
        elif greeting is not None and greeting.peer is not None:
            self._say("ended the connection before it proved that it knows the secret; its log says why")
        elif self.dialled:
            self._say(f"ended the connection before its hello; {ENDED_EARLY[self._owner.dial_tls is not None]}")

    def _say(self, what: str) -> None:
        """A line that names the peer: what it says it is, or where we looked for it."""
        claimed = self._greeting.peer if self._greeting is not None else None
        self._owner.complain(self, f"({claimed.node if claimed else self.dialled or 'unknown'}) {what}")


SPEAKS_TLS = {
    True: "speaks TLS; start this node with --tls-ca, or that one without --tls-cert and --tls-key",
    False: "speaks TLS; start this node with --tls-cert and --tls-key, or that one without --tls-ca",
}
"""By whether we dialled."""

ENDED_EARLY = {
    True: "its tls_ca may not be the one that signed tls_cert of this node; its log says more",
    False: "if it speaks TLS, start this node with --tls-ca",
}
"""By whether we speak TLS."""


def limit_reads(transport: asyncio.BaseTransport, most: int = READ_MAX) -> None:
    """Ask the system for less at a time.  asyncio asks for 256 KiB, so the memory for each read is mapped and given
    back, which costs several times as much as reading a message."""
    if hasattr(transport, "max_size"):
        transport.max_size = most


def _notice_silence(wire: socket.socket) -> None:
    """Have the kernel end the connection when the peer's machine does not answer."""
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in SILENCE.items():
        option = getattr(socket, name, None)
        if option is not None:
            wire.setsockopt(socket.IPPROTO_TCP, option, value)
