"""What is read and written in the short way is what the general way reads and writes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from mqtt_packets import packets

from statemachines.mqtt_codec import MqttVersion, PacketError, encode, packet_form
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
