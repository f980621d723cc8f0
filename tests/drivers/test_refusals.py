"""Who is cut off is told why (SS-258): both ends have one line, and what comes behind a refusal is not heard."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest
from test_tcp import LOCAL, consumer, leader, until

from statemachines.drivers import tcp
from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.shared_subscriptions.message import LeaderWanted
from statemachines.wire import REFUSAL_MAX, Frames, Packet, PacketCodec, encode_hello, encode_refusal, frame, refusal_in

WANTED = LeaderWanted("c1~1/1", "g", "#")


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(tcp, "BACKOFF_S", (0.01, 0.05))


async def frames_of(reader):
    """The bodies of what somebody is told, until the other side ends."""
    return [bytes(body) for body in Frames().feed(await reader.read())]


def logged(caplog, words):
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


async def test_SS_258_an_older_life_is_told_that_it_is_one(caplog):
    """Only the leader host can know: it hears both."""
    async with leader() as end, consumer(end.transport.address, "c1~2") as newer:
        await until(lambda: newer.transport._peers and end.transport._peers)
        async with consumer(end.transport.address, "c1~1"):
            await until(lambda: logged(caplog, "refuses this node"))
            for _ in range(10):
                await asyncio.sleep(0.02)  # it comes again and again
        assert end.transport._peers["c1"].hello.life == "c1~2"
    ours = logged(caplog, "(c1) is cut off: is an older life of c1, and c1~2 is connected; it will end")
    theirs = logged(caplog, "(leader-1) refuses this node, of which it says: is an older life of c1, and c1~2 is")
    assert (len(ours), len(theirs)) == (1, 1)


async def test_SS_258_another_version_is_told_and_so_is_who_speaks_nothing_of_ours():
    async with leader() as end:
        hello = ["gapless", 2, CONSUMER.full_name, "c1~1"]
        for said, why in (
            (frame(msgspec.msgpack.encode(hello)), "speaks version 2 of the wire"),
            (frame(b"\xc1"), "not a hello of a gapless node"),
            (encode_hello(CONSUMER.full_name, "c1~1") + frame(b"\xc1"), "not MessagePack"),
        ):
            reader, writer = await asyncio.open_connection(*end.transport.address)
            writer.write(said)
            _, told = await frames_of(reader)
            assert refusal_in(told).startswith(why)
            writer.close()


async def test_SS_258_what_comes_right_behind_a_refused_hello_is_not_heard():
    """In one piece, as the kernel may bring it."""
    async with leader() as end, consumer(end.transport.address, "c1~2") as newer:
        await until(lambda: newer.transport._peers and end.transport._peers)
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


async def test_SS_258_who_goes_on_talking_hears_why_and_is_refused_once(caplog):
    """A connection that is closed with bytes unread is reset, and what was told over it is lost."""
    async with leader() as end:
        reader, writer = await asyncio.open_connection(*end.transport.address)
        writer.write(frame(b"\xc1") + bytes(4 * 2**20) + b"\xff" * 2**20)
        _, told = await frames_of(reader)
        assert refusal_in(told).startswith("not a hello")
        writer.close()
        await until(lambda: not end.transport._connections)
    assert len(logged(caplog, "is cut off")) == 1


async def test_SS_258_who_does_not_go_is_cut_off_all_the_same(monkeypatch):
    monkeypatch.setattr(tcp, "TELL_S", 0.2)
    async with leader() as end:
        reader, writer = await asyncio.open_connection(*end.transport.address)
        writer.write(frame(b"\xc1"))
        await frames_of(reader)  # and our side stays open
        await until(lambda: not end.transport._connections)
        writer.close()


async def test_SS_258_nobody_is_sent_anything_over_a_connection_that_was_refused():
    async with leader() as end:
        reader, writer = await asyncio.open_connection(*end.transport.address)
        writer.write(encode_hello(CONSUMER.full_name, "c1~1"))
        await until(lambda: "c1" in end.transport._peers)
        connection = end.transport._peers["c1"]
        wrong = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: wrong.append(context))
        assert connection.send(Packet("leader-1~1", "c1~1/1", 1, WANTED))
        connection.refuse("it may not stay")
        assert not connection.send(Packet("leader-1~1", "c1~1/1", 1, WANTED))
        assert not end.transport.is_peer_of("consumer", "c1~1/1")
        _, told = await frames_of(reader)
        assert refusal_in(told) == "it may not stay"
        writer.close()
        assert not wrong


async def test_SS_258_a_reason_is_somebody_s_word_bounded_and_never_raw(caplog):
    """Whoever we dial may say anything."""
    said = []

    async def serve(reader, writer):
        writer.write(encode_hello(LEADER.full_name, "leader-1~1") + said[-1])
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, *LOCAL)
    address = server.sockets[0].getsockname()[:2]
    for body, expected in (
        (["gapless refusal", "go\x1b[2J\naway\u202e"], r"says: go\x1b[2J\naway\u202e"),
        (["gapless refusal", ""], "says: it gives no reason"),
        (["gapless refusal", "x" * (REFUSAL_MAX + 1)], "is cut off: not MessagePack"),
        (["gapless refusal", "x", 1], "is cut off: "),
        (["another refusal", "x"], "is cut off: "),
    ):
        caplog.clear()
        said.append(frame(msgspec.msgpack.encode(body)))
        async with consumer(address):
            await until(lambda: logged(caplog, "(leader-1)"))
        (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert expected.replace("not MessagePack", "") in line
        assert line.isascii()
        assert line.isprintable()
    server.close()


def test_a_reason_of_any_length_fits_into_a_frame_before_the_greeting():
    for why in ("x" * 5_000, "\U0001f600" * 5_000, "\x1b" * 5_000):
        (body,) = Frames(1_024).feed(encode_refusal(why))
        assert len(refusal_in(body)) >= REFUSAL_MAX
