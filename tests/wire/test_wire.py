"""Frames: whole ones come through, however they are cut; everything else is a FrameError."""

from __future__ import annotations

import random
from struct import pack

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statemachines.shared_subscriptions.message import (
    BorrowerMessage,
    Grant,
    LeaderMessage,
    LeaderWanted,
    Ping,
    Report,
)
from statemachines.wire import FrameError, Frames, Hello, Packet, PacketCodec, decode_hello, encode_hello, frame

FUZZED = 20_000
BORROWERS = PacketCodec(BorrowerMessage)
LEADERS = PacketCodec(LeaderMessage)

reports = st.builds(Report, st.text(), st.integers(0, 2**62), st.integers(0, 2**63 - 1), st.booleans())
messages = st.one_of(
    st.builds(LeaderWanted, st.text(), st.text(), st.text()),
    st.builds(
        Ping,
        st.text(),
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.integers(0, 2**62),
        st.lists(reports, max_size=4).map(tuple),
    ),
)
packets = st.builds(Packet, st.text(), st.text(), st.integers(0, 2**62), messages)


@given(st.lists(packets, max_size=6), st.data())
def test_packets_come_through_however_the_bytes_are_cut(sent, data):
    stream = b"".join(BORROWERS.encode(packet) for packet in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    frames, received = Frames(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += [BORROWERS.decode(body) for body in frames.feed(stream[begin:end])]
    assert received == sent


def test_a_frame_too_large_is_refused_before_it_has_arrived():
    with pytest.raises(FrameError, match="4294967295 bytes; at most 1048576"):
        list(Frames().feed(b"\xff\xff\xff\xff"))
    with pytest.raises(FrameError, match="at most 10 are allowed"):
        frame(b"x" * 11, 10)


def test_a_message_of_the_other_role_is_refused_by_name():
    grant = LEADERS.encode(Packet("l", "b", 1, Grant("b", 1, 1, "s", 1, 0)))[4:]
    with pytest.raises(FrameError, match=r"not taken here.*grant.*taken are disconnect, leader_wanted, ping"):
        BORROWERS.decode(grant)


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x94\xa1a\xa1b\x01", msgspec.msgpack.encode(["a", "b", 1, []])])
def test_what_is_no_packet_is_refused(body):
    with pytest.raises(FrameError):
        BORROWERS.decode(body)


@pytest.mark.parametrize("msg", [-1, 2**63, 2**64 - 1, True, 1.0, "1"])
def test_the_number_of_a_message_fits_into_a_trace(msg):
    with pytest.raises(FrameError, match=r"\$\[2\]"):
        BORROWERS.decode(msgspec.msgpack.encode(["a", "b", msg, ["leader_wanted", "a", "g", "f"]]))


@pytest.mark.parametrize("number", [-1, 2**63, 2**64 - 1, True])
def test_the_numbers_in_a_message_fit_into_a_trace_too(number):
    ping, report = ["ping", "b", 1, 2, 4, []], ["s", 1, 2, False]
    wrong = [[*ping[:at], number, *ping[at + 1 :]] for at in (2, 4, 4)]
    wrong += [[*ping[:5], [[*report[:at], number, *report[at + 1 :]]]] for at in (1, 2)]
    for message in wrong:
        with pytest.raises(FrameError, match="not taken here"):
            BORROWERS.decode(msgspec.msgpack.encode(["a", "b", 1, message]))
    assert BORROWERS.decode(msgspec.msgpack.encode(["a", "b", 1, [*ping[:5], [report]]]))


@pytest.mark.parametrize("name", ["two\nlines\x1b[2J", "x" * 900_000])
def test_what_a_peer_says_is_repeated_in_one_short_line(name):
    with pytest.raises(FrameError) as refused:
        BORROWERS.decode(msgspec.msgpack.encode(["a", "b", 1, [name]]))
    text = str(refused.value)
    assert text.isprintable()
    assert len(text) < 500
    assert name[:3] in text


@pytest.mark.parametrize("message", [LeaderWanted("c", "g", "\ud800"), Ping("c", 2**64, 1, 1)])
def test_a_message_that_cannot_be_written_is_refused_here(message):
    with pytest.raises(FrameError, match="that cannot be written"):
        BORROWERS.encode(Packet("c", "l", 1, message))


def test_a_frame_may_come_byte_by_byte():
    packet = Packet("c", "l", 1, LeaderWanted("c", "g", "f" * 1_000))
    stream, frames = BORROWERS.encode(packet) * 2, Frames()
    received = [BORROWERS.decode(body) for byte in stream for body in frames.feed(bytes([byte]))]
    assert received == [packet, packet]


def test_bytes_after_a_packet_are_refused():
    body = BORROWERS.encode(Packet("a", "b", 1, LeaderWanted("a", "g", "f")))[4:]
    with pytest.raises(FrameError):
        BORROWERS.decode(body + b"\x00")


def test_a_hello_says_who_speaks():
    hello = decode_hello(encode_hello("locks/consumer", "c1~3")[4:], "locks/consumer")
    assert (hello.node, hello.life, hello.number) == ("c1", "c1~3", 3)
    hello = decode_hello(encode_hello("locks/consumer", "c1~3.00000000000000ff")[4:], "locks/consumer")
    assert (hello.node, hello.number) == ("c1", 3)


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        (
            Hello("gapless", 4, "locks/leader", "l~1"),
            "is a 'locks/leader'; here only a locks/consumer connects",
        ),
        (
            Hello("gapless", 2, "locks/consumer", "c~1"),
            "version 2 of the wire, and this node speaks 4; upgrade that one",
        ),
        (Hello("gapless", 1, "consumer", "c~1"), "version 1 of the wire"),
        (Hello("gapless", 4, "locks/consumer", "c~1.ff"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1.0000000000000000"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1.00000000000000ff00"), "not the life of a node"),
        (Hello("http", 2, "consumer", "c~1"), "not a gapless node"),
        (Hello("gapless", 4, "locks/consumer", "c"), "not a hello"),
        (Hello("gapless", 4, "locks/consumer", "a b~1"), "not a hello"),
        (Hello("gapless", 4, "locks/consumer", "c~-1"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~ 1"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1_0"), "not the life of a node"),
        (Hello("gapless", 4, "locks/consumer", "c~1~2"), "not a hello"),
        ("GET / HTTP/1.1", "not a hello"),
    ],
)
def test_another_hello_is_refused(hello, says):
    with pytest.raises(FrameError, match=says):
        decode_hello(msgspec.msgpack.encode(hello), "locks/consumer")


def mutated(chance, body):
    body = bytearray(body)
    for _ in range(chance.randint(1, 6)):
        match chance.randrange(4):
            case 0 if body:
                body[chance.randrange(len(body))] = chance.randrange(256)
            case 1 if body:
                del body[chance.randrange(len(body))]
            case 2:
                body.insert(chance.randint(0, len(body)), chance.randrange(256))
            case _:
                body = bytearray(chance.randbytes(chance.randint(0, 40)))
    return bytes(body)


def test_fuzzed_frames_raise_nothing_but_frame_errors():
    chance = random.Random(20)
    good = [
        BORROWERS.encode(Packet("c1~1/1", "l~1/1", 7, Ping("c1~1/1", 1, 2, 4, (Report("s", 1, 2, True),)))),
        BORROWERS.encode(Packet("c1~1/1", "leader", 8, LeaderWanted("c1~1/1", "g", "#"))),
        encode_hello("locks/consumer", "c1~1"),
    ]
    refused = 0
    for number in range(FUZZED):
        data = mutated(chance, good[number % 3])
        try:
            for body in Frames().feed(data):
                decode_hello(body, "locks/consumer") if number % 3 == 2 else BORROWERS.decode(body)
        except FrameError:
            refused += 1
    assert refused > FUZZED / 4


def test_deep_nesting_is_refused():
    with pytest.raises(FrameError):
        BORROWERS.decode(b"\x91" * 100_000)
    with pytest.raises(FrameError):
        list(Frames(100).feed(pack(">I", 101)))
