"""Environment: what a node lives in: transport, stores, clocks.  A node has the real one unless it is given another.

network = MemoryNetwork()
async with MachineNode(role, SERVER, record, listen=("server", 1), environment=network.environment): ...
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import msgspec

from statemachines.drivers.clock import Clock
from statemachines.drivers.clock import steady_ns as system_steady_ns
from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.lives import chance_bits
from statemachines.drivers.port import Transport
from statemachines.drivers.role import NodeRole
from statemachines.drivers.tcp import Address, TcpTransport
from statemachines.kernel import RemoteProtocolError
from statemachines.kernel.node import Observer
from statemachines.wire import Packet, PacketCodec


class NodeTransport(Transport, Protocol):
    """The transport of one node, open between `__aenter__` and `__aexit__`."""

    dropped: int

    @property
    def address(self) -> Address:
        """Where it listens."""

    def is_peer_of(self, role: str, party: str) -> bool:
        """Whether the party lives on a node that is connected and has this role."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...


class TransportMaker(Protocol):
    """Makes the transport of a node; arguments as for `TcpTransport`."""

    def __call__(
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
    ) -> NodeTransport: ...


class NodeEnvironment(msgspec.Struct, frozen=True):
    """`transport` makes a node's transport; `open_stores` opens what it keeps things in, in place of what its protocol
    would open; `bits` gives each life its bits of chance (0: none, and no store counts it: for runs that are to be
    repeated); `steady_ns`, `time_ns`: its clocks, of which the second is only for logs; `observe` sees every step of
    every machine, `refused` every message that a table does not take and the node drops (for tests and
    measurements)."""

    transport: TransportMaker = TcpTransport
    open_stores: Callable[[str | Path], Any] | None = None
    bits: Callable[[], int] = chance_bits
    steady_ns: Clock = system_steady_ns
    time_ns: Clock = time.time_ns
    observe: Observer | None = None
    refused: Callable[[RemoteProtocolError], None] | None = None


REAL: Final = NodeEnvironment()
"""The machine that the process runs on: TCP, its stores, its clocks."""
