"""The TCP transport: packets arrive, connections come back, bad peers are cut off and nobody else notices."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from statemachines.drivers import complaint_log, tcp
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.drivers.tcp import TcpTransport, parse_address
from statemachines.drivers.unfinished_frames import UnfinishedFrames
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.message import (
    BorrowerMessage,
    Grant,
    LeaderMessage,
    LeaderWanted,
    Undeclared,
)
from statemachines.wire import Packet, PacketCodec, encode_hello, frame

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


async def test_packets_go_both_ways_and_keep_their_order():
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers)
        for number in range(500):
            c.transport.send(wanted(number))
        await end.wait(500)
        assert [packet.msg for packet in end.received] == list(range(500))
        end.transport.send(Packet("leader-1~1", "c1~1/1", 1, Undeclared("c1~1/1")))
        await c.wait(1)
        assert c.received == [Packet("leader-1~1", "c1~1/1", 1, Undeclared("c1~1/1"))]


async def test_whoever_is_known_may_send_large_frames():
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers)
        c.transport.send(Packet("c1~1/1", "leader", 1, LeaderWanted("c1~1/1", "g", "#" * 500_000)))
        await end.wait(1)


async def test_a_dialled_peer_goes_by_its_own_name_too():
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers)
        c.transport.send(Packet("c1~1/1", "leader-1~1/4", 1, WANTED))
        await end.wait(1)


async def test_nobody_there_is_a_drop():
    async with leader() as end:
        end.transport.send(Packet("leader-1~1", "c9~1/1", 1, Undeclared("c9~1/1")))
        assert end.transport.dropped == 1


async def test_a_connection_comes_back_by_itself():
    async with leader() as first:
        address = first.transport.address
        async with consumer(address) as c:
            await until(lambda: c.transport._peers)
            await first.transport.__aexit__(None, None, None)
            await until(lambda: not c.transport._peers)
            async with leader(listen=address) as second:
                await until(lambda: c.transport._peers)
                c.transport.send(wanted(7))
                await second.wait(1)


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


GRANT = PacketCodec(LeaderMessage).encode(Packet("x", "leader-1~1", 1, Grant("b", 1, 1, "s", 1, 0)))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "bytes; at most"),
        (b"\xff" * 8, "bytes; at most"),
        (frame(b"\xc1"), "not a hello"),
        (frame(b"x" * 2_000), "a frame of 2000 bytes; at most 1024 are allowed"),
        (
            encode_hello("lock_service/holder", "x~1"),
            "is a 'lock_service/holder'; here only a shared_subscriptions/consumer or a ",
        ),
        (encode_hello(CONSUMER.full_name, "x~1") + frame(b"\xc1"), "not MessagePack"),
        (encode_hello(CONSUMER.full_name, "x~1") + GRANT, "not taken here"),
    ],
)
async def test_a_bad_peer_is_cut_off_and_nobody_else_notices(caplog, data, says):
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers)
        await talk(end.transport.address, data)
        c.transport.send(wanted(1))
        await end.wait(1)
    (line,) = [record.getMessage() for record in caplog.records]
    assert says in line
    assert "127.0.0.1:" in line


async def test_what_goes_on_is_not_said_again_at_once_and_little_is_remembered(monkeypatch, caplog):
    monkeypatch.setattr(complaint_log, "COMPLAINTS_MAX", 3)
    async with leader() as end:
        for role in ("broker", "broker", "x", "broker", "y", "z"):
            await talk(end.transport.address, encode_hello(role, "x~1"))
        assert len(end.transport._complaints._complaints) <= 3
        monkeypatch.setattr(complaint_log, "REPEAT_S", -1.0)
        end.transport._complaints._complaints.clear()
        for _ in range(2):
            await talk(end.transport.address, encode_hello("again", "x~1"))
    said = [record.getMessage().partition("is a ")[2].split("'")[1] for record in caplog.records]
    assert said == ["broker", "x", "y", "z", "again", "again"]
    assert [record.getMessage().endswith("(2 times so far)") for record in caplog.records] == [False] * 5 + [True]


async def test_whoever_says_nothing_is_cut_off(monkeypatch, caplog):
    monkeypatch.setattr(tcp, "HELLO_S", 0.05)
    async with leader() as end:
        await talk(end.transport.address, b"")
    assert "no hello" in caplog.text


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


async def test_a_second_connection_of_a_node_replaces_the_first(caplog):
    async with leader() as end:
        first_reader, first = await asyncio.open_connection(*end.transport.address)
        first.write(encode_hello(CONSUMER.full_name, "c1~1"))
        await until(lambda: "c1" in end.transport._peers)
        reader, second = await asyncio.open_connection(*end.transport.address)
        second.write(encode_hello(CONSUMER.full_name, "c1~2"))
        hello = encode_hello(LEADER.full_name, "leader-1~1")
        assert await asyncio.wait_for(first_reader.read(), 120) == hello  # and then the end
        packet = Packet("leader-1~1", "c1~2/1", 1, Undeclared("c1~2/1"))
        end.transport.send(packet)
        expected = hello + PacketCodec(BorrowerMessage).encode(packet)
        assert await asyncio.wait_for(reader.readexactly(len(expected)), 120) == expected
        assert end.transport.dropped == 0
        first.close()
        second.close()
    assert "c1~2 has connected again" in caplog.text
    assert "two processes run under one name" in caplog.text


async def test_two_processes_of_one_name_do_not_replace_each_other_at_full_speed(monkeypatch, caplog):
    """Only a connection that lasted begins the pauses anew; these never do, so the pauses double."""
    monkeypatch.setattr(tcp, "LASTED_S", 3_600.0)
    pauses, sleep = [], asyncio.sleep

    async def counted(seconds):
        if seconds in (0.05, 0.1, 0.2, 0.4):
            pauses.append(seconds)
        await sleep(seconds)

    async with leader() as end, consumer(end.transport.address), consumer(end.transport.address, life="c1~2"):
        monkeypatch.setattr(asyncio, "sleep", counted)
        for _ in range(3_000):
            await sleep(0.01)
            if 0.4 in pauses:
                break
    assert set(pauses) == {0.05, 0.1, 0.2, 0.4}
    assert pauses.count(0.05) <= 2
    assert pauses.count(0.1) <= 2


async def test_a_message_too_large_for_a_frame_is_dropped_with_a_line(caplog):
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: end.transport._peers)
        end.transport.send(Packet("leader-1~1", "c1~1/1", 1, Undeclared("x" * 2**21)))
        assert end.transport.dropped == 1
        assert c.received == []
    assert "at most 1048576" in caplog.text


async def test_a_message_that_cannot_be_written_is_dropped_with_a_line(caplog):
    async with leader() as end, consumer(end.transport.address):
        await until(lambda: end.transport._peers)
        end.transport.send(Packet("leader-1~1", "c1~1/1", 1, Undeclared("\ud800")))
        assert end.transport.dropped == 1
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(("host", "says"), [("a..b", "idna"), ("127.0.0.1", "refused")])
async def test_a_peer_that_is_not_there_is_named_once_and_tried_for_ever(monkeypatch, caplog, host, says):
    monkeypatch.setattr(tcp, "BACKOFF_S", (0.001, 0.001))
    with socket.socket() as nobody:
        nobody.bind(LOCAL)  # taken, and not listening
        address = (host, nobody.getsockname()[1])

        loop = asyncio.get_running_loop()
        create, tries = loop.create_connection, []

        async def counted(*arguments, **options):
            tries.append(arguments)
            return await create(*arguments, **options)

        monkeypatch.setattr(loop, "create_connection", counted)
        async with consumer(address):
            await until(lambda: len(tries) > 5)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"cannot reach leader at {host}:{address[1]}" in line
    assert says in line.lower()


async def test_a_peer_whose_machine_is_gone_is_noticed():
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers and end.transport._peers)
        for transport in (c.transport, end.transport):
            (connection,) = transport._connections
            wire = connection._wire.get_extra_info("socket")
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 1_000 * tcp.SILENCE_S


async def test_closing_twice_is_closing_once():
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers)
        for _ in range(2):
            await c.transport.__aexit__(None, None, None)
            await end.transport.__aexit__(None, None, None)
        c.transport.send(wanted(1))
        assert c.transport.dropped == 1
        assert not c.transport._connections


async def test_fuzzed_connections_harm_nobody():
    """Whatever strangers say, a good peer's packets come through, and nothing but warnings is raised."""
    chance = random.Random(7)
    good = encode_hello(CONSUMER.full_name, "x~1") + PacketCodec(BorrowerMessage).encode(
        Packet("x~1", "leader", 0, WANTED)
    )

    def spoilt():
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data[: chance.randint(1, len(data))])

    failures = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with leader() as end, consumer(end.transport.address) as c:
        await until(lambda: c.transport._peers)
        for number in range(300):
            await talk(end.transport.address, spoilt(), read=False)
            c.transport.send(wanted(number))
        await until(lambda: sum(packet.sender == "c1~1/1" for packet in end.received) == 300)
    assert failures == []


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


def test_addresses():
    assert parse_address("127.0.0.1:80") == ("127.0.0.1", 80)
    assert parse_address("[::1]:80") == ("::1", 80)


def test_sockets_are_read_in_pieces_that_need_no_memory_of_their_own():
    """A transport of another loop, which has no such size, is left alone."""

    class Selected:
        max_size = 2**18

    transport = Selected()
    tcp.limit_reads(transport)
    assert transport.max_size == tcp.READ_MAX < 2**17
    tcp.limit_reads(object())
