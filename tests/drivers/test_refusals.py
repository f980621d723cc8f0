"""Who is cut off is told why (SS-258): both ends have one line, and what comes behind a refusal is not heard."""

import asyncio

import pytest
from test_tcp import consumer, leader
from waiting import until_async

from statemachines.drivers import tcp
from statemachines.drivers.shared_subscriptions.roles import CONSUMER
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.wire import Frames, Packet, PacketCodec, encode_hello, refusal_in

WANTED = LeaderWanted("c1~1/1", "g", "#")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(tcp, "BACKOFF_S", (0.01, 0.05))


async def frames_of(reader):
    """The bodies of what somebody is told, until the other side ends."""
    return [bytes(body) for body in Frames().feed(await reader.read())]


async def test_SS_258_what_comes_right_behind_a_refused_hello_is_not_heard():
    """In one piece, as the kernel may bring it."""
    async with leader() as end, consumer(end.transport.address, "c1~2") as newer:
        await until_async(lambda: newer.transport._peers and end.transport._peers)
        reader, writer = await asyncio.open_connection(*end.transport.address)
        packet = PacketCodec(LeaderWanted).encode(Packet("c1~1/1", "leader", 1, WANTED))
        writer.write(encode_hello(CONSUMER.full_name, "c1~1") + packet)
        _, told = await frames_of(reader)
        assert refusal_in(told).startswith("is an older life")
        writer.write(packet)
        await writer.drain()
        newer.transport.send(Packet("c1~2/1", "leader", 2, LeaderWanted("c1~2/1", "g", "#")))
        await end.wait(1)
        assert [packet.sender for packet in end.received] == ["c1~2/1"]
        writer.close()
