"""The TCP transport: packets arrive, connections come back, bad peers are cut off and nobody else notices."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from statemachines.drivers import complaint_log, tcp
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.tcp import TcpTransport, parse_address
from statemachines.drivers.unfinished_frames import UnfinishedFrames
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import (
    LeaderWanted,
    Undeclared,
)
from statemachines.wire import Packet, encode_hello, frame

LOCAL = ("127.0.0.1", 0)
WANTED = LeaderWanted("c1~1/1", "g", "#")


class End:
    """One end: a transport, and what it received."""

    def __init__(self, life, role, **options):
        self.received = []
        self.arrived = asyncio.Event()
        self.transport = TcpTransport(life=life, role=role, receive=self.receive, **options)

    def receive(self, packet):
        self.received.append(packet)
        self.arrived.set()

    async def wait(self, count):
        while len(self.received) < count:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), 120)


@asynccontextmanager
async def leader(listen=LOCAL, **options):
    end = End("leader-1~1", LEADER, listen=listen, **options)
    async with end.transport:
        yield end


@asynccontextmanager
async def consumer(address, life="c1~1", **options):
    end = End(life, CONSUMER, dial={"leader": address}, **options)
    async with end.transport:
        yield end


async def until(condition):
    for _ in range(2_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("never came true")


def wanted(number):
    return Packet("c1~1/1", "leader", number, WANTED)


async def talk(address, data, read=True):
    """A stranger says `data`; whether it was cut off."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        while read and await asyncio.wait_for(reader.read(65_536), 120):
            pass
    except ConnectionError:
        pass
    writer.close()


def say_part(size):
    """A peer that is known, and a frame of a thousand bytes of which so many are said."""
    return encode_hello(CONSUMER.full_name, "x~1") + frame(b"x" * 1_000)[:size]


@pytest.mark.parametrize(
    ("bounds", "says"),
    [
        ({"limit_s": 0.05}, "began a frame and did not end it within 0.05 s"),
        ({"sum_max": 500}, "all of them have more than 500 bytes"),
    ],
)
async def test_SS_434_a_frame_that_is_not_ended_is_cut_off(caplog, bounds, says):
    async with leader() as end:
        end.transport.unfinished = UnfinishedFrames(**bounds)
        await talk(end.transport.address, say_part(999))
        assert not end.transport.unfinished._sum
    assert says in caplog.text


async def test_more_connections_than_allowed_are_refused(monkeypatch, caplog):
    monkeypatch.setattr(tcp, "CONNECTIONS_MAX", 1)
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers)
        await talk(end.transport.address, encode_hello(CONSUMER.full_name, "x~1"))
        assert len(end.transport._connections) == 1
    assert "there are 1 connections, which is the most" in caplog.text


async def test_PS_457_complaints_about_many_peers_do_not_flood_the_log(monkeypatch, caplog):
    monkeypatch.setattr(complaint_log, "LINES_MAX", 3)
    monkeypatch.setattr(complaint_log, "COMPLAINTS_MAX", 10)
    async with leader() as end:
        for number in range(25):
            peer = SimpleNamespace(peer=f"10.0.0.{number}:1", dialled="")
            for _ in range(2):
                end.transport.complain(peer, f"says {number}")
    assert [record.getMessage() for record in caplog.records] == [
        *(f"10.0.0.{number}:1 says {number}" for number in range(3)),
        "complaints about 10 peers so far; a minute has 3 lines",
        "complaints about 20 peers so far; a minute has 3 lines",
    ]


async def test_what_a_slow_reader_does_not_take_is_dropped_not_kept():
    async with leader(buffer_max=100_000) as end:
        _, writer = await asyncio.open_connection(*end.transport.address)
        writer.write(encode_hello(CONSUMER.full_name, "slow~1"))
        await until(lambda: end.transport._peers)
        packet = Packet("leader-1~1", "slow~1/1", 1, Undeclared("x" * 10_000))
        for _ in range(3_000):
            end.transport.send(packet)
            await asyncio.sleep(0)
        assert end.transport.dropped > 0
        (connection,) = end.transport._connections
        assert connection._wire.get_write_buffer_size() <= 100_000
        writer.close()


async def test_of_several_packets_those_go_out_that_there_is_room_for(caplog):
    async with leader(buffer_max=25_000) as end, consumer(end.transport.address) as c:
        await until(lambda: end.transport._peers)
        sizes = (10_000, 10_001, 10_002, 10_003)
        packets = [Packet("leader-1~1", "c1~1/1", one, Undeclared("x" * size)) for one, size in enumerate(sizes)]
        assert end.transport.send_all(packets) == 2
        assert end.transport.dropped == 1
        await c.wait(2)
        assert c.received == packets[:2]
        broken = Packet("leader-1~1", "c1~1/1", 1, Undeclared("\ud800"))
        assert end.transport.send_all([packets[0], broken, packets[1]]) == 1
        await c.wait(3)
        assert c.received == [*packets[:2], packets[0]]
        nobody = Packet("leader-1~1", "other~1/1", 1, Undeclared("x"))
        assert end.transport.send_all([nobody]) == 0
        assert end.transport.dropped == 3
    assert "cannot be written" in caplog.text


async def test_a_node_that_was_started_again_is_found_under_its_name():
    async with leader() as end, consumer(end.transport.address) as old:
        await until(lambda: end.transport._peers)
        await old.transport.__aexit__(None, None, None)
        async with consumer(end.transport.address, life="c1~2") as new:
            await until(lambda: new.transport._peers)
            await until(lambda: end.transport._peers and end.transport._peers["c1"].hello.life == "c1~2")
            end.transport.send(Packet("leader-1~1", "c1~2/1", 1, Undeclared("c1~2/1")))
            await new.wait(1)


async def test_a_message_that_cannot_be_written_is_dropped_with_a_line(caplog):
    async with leader() as end, consumer(end.transport.address):
        await until(lambda: end.transport._peers)
        end.transport.send(Packet("leader-1~1", "c1~1/1", 1, Undeclared("\ud800")))
        assert end.transport.dropped == 1
    assert "cannot be written" in caplog.text


async def test_a_port_in_use_is_named():
    async with leader() as end:
        host, port = end.transport.address
        with pytest.raises(ConfigurationError, match=f"{host}:{port}.*choose another"):
            async with leader(listen=(host, port)):
                pass


@pytest.mark.parametrize(
    "text", ["", "localhost", ":80", "[]:80", "host:", "host:x", "host:70000", "host:\u00b2", "a..b:80"]
)
def test_a_malformed_address_is_named(text):
    with pytest.raises(ConfigurationError, match=r"must be HOST:PORT \(a port is 0 to 65535\)"):
        parse_address(text)
