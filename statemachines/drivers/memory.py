"""Memory: packets between the nodes of one process, without a socket; for tests, examples and replays.

It does what `tcp` does, and no more: the same frames, the same limits, the same rules for who may speak as whom.  A
packet for a node that is not connected, or whose queue is full, is dropped and counted: the protocol repeats what
matters.  Who dials an address is connected while somebody listens there.

All nodes run in one thread, on one loop or on several.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.greeting import check_store
from statemachines.drivers.node import NodeEnvironment
from statemachines.drivers.role import NodeRole
from statemachines.drivers.tcp import BUFFER_MAX, Address
from statemachines.kernel import ConfigurationError, life_of, node_of
from statemachines.wire import LENGTH_SIZE, FrameError, Packet, PacketCodec, quote_for_log

logger = logging.getLogger("gapless")

Gate = Callable[[str, str, Packet[Any], Callable[[], None]], None]
"""(from node, to node, packet, arrive): decides when `arrive` is called: never, once, later, again and again."""


class MemoryNetwork:
    """Connects the transports that it makes; `gate`: see there; `queue_max`: bytes waiting for one node."""

    def __init__(self, gate: Gate | None = None, *, queue_max: int = BUFFER_MAX) -> None:
        self.gate = gate
        self.queue_max = queue_max
        self._open: dict[str, MemoryTransport] = {}
        self._listening: dict[Address, MemoryTransport] = {}
        self._ports = 0
        self._refused: dict[str, tuple[str, str]] = {}

    @property
    def environment(self) -> NodeEnvironment:
        """This network, and otherwise the machine that the process runs on."""
        return NodeEnvironment(transport=self.transport)

    def transport(
        self,
        *,
        life: str,
        role: NodeRole,
        receive: Callable[[Packet[Any]], None],
        codec: PacketCodec[Any] | None = None,
        listen: Address | None = None,
        dial: Mapping[str, Address] | None = None,
        credentials: Credentials = NONE,
        store: str = "",
    ) -> MemoryTransport:
        """The transport of one node; arguments as for `TcpTransport`.

        Raises `ConfigurationError` for credentials: within a process nobody proves anything.
        """
        if credentials is not NONE:
            raise ConfigurationError(
                "credentials", "given", "a network in memory takes none; leave them out, or use TCP"
            )
        return MemoryTransport(self, life, role, codec or role.codec(), receive, listen, dict(dial or {}), store)

    def kill(self, node: str) -> None:
        """The node is gone without a word, as if its machine had no power: nobody notices until it comes back, and
        nothing that it sends, or is sent, arrives."""
        transport = self._open.get(node)
        if transport is not None:
            transport.closing = transport.killed = True

    # -- connections --------------------------------------------------------------------------------------------

    def add_transport(self, transport: MemoryTransport) -> None:
        """It takes part from now on; an older one of the same node is replaced."""
        older = self._open.get(transport.node)
        if older is not None:
            if not older.closing:
                logger.warning(
                    "%s has connected again, its connection from before is closed", quote_for_log(transport.life)
                )
            older.closing = True
            self.remove_transport(older)
        self._open[transport.node] = transport
        wanted = transport.listen
        if wanted is None:
            return
        host, port = wanted
        if not port:
            self._ports += 1
            port = self._ports
        if (host, port) in self._listening:
            del self._open[transport.node]
            rule = "cannot be listened on: in use; choose another with --listen, or port 0"
            raise ConfigurationError("address", f"{host}:{port}", rule)
        transport.listen = (host, port)
        self._listening[host, port] = transport

    def remove_transport(self, transport: MemoryTransport) -> None:
        """It takes part no more."""
        if self._open.get(transport.node) is transport:
            del self._open[transport.node]
        if transport.listen is not None and self._listening.get(transport.listen) is transport:
            del self._listening[transport.listen]

    def peer(self, transport: MemoryTransport, name: str) -> MemoryTransport | None:
        """Who is connected with it under that name, or the name of its node."""
        address = transport.dial.get(name)
        other = self._open.get(name) if address is None else self._listening.get(address)
        return other if other is not None and self._are_connected(transport, other) else None

    def _are_connected(self, one: MemoryTransport, other: MemoryTransport) -> bool:
        return self._dials(one, other) or self._dials(other, one)

    def _dials(self, one: MemoryTransport, other: MemoryTransport) -> bool:
        if other.listen not in one.dial.values() or self._listening.get(other.listen) is not other:  # type: ignore[arg-type]
            return False
        if other.role.full_name not in one.dials_roles or one.role.full_name not in other.takes_roles:
            return False
        return one.store == other.store or self._refuse(one, other)

    def _refuse(self, one: MemoryTransport, other: MemoryTransport) -> bool:
        """They work on different stores: said once for each life that dials."""
        if self._refused.get(one.node) != (one.life, other.life):
            self._refused[one.node] = (one.life, other.life)
            try:
                check_store(one.store, other.store)
            except FrameError as error:
                logger.warning("%s refuses %s: %s", one.life, other.life, error)
        return False


class MemoryTransport:
    """One node's; `dropped` counts what could not be sent."""

    def __init__(
        self,
        network: MemoryNetwork,
        life: str,
        role: NodeRole,
        codec: PacketCodec[Any],
        receive: Callable[[Packet[Any]], None],
        listen: Address | None,
        dial: dict[str, Address],
        store: str,
    ) -> None:
        self.life = life
        self.store = store
        self.node = node_of(life)
        self.role = role
        self.dials_roles, self.takes_roles = role.peers(True), role.peers(False)
        self.codec = codec
        self.receive = receive
        self.listen = listen
        self.dial = dial
        self.dropped = 0
        self.closing = self.killed = False
        self._network = network
        self._queue: deque[tuple[MemoryTransport, bytes]] = deque()
        self._queued = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self.listen is not None
        return self.listen

    async def __aenter__(self) -> MemoryTransport:
        self._loop = asyncio.get_running_loop()
        self._network.add_transport(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """What was sent before arrives still, what is on its way here does not."""
        self.closing = True
        if not self.killed:
            self._network.remove_transport(self)

    def is_peer_of(self, role: str, party: str) -> bool:
        """Whether the party lives on a node that is connected and has this role."""
        peer = self._network.peer(self, node_of(party))
        return peer is not None and peer.life == life_of(party) and peer.role.full_name == self.role.full(role)

    def send(self, packet: Packet[Any]) -> None:
        """Send, or drop and count."""
        peer = None if self.closing else self._network.peer(self, node_of(packet.to))
        if peer is None:
            self.dropped += 1
            return
        try:
            encoded = self.codec.encode(packet)
        except FrameError as error:
            logger.warning("dropped a message to %s: %s", packet.to, error)
            self.dropped += 1
            return
        gate, to = self._network.gate, peer

        def arrive() -> None:
            if not to.take(self, encoded):
                self.dropped += 1

        if gate is None:
            arrive()
        else:
            gate(self.node, peer.node, packet, arrive)

    def take(self, sender: MemoryTransport, encoded: bytes) -> bool:
        """Queue a frame of `sender`; False: there is no room, or the node is gone."""
        if self.closing or self._loop is None or self._queued + len(encoded) > self._network.queue_max:
            return False
        if not self._queue:
            self._loop.call_soon(self._deliver)
        self._queue.append((sender, encoded))
        self._queued += len(encoded)
        return True

    def _deliver(self) -> None:
        """All that has come; a frame that is wrong is dropped, with a line in the log."""
        queue, self._queue, self._queued = self._queue, deque(), 0
        for sender, encoded in queue:
            if self.closing:
                return
            try:
                packet = self.codec.decode(encoded[LENGTH_SIZE:])
                self._check_parties(sender, packet)
            except FrameError as error:
                logger.warning("%s: dropped what it sent: %s", quote_for_log(sender.life), error)
                continue
            self.receive(packet)

    def _check_parties(self, sender: MemoryTransport, packet: Packet[Any]) -> None:
        """A party of this life of the sender speaks, to one of ours; a name without a life is one that it dials us
        under."""
        if not f"{packet.sender}/".startswith(f"{sender.life}/"):
            raise FrameError(f"sent a message as {quote_for_log(packet.sender)}, which does not live on it")
        if not packet.to.startswith(f"{self.node}~") and "~" in packet.to:
            raise FrameError(f"sent a message to {quote_for_log(packet.to)}, which does not live here")
