"""What is read and written in the short way is what the general way reads and writes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt_packets import packets

from statemachines.mqtt_codec import Decoder, MqttVersion, PacketError, encode, packet_form
from statemachines.mqtt_codec.packet import PubackPacket, PublishPacket
from statemachines.mqtt_codec.plain_packet import PLAIN, read_plain_packet, write_plain_packet

VERSIONS = st.sampled_from(MqttVersion)


def read_in_general(first, body, version):
    """The packet, or None where it is wrong."""
    try:
        return packet_form.read_packet(first, body, version)
    except PacketError:
        return None


def write_in_general(packet, version):
    """The bytes, or None where the packet is wrong."""
    short, packet_form.write_plain_packet = packet_form.write_plain_packet, lambda *given: None
    try:
        return encode(packet, version)
    except PacketError:
        return None
    finally:
        packet_form.write_plain_packet = short


@settings(max_examples=300)
@given(st.sampled_from(sorted(PLAIN)), st.binary(max_size=12), VERSIONS)
def test_bytes_that_are_plain_are_read_as_the_general_way_reads_them(first, tail, version):
    for body in (tail, b"\0\1t" + tail, b"\0\2\xc3\xa9\0\1" + tail):
        plain = read_plain_packet(first, body, version)
        assert plain is None or plain == read_in_general(first, body, version)


@settings(max_examples=100)
@given(st.data(), VERSIONS)
def test_packets_that_are_plain_are_written_as_the_general_way_writes_them(data, version):
    packet = data.draw(packets(version))
    plain = write_plain_packet(packet, version)
    assert plain is None or plain == write_in_general(packet, version)


@settings(max_examples=100)
@given(st.text(max_size=4), st.integers(-1, 3), st.integers(-1, 65_536), st.sampled_from((0, 100, 127, 16_380)))
def test_what_the_general_way_refuses_is_not_plain(topic, qos, packet_id, size):
    for version in MqttVersion:
        packet = PublishPacket(topic, b"x" * size, qos, packet_id=packet_id)
        plain = write_plain_packet(packet, version)
        assert plain is None or plain == write_in_general(packet, version)


def test_a_short_message_and_its_answer_are_plain():
    for version in MqttVersion:
        for packet in (PublishPacket("a/b", b"x", 1, packet_id=7), PubackPacket(7)):
            raw = write_plain_packet(packet, version)
            assert raw == write_in_general(packet, version)
            assert read_plain_packet(raw[0], raw[2:], version) == packet
    assert write_plain_packet(PublishPacket("\ud800", b"", 1, packet_id=7), MqttVersion.V5) is None


ANSWERED = st.one_of(
    st.builds(PubackPacket, st.integers(1, 65_535)),
    st.builds(PubackPacket, st.integers(1, 9), st.just(0x80)),
    st.builds(PublishPacket, st.just("t"), st.binary(max_size=3), st.just(1), packet_id=st.just(7)),
)


@settings(max_examples=300)
@given(st.lists(ANSWERED, max_size=12), st.lists(st.integers(1, 60), max_size=8), st.integers(1, 4), st.data())
def test_PUBACKs_that_are_taken_together_are_those_that_come_one_by_one(sent, cuts, most, data):
    raw = b"".join(encode(one, MqttVersion.V5) for one in sent)
    if data.draw(st.booleans()):
        raw += data.draw(st.sampled_from((b"@\2\0\0", b"@\2\0", b"@", b"@\1\0", b"@\2\0\1\x41\2\0\1")))
    pieces = [raw[begin:end] for begin, end in pairwise([0, *sorted(cuts), len(raw) + 60])]

    def read(takes_runs):
        decoder, found = Decoder(5), []
        try:
            for piece in pieces:
                packets = decoder.feed(piece)
                while True:
                    run = packets.take_pubacks(most) if takes_runs else ()
                    assert len(run) <= most
                    packet = None if run else next(packets, None)
                    if not run and packet is None:
                        break
                    found += [PubackPacket(one) for one in run] or [packet]
        except PacketError as error:
            found.append((str(error), error.reason_code))
        return found, decoder.pending_bytes

    assert read(True) == read(False)
