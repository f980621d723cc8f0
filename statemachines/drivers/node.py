"""MachineNode: machines as a node of their own, over a transport, with services; for any protocol.

    node = MachineNode(
        SERVER_ROLE, one_machine(SERVER, ServerRecord), node="server-1", state=Path("state"),
        services={JOURNAL: FileService(Journal(), Path("state/journal.json"))}, begin=(Begin(),),
        listen=("127.0.0.1", 7500),
    )
    async with node:
        await node.run()

A node that is killed and started again is its next life: a machine of the same kind under a new id, which knows what
its services have kept.

Environment: what a node lives in: transport, stores, clocks.  A node has the real one unless it is given another.

network = MemoryNetwork()
async with MachineNode(role, SERVER, record, listen=("server", 1), environment=network.environment): ...
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from statemachines.drivers.clock import Clock
from statemachines.drivers.clock import steady_ns as system_steady_ns
from statemachines.drivers.credentials import NONE, Credentials
from statemachines.drivers.lives import begin_life, chance_bits
from statemachines.drivers.port import Service, Transport
from statemachines.drivers.role import NodeRole
from statemachines.drivers.runtime import Runtime
from statemachines.drivers.tcp import Address, TcpTransport
from statemachines.kernel import Answer, Event, Fsm, Host, Message, Node, Outgoing, RemoteProtocolError
from statemachines.kernel.node import Observer
from statemachines.timer_registry import check_timers
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


R = TypeVar("R", bound=msgspec.Struct)


class NodeHost(Host):
    """The machines of one node.  `main` is the one that is meant where a peer addresses the node by the name that it
    dials: it has no other name for us before we have spoken."""

    def __init__(self, main: str) -> None:
        super().__init__()
        self.main = main

    def receive(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        """A message for one of our machines; one for an earlier life of ours comes to nothing."""
        return self.feed(to if "~" in to else self.main, message, now_ns)


HostMaker = Callable[[str, int, Observer], NodeHost]
"""(life, now_ns, observe) -> the machines of this life; the ids of all of them begin with the life."""


def one_machine(fsm: Fsm[R], record: Callable[[str], R]) -> HostMaker:
    """A node of one machine: `record(life)` is what it begins as, under the id `life`."""

    check_timers((fsm,))

    def make(life: str, now_ns: int, observe: Observer) -> NodeHost:
        host = NodeHost(life)
        host.add(Node(fsm, record(life), name=life, now_ns=now_ns, observe=observe))
        return host

    return make


class MachineNode:
    """`role`: whom it talks to, and what it takes; `make`: its machines; `node`: its name; `state`: directory with the
    number of its life; `services`: what carries out their requests, by the name in `Ask`; `begin`, `leave`: events for
    the main machine when the node starts and when it leaves in good order; `tell`: gets what they tell;
    `application`: what runs beside them, and ends the node when it ends; `listen`: (host, port), port 0 for any;
    `dial`: name -> address of peers; `trace`: directory for its log; `number`: for messages in traces, if two nodes'
    should clash; `credentials`: what peers must prove, and what we show them; `environment`: what the node lives in, if
    not this machine.
    """

    def __init__(
        self,
        role: NodeRole,
        make: HostMaker,
        *,
        node: str,
        state: Path,
        services: Mapping[str, Service] | None = None,
        begin: Sequence[Event] = (),
        leave: Sequence[Event] = (),
        tell: Callable[[Event], None] | None = None,
        application: Callable[[MachineNode], Awaitable[None]] | None = None,
        listen: Address | None = None,
        dial: Mapping[str, Address] | None = None,
        trace: Path | None = None,
        number: int | None = None,
        credentials: Credentials = NONE,
        environment: NodeEnvironment = REAL,
    ) -> None:
        self.role = role
        self.node = node
        self.listens = listen is not None
        self._make = make
        self._state = state
        self._services = dict(services or {})
        self._begin = begin
        self._leave = leave
        self._tell = tell
        self._application = application
        self._listen = listen
        self._dial = dict(dial or {})
        self._trace = trace
        self._number = number
        self._credentials = credentials
        self._environment = environment

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._transport.address

    @property
    def machines(self) -> NodeHost:
        """Its machines, to be looked at."""
        return self._host

    @property
    def life(self) -> str:
        """The incarnation of the node, and the id of its main machine where there is one."""
        return self._runtime.life

    async def __aenter__(self) -> Self:
        environment = self._environment
        life = begin_life(self.node, self._state, self._trace, self._number, self.role.protocol)
        self._log = life.log
        self._runtime = Runtime(
            life.name,
            life.number,
            self._services,
            handle=self._hear,
            answered=self._answered,
            route_tell=self._route_tell,
            log=life.log,
            clock=environment.steady_ns,
            offset_ns=environment.time_ns() - environment.steady_ns(),
            observe=environment.observe,
            refused=environment.refused,
        )
        self._host = self._make(life.name, environment.steady_ns(), self._runtime.observe)
        self._transport = environment.transport(
            life=life.name,
            role=self.role,
            receive=self._runtime.receive,
            listen=self._listen,
            dial=self._dial,
            credentials=self._credentials,
        )
        self._runtime.attach(self._host, self._transport)
        try:
            await self._transport.__aenter__()
        except BaseException:
            if self._log is not None:
                self._log.close()
            raise
        for event in self._begin:
            self.feed(event)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Leave in good order: what the machines say last is sent."""
        if self._runtime.failed is None:
            for event in self._leave:
                self.feed(event)
        await self.abort()

    async def abort(self) -> None:
        """Stop as if the process had died: nothing is said to anybody.  In place of leaving the `async with`."""
        await self._runtime.close()
        await self._transport.__aexit__(None, None, None)
        if self._log is not None:
            self._log.close()

    def feed(self, event: Event, party: str = "") -> None:
        """An event of the application, for the main machine or the one called `party`; raises what the machine does."""
        self._runtime.run(lambda now_ns: self._host.feed(party or self._host.main, event, now_ns))

    async def run(self) -> None:
        """Until the application has ended, or the node cannot go on: then raise why."""
        waiting = [asyncio.ensure_future(self.wait_for_failure())]
        if self._application is not None:
            waiting.append(asyncio.ensure_future(self._application(self)))
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def wait_for_failure(self) -> None:
        """Wait until the node cannot go on, and raise why."""
        await self._runtime.wait_for_failure()

    def _hear(self, sender: str, to: str, message: Message, now_ns: int) -> list[Outgoing]:
        self.role.check_speaker(sender, message)
        return self._host.receive(sender, to, message, now_ns)

    def _answered(self, party: str, answer: Answer, now_ns: int) -> list[Outgoing]:
        return self._host.feed(party, answer, now_ns)

    def _route_tell(self, party: str, event: Event) -> None:
        if self._tell is not None:
            self._tell(event)
