"""The row about TCP: our transport against a bare asyncio Protocol with the same codec and framing, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.tcp import TcpTransport
from statemachines.shared_subscriptions.message import BorrowerMessage, UpdateProgress
from statemachines.wire import Frames, Packet, PacketCodec
from statemachines_bench.harness import compare
from statemachines_bench.row import BenchRow, RatioKind

IN_A_TURN = 64
"""Messages sent in one turn of the loop."""

LOCAL = ("127.0.0.1", 0)


def make_packet(number: int) -> Packet[Any]:
    """A packet of some 64 bytes, as a borrower sends them."""
    update = UpdateProgress("consumer-1~1/1", 1, 1, "1.0/orders", 7, number, False)
    return Packet("consumer-1~1/1", "leader", number, update)


def make_codec() -> Any:
    """Of either side; both take both roles' messages."""
    return PacketCodec(BorrowerMessage)


class Bare(asyncio.Protocol):
    """What one would write by hand: frames in and out, nothing else."""

    def __init__(self, codec: Any, receive: Callable[[Any], None]) -> None:
        self.codec = codec
        self.frames = Frames()
        self.receive = receive
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for body in self.frames.feed(data):
            self.receive(self.codec.decode(body))

    def send(self, one: Any) -> None:
        """A frame."""
        self.transport.write(self.codec.encode(one))


class LastPacket:
    """Waits for the last of so many packets."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = asyncio.Event()

    def receive(self, one: Any) -> None:
        """A packet came."""
        if one.msg == self._count - 1:
            self._done.set()

    async def pump(self, send: Callable[[Any], None]) -> float:
        """Nanoseconds a message, from the first send until the last has arrived."""
        began = perf_counter_ns()
        for number in range(self._count):
            send(make_packet(number))
            if number % IN_A_TURN == 0:
                await asyncio.sleep(0)
        await self._done.wait()
        return (perf_counter_ns() - began) / self._count


async def measure_bare(count: int) -> float:
    """Of two bare ends."""
    loop, last = asyncio.get_running_loop(), LastPacket(count)
    server = await loop.create_server(lambda: Bare(make_codec(), last.receive), *LOCAL)
    _, client = await loop.create_connection(lambda: Bare(make_codec(), last.receive), *server.sockets[0].getsockname())
    try:
        return await last.pump(client.send)
    finally:
        client.transport.close()
        server.close()


async def measure_ours(count: int) -> float:
    """Of two transports."""
    last = LastPacket(count)
    leader = TcpTransport(life="leader-1~1", role=LEADER, codec=make_codec(), receive=last.receive, listen=LOCAL)
    async with leader:
        consumer = TcpTransport(
            life="consumer-1~1", role=CONSUMER, codec=make_codec(), receive=print, dial={"leader": leader.address}
        )
        async with consumer:
            while not (consumer._peers and leader._peers):
                await asyncio.sleep(0.01)
            return await last.pump(consumer.send)


ROWS = (
    BenchRow(
        name="tcp",
        about="one way, 64 messages a turn of the loop, until the last has been decoded",
        unit="ns / message",
        baseline_name="bare asyncio.Protocol, same codec",
        prepare=compare(measure_ours, measure_bare, (50_000,), (500,)),
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=2,
    ),
)
