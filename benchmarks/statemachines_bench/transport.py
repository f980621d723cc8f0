"""Rows about TCP: our transport against a bare asyncio Protocol with the same codec and framing, over loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

ONE_WAY = 50_000
IN_A_TURN = 64
"""Messages sent in one turn of the loop."""

LOCAL = ("127.0.0.1", 0)


def make_packet(number: int) -> Any:
    """A packet of some 64 bytes, as a borrower sends them."""
    from statemachines.shared_subscriptions.message import UpdateProgress
    from statemachines.wire import Packet

    update = UpdateProgress("consumer-1~1/1", 1, 1, "1.0/orders", 7, number, False)
    return Packet("consumer-1~1/1", "leader", number, update)


def make_codecs() -> tuple[Any, Any]:
    """Of the leader's side and of the consumer's; both take both roles' messages, so that a packet can be sent back."""
    from statemachines.shared_subscriptions.message import BorrowerMessage
    from statemachines.wire import PacketCodec

    return PacketCodec(BorrowerMessage), PacketCodec(BorrowerMessage)


class Bare(asyncio.Protocol):
    """What one would write by hand: frames in and out, nothing else."""

    def __init__(self, codec: Any, receive: Callable[[Bare, Any], None]) -> None:
        from statemachines.wire import Frames

        self.codec = codec
        self.frames = Frames()
        self.receive = receive
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for body in self.frames.feed(data):
            self.receive(self, self.codec.decode(body))

    def send(self, one: Any) -> None:
        """A frame."""
        self.transport.write(self.codec.encode(one))


async def pump(send: Callable[[Any], None], count: int, done: asyncio.Event) -> float:
    """Nanoseconds a message, from the first send until the last has arrived."""
    began = perf_counter_ns()
    for number in range(count):
        send(make_packet(number))
        if number % IN_A_TURN == 0:
            await asyncio.sleep(0)
    await done.wait()
    return (perf_counter_ns() - began) / count


async def bare_one_way(count: int) -> float:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    here, there = make_codecs()

    def receive(end: Bare, one: Any) -> None:
        if one.msg == count - 1:
            done.set()

    server = await loop.create_server(lambda: Bare(here, receive), *LOCAL)
    _, client = await loop.create_connection(lambda: Bare(there, receive), *server.sockets[0].getsockname())
    try:
        return await pump(client.send, count, done)
    finally:
        client.transport.close()
        server.close()


async def ours(play: Callable[[Any, Any, asyncio.Event], Any]) -> float:
    """Two transports, connected; `play(leader, consumer, done)` sets what they receive and measures."""
    from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
    from statemachines.drivers.tcp import TcpTransport

    done = asyncio.Event()
    here, there = make_codecs()
    leader = TcpTransport(life="leader-1~1", role=LEADER, codec=here, receive=print, listen=LOCAL)
    async with leader:
        consumer = TcpTransport(
            life="consumer-1~1", role=CONSUMER, codec=there, receive=print, dial={"leader": leader.address}
        )
        async with consumer:
            while not (consumer._peers and leader._peers):
                await asyncio.sleep(0.01)
            measured: float = await play(leader, consumer, done)
            return measured


async def our_one_way(count: int) -> float:
    async def play(leader: Any, consumer: Any, done: asyncio.Event) -> float:
        def receive(one: Any) -> None:
            if one.msg == count - 1:
                done.set()

        leader.receive = receive
        return await pump(consumer.send, count, done)

    return await ours(play)


def prepare_one_way(size: Size) -> TurnPair:
    count = size.pick(ONE_WAY, 500)
    return TurnPair(lambda: asyncio.run(our_one_way(count)), lambda: asyncio.run(bare_one_way(count)))


ROWS = (
    BenchRow(
        name="tcp",
        about="one way, 64 messages a turn of the loop, until the last has been decoded",
        unit="ns / message",
        baseline_name="bare asyncio.Protocol, same codec",
        prepare=prepare_one_way,
        ratio=RatioKind.OURS_OVER_BASELINE,
        at_most=2,
    ),
)
