"""MqttNode: ordinary MQTT clients connect to it; their sessions are those of a `SessionNode` in the same process.

    async with SessionNode("sessions.db", name="node-1") as node, MqttNode(node, listen=("127.0.0.1", 1883)):
        await node.wait_for_failure()

A client whose node dies connects to another node over the same store, and has its session there.

System topics: a node publishes some of its counters below `$SYS/brokers/NAME/`, with QoS 0, every ten seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from statemachines import __version__
from statemachines.drivers.clock import steady_ns
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.mqtt_connections.client_stream import ClientStream, PacketBudget
from statemachines.drivers.mqtt_connections.mqtt_session import MqttSession
from statemachines.drivers.mqtt_connections.tls_gate import GatedStream, TlsGate
from statemachines.drivers.password_file import PasswordFile
from statemachines.drivers.payload_buffer import UnfinishedFrames
from statemachines.drivers.persistent_sessions.node_link import NodeLink
from statemachines.drivers.persistent_sessions.node_messages import FrontPublish
from statemachines.drivers.persistent_sessions.session_node import SessionNode
from statemachines.drivers.tcp import Address
from statemachines.kernel import ConfigurationError
from statemachines.mqtt_codec.codec_error import ReasonCode
from statemachines.mqtt_connections.connection import MQTT_CONNECTION
from statemachines.mqtt_connections.connection_record import MqttSettings
from statemachines.mqtt_connections.takeover_limit import TakeoverLimit

if TYPE_CHECKING:
    from websockets.asyncio.server import Server

EVERY_S: Final = 10.0


class SystemTopics:
    """The publisher of one node.

    Args:
        node: that owns sessions.
        read_counters: topic, behind the name of the node -> value.
    """

    def __init__(self, node: SessionNode, read_counters: Callable[[], Mapping[str, int | str]]) -> None:
        self._name = node.name
        self._read_counters = read_counters
        self._began = time.monotonic()
        self._count = 0
        self._due = self._began
        self._link = NodeLink.local(node, lambda message: None, lambda: None)

    def publish_due(self) -> None:
        """Publish all counters, if it is time."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_S
        uptime = {"uptime": int(time.monotonic() - self._began)}
        for name, value in {**uptime, **self._read_counters()}.items():
            self._count += 1
            topic = f"$SYS/brokers/{self._name}/{name}"
            self._link.say(FrontPublish(self._count, topic, str(value).encode(), 0, None, b"", False))

    async def close(self) -> None:
        """No more."""
        await self._link.close()


logger = logging.getLogger("gapless")

CONNECTIONS_MAX: Final = 20_000
CONNECTING_MAX: Final = 1_000
"""Connections whose client is not accepted yet; each may cost a packet of memory."""

CONNECTS_MAX: Final = 16 * 2**20
"""Bytes of all CONNECTs that are not whole: strangers send them."""

ACCEPTED_MAX: Final = 32
"""Connections that are accepted in one turn of the loop: many strangers at once do not keep clients waiting."""

WAITING_MAX: Final = 1_024
"""Connections that wait in the kernel to be accepted."""

PING_S: Final = 5.0
"""A node of sessions takes a client for gone that says nothing for longer (15 s)."""

STOP_S: Final = 2.0

TURNS_TO_READ: Final = 4
"""Turns of the loop in which bytes that have arrived reach the session: one reads them, the next decodes them."""

NOT_SHARED: Final = (
    "$share/GROUP/FILTER is refused (0x9E): this node has no groups, or their streams are in another database than its "
    "sessions; beside --peers give --group-listen and --group-peers (in an application: groups= of a GroupHost)"
)

SPEAKS_TLS: Final = (
    "it begins with a TLS handshake, and this listener has no TLS; give the node --tls-cert and --tls-key (tls=), or "
    "switch TLS off at the client"
)


class MqttNode:
    """The listener.

    Args:
        node: that owns the sessions; it must run as long as this one.
        listen: where clients connect; port 0: any that is free.
        settings: limits that clients are told.
        users: who may connect by name and password.
        allows_anonymous: clients without a user name may connect (None: if there are no users).  A listener beyond
            loopback that allows them is refused.
        tls: for connections; None: without TLS.
        ws_listen: where clients connect over WebSocket; None: nowhere.
        ws_origins: origins of web pages that may connect there, as `https://example.org`.

    Raises:
        ConfigurationError: for a listener beyond loopback without users and without TLS that asks for certificates.
    """

    def __init__(
        self,
        node: SessionNode,
        *,
        listen: Address = ("127.0.0.1", 1883),
        settings: MqttSettings | None = None,
        users: PasswordFile | None = None,
        allows_anonymous: bool | None = None,
        tls: ssl.SSLContext | None = None,
        ws_listen: Address | None = None,
        ws_origins: Sequence[str] = (),
    ) -> None:
        asks_certificates = tls is not None and tls.verify_mode == ssl.CERT_REQUIRED
        self._allows_anonymous = users is None if allows_anonymous is None else allows_anonymous
        for key, place in (("listen", listen), ("ws_listen", ws_listen)):
            if place and self._allows_anonymous and not asks_certificates and not is_loopback(place[0]):
                where = "{}:{}".format(*place)
                rule = "is beyond loopback, and anybody could connect; give --users FILE (users), or certificates"
                raise ConfigurationError(key, where, f"{rule} (--tls-ca)")
        self._node = node
        self._listen = listen
        self._ws_listen, self._ws_origins = ws_listen, tuple(ws_origins)
        self._web_sockets: Server | None = None
        self._settings = settings or MqttSettings()
        self._users = users
        self._gate = None if tls is None else TlsGate(tls, self._settings.connect_timeout_s, CONNECTING_MAX)
        self._clients: dict[asyncio.Task[None], tuple[ClientStream, MqttSession]] = {}
        self._connecting: dict[ClientStream, None] = {}
        """Connections that are not accepted yet, the oldest first."""
        self._totals: Counter[str] = Counter()
        """Of connections that are over."""
        self._takeovers = TakeoverLimit()
        self._violations = RateLimitedLog(steady_ns)
        self._turned_away = RateLimitedLog(steady_ns)
        self._count = 0
        node.trace_protocol(MQTT_CONNECTION.protocol)

    @property
    def address(self) -> Address:
        """Where it listens."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    @property
    def ws_address(self) -> Address:
        """Where it listens for WebSocket."""
        assert self._web_sockets is not None
        host, port = self._web_sockets.sockets[0].getsockname()[:2]
        return host, port

    @property
    def connection_count(self) -> int:
        """Connections of clients, accepted or not."""
        return len(self._clients)

    def reload(self) -> None:
        """Read users and permissions again.  A client whose user is gone, or has another password, is disconnected
        (MQ-223)."""
        self._node.authority.reload()
        if self._users is None or not self._users.reload():
            return
        for stream, session in list(self._clients.values()):
            if session.user is not None and not self._users.is_kept(session.user):
                stream.stop(ReasonCode.NOT_AUTHORIZED)

    def read_counters(self) -> dict[str, int | str]:
        """What `$SYS` says of this node: connected clients, and packets of all connections since it began."""
        streams = [stream for stream, _ in self._clients.values()]
        totals = sum((Counter(one.counters) for one in streams), Counter(self._totals))
        return {
            "version": __version__,
            "clients/connected": sum(not one.is_connecting for one in streams),
            "packets/received": totals["received"],
            "packets/sent": totals["sent"],
            "messages/dropped": totals["dropped"] + self._node.reception.direct.dropped,
        }

    async def __aenter__(self) -> Self:
        host, port = self._listen
        try:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._make_stream, host, port, backlog=ACCEPTED_MAX)
            widen_backlog(self._server.sockets)
        except OSError as error:
            raise ConfigurationError("listen", f"{host}:{port}", f"cannot be listened at: {error}") from error
        self._budget = PacketBudget()
        self._unfinished = (UnfinishedFrames(sum_max=CONNECTS_MAX), UnfinishedFrames())
        self._settings = replace(self._settings, shared_available=self._node.shares_streams)
        if not self._node.shares_streams:
            logger.warning("%s: %s", self._node.name, NOT_SHARED)
        self._system_topics = SystemTopics(self._node, self.read_counters)
        if self._ws_listen is not None:
            await self._begin_web_sockets(self._ws_listen)
        self._pinging = asyncio.ensure_future(self._ping())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.close()
        if self._web_sockets is not None:
            self._web_sockets.close(close_connections=False)
        self._pinging.cancel()
        if self._gate is not None:
            await self._gate.close()
        for _ in range(TURNS_TO_READ):  # acknowledgements that have arrived are taken
            await asyncio.sleep(0)
        tasks = list(self._clients)
        for stream, _ in list(self._clients.values()):
            stream.stop(ReasonCode.SERVER_SHUTTING_DOWN)
        if tasks:
            _, open_tasks = await asyncio.wait(tasks, timeout=STOP_S)
            for task in open_tasks:
                task.cancel()
            await asyncio.gather(*open_tasks, return_exceptions=True)
        await self._system_topics.close()

    def _make_stream(self) -> GatedStream:
        stream = GatedStream(asyncio.StreamReader(), self._serve)
        stream.gate = self._gate
        return stream

    async def _begin_web_sockets(self, place: Address) -> None:
        try:
            from statemachines.drivers.mqtt_connections.web_socket import WebSocketPipe, start_web_sockets
        except ImportError as error:
            rule = "needs the package 'websockets', which is not installed: pip install 'gapless[mqtt]'"
            raise ConfigurationError("ws_listen", "{}:{}".format(*place), rule) from error

        async def serve(connection: Any) -> None:
            task = asyncio.current_task()

            def is_connecting() -> bool:
                found = self._clients.get(task) if task is not None else None
                return found is None or found[0].is_connecting

            pipe: Any = WebSocketPipe(connection, self._settings.max_packet, is_connecting)
            await self._serve(pipe, pipe)

        try:
            self._web_sockets = await start_web_sockets(
                serve,
                place,
                origins=self._ws_origins,
                open_timeout_s=self._settings.connect_timeout_s,
                connections_max=CONNECTIONS_MAX,
                opening_max=CONNECTING_MAX,
                backlog=ACCEPTED_MAX,
                gate=self._gate,
            )
            widen_backlog(self._web_sockets.sockets)
        except OSError as error:
            self._server.close()
            where = "{}:{}".format(*place)
            raise ConfigurationError("ws_listen", where, f"cannot be listened at: {error}") from error

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(PING_S)
            self._system_topics.publish_due()
            for _, session in list(self._clients.values()):
                session.ping()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if not self._make_room():
            writer.transport.abort()
            return
        peer: Any = writer.get_extra_info("peername")
        name, defer = "{}:{}".format(*peer[:2]) if peer else "-", self._node.request_queue.deferred.defer
        stream = ClientStream(name, self._settings, reader, writer, self._budget, defer, self._unfinished)
        session = MqttSession(self._node, stream, self._takeovers, self._users, self._allows_anonymous)
        stream.take_tell = session.take_tell
        self._count += 1
        stream.trace_under(f"{self._node.life}/mqtt-{self._count}", self._node.find_tracer(MQTT_CONNECTION.protocol))
        self._clients[task] = (stream, session)
        self._connecting[stream] = None
        stream.settle = partial(self._connecting.pop, stream, None)
        try:
            with contextlib.suppress(asyncio.CancelledError):  # asyncio's server would log it
                await stream.run()
        finally:
            del self._clients[task]
            stream.settle()
            self._totals.update(stream.counters)
            self._log_violation(stream)

    def _make_room(self) -> bool:
        """Whether one more is served.  Where too many are before CONNECT, the one that waits longest makes room: so
        those that say nothing keep nobody out."""
        count, connecting = len(self._clients), len(self._connecting)
        is_crowded = connecting >= CONNECTING_MAX
        if count < CONNECTIONS_MAX and not is_crowded:
            return True
        if self._turned_away.count_event():
            what = "%s: %d connections, %d of them before CONNECT: one is turned away (%d so far)"
            logger.warning(what, self._node.name, count, connecting, self._turned_away.count)
        if is_crowded:
            oldest = next(iter(self._connecting))
            oldest.settle()
            oldest.abort()
        return is_crowded

    def _log_violation(self, stream: ClientStream) -> None:
        if stream.error is not None and self._violations.count_event():
            what = "%s: MQTT client %s was cut off: %s (%d such clients so far)"
            text = SPEAKS_TLS if stream.speaks_tls else str(stream.error).encode("unicode_escape").decode()[:200]
            logger.warning(what, self._node.name, stream.record.party, text, self._violations.count)


def widen_backlog(sockets: Iterable[Any]) -> None:
    """More connections wait in the kernel than are accepted in one turn of the loop."""
    for one in sockets:
        with socket.socket(fileno=os.dup(one.fileno())) as same:
            same.listen(WAITING_MAX)


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches a listener there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
