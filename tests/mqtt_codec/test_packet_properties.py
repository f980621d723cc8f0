"""Of every packet, and of every mutation of one: what the codec promises."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt_packets import packets

import statemachines.mqtt_codec
from statemachines.mqtt_codec import (
    ConnectPacket,
    Decoder,
    PacketError,
    PacketProperties,
    PingreqPacket,
    PingrespPacket,
    PublishPacket,
    ReasonCode,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    WillMessage,
    encode,
)

VERSIONS = pytest.mark.parametrize("version", [4, 5])


@VERSIONS
@settings(max_examples=120)
@given(data=st.data())
def test_a_packet_comes_out_as_it_went_in(version, data):
    packet = data.draw(packets(version))
    decoder = Decoder(version)
    assert list(decoder.feed(encode(packet, version))) == [packet]
    assert decoder.pending_bytes == 0


@VERSIONS
@settings(max_examples=20)
@given(data=st.data())
def test_every_prefix_of_a_packet_asks_for_more(version, data):
    raw = encode(data.draw(packets(version)), version)
    for length in range(len(raw)):
        decoder = Decoder(version)
        assert list(decoder.feed(raw[:length])) == []
        assert decoder.pending_bytes == length


@VERSIONS
@settings(max_examples=20)
@given(data=st.data())
def test_pieces_of_any_size_make_the_same_packets(version, data):
    sent = data.draw(st.lists(packets(version), max_size=4))
    raw, decoder, got = b"".join(encode(one, version) for one in sent), Decoder(version), []
    while raw:
        size = data.draw(st.integers(1, 40))
        got += list(decoder.feed(raw[:size]))
        raw = raw[size:]
    assert got == sent


SEEDS = [
    (version, encode(packet, version))
    for version in (4, 5)
    for packet in (
        ConnectPacket("a", version, True, 60, WillMessage("t/w", b"gone", 1, True), "user", b"secret"),
        PublishPacket("a/b", b"payload", 1, packet_id=7),
        SubscribePacket(9, (TopicSubscription("a/#", 1), TopicSubscription("$share/g/b", 2))),
        SubackPacket(9, (0, 1, 0x80)),
    )
] + [
    (5, encode(packet, 5))
    for packet in (
        ConnectPacket("a", properties=PacketProperties(session_expiry=9, user_properties=(("k", "v"),))),
        PublishPacket("a/b", b"x", 2, packet_id=1, properties=PacketProperties(topic_alias=4, response_topic="r/s")),
    )
]  # fmt: skip


def decode_until_error(decoder, raw):
    """The packets, and the error behind them: one of the codec with a reason code, or None."""
    got = []
    try:
        for packet in decoder.feed(raw):
            got.append(packet)
    except PacketError as error:
        return got, check_error(decoder, error)
    return got, None


def check_error(decoder, error):
    assert error.reason_code >= ReasonCode.UNSPECIFIED_ERROR
    assert error.statement
    assert decoder.pending_bytes == 0
    return error


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_mutations_are_packets_or_errors_with_a_reason_code(count):
    chance, errors, good = Random(38), 0, 0
    for turn in range(count):
        version, raw = SEEDS[turn % len(SEEDS)]
        spoiled = bytearray(raw)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(spoiled))
            match chance.randrange(4):
                case 0:
                    spoiled[at] ^= 1 << chance.randrange(8)
                case 1:
                    spoiled[at] = chance.randrange(256)
                case 2:
                    del spoiled[at:]
                    spoiled += chance.randbytes(3)
                case _:
                    spoiled.insert(at, chance.randrange(256))
        decoder = Decoder(version if chance.random() < 0.8 else None, max_packet=4_096)
        got, error = decode_until_error(decoder, bytes(spoiled))
        good += len(got)
        errors += error is not None
        for packet in got:
            again = encode(packet, decoder.version)
            assert list(Decoder(decoder.version).feed(again)) == [packet]
    assert errors > count // 4
    assert good > count // 20


@given(st.binary(max_size=60), st.sampled_from([None, 4, 5]))
def test_any_bytes_are_packets_or_an_error(raw, version):
    decoder = Decoder(version)
    _, error = decode_until_error(decoder, raw)
    if error is not None:  # the same error for ever, and nothing is kept
        assert decode_until_error(decoder, b"\xc0\x00") == ([], error)
    assert decoder.pending_bytes <= len(raw)


@given(st.integers(0, 0x0FFF_FFFF), st.integers(2, 5_000))
def test_nothing_is_kept_of_a_packet_beyond_the_limit(length, limit):
    header = bytearray([0x30])
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    whole = len(header) + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(header[1:]))
    decoder = Decoder(5, max_packet=limit)
    if whole > limit:
        with pytest.raises(PacketError) as caught:
            list(decoder.feed(bytes(header)))
        assert caught.value.reason_code is ReasonCode.PACKET_TOO_LARGE
        decoder.feed(b"x" * 10_000)
        assert decoder.pending_bytes == 0
    elif whole > len(header):
        assert list(decoder.feed(bytes(header))) == []
        assert decoder.pending_bytes <= limit


def test_packets_before_an_error_are_not_lost():
    got, error = decode_until_error(Decoder(5), b"\xc0\x00\xd0\x00\xc0\x01")
    assert got == [PingreqPacket(), PingrespPacket()]
    assert error.statement == "3.12.2"


def test_a_packet_in_many_small_pieces_is_copied_once():
    """Feeding is linear: the buffer is compacted only behind a packet that was taken."""
    raw = encode(PublishPacket("t", b"x" * 200_000), 5)
    decoder = Decoder(5)
    for at in range(0, len(raw) - 1, 100):
        assert list(decoder.feed(raw[at : min(at + 100, len(raw) - 1)])) == []
    (packet,) = decoder.feed(raw[-1:])
    assert len(packet.payload) == 200_000


@pytest.mark.parametrize(
    ("version", "limit", "said"),
    [*((5, one, "max_packet = ") for one in (1, 0, -1, 268_435_461)), (3, 100, "3 is not"), (6, 100, "6 is not")],
)
def test_a_limit_that_cannot_be_and_an_unknown_version_are_refused(version, limit, said):
    with pytest.raises(ValueError, match=said):
        Decoder(version, max_packet=limit)


def test_the_codec_imports_msgspec_and_nothing_of_this_repository():
    folder = Path(statemachines.mqtt_codec.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom | ast.Import):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
                for name in names:
                    root = name.split(".")[0]
                    assert (
                        root in sys.stdlib_module_names
                        or root == "msgspec"
                        or name.startswith("statemachines.mqtt_codec")
                    ), (path, name)
