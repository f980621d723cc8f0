"""Normative statements of MQTT 5 (and 3.1.1, where it says so) that concern one packet: bytes that break each.

Of every packet, and of every mutation of one: what the codec promises.

What is read and written in the short way is what the general way reads and writes.
"""

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
    AuthPacket,
    ConnackPacket,
    ConnectPacket,
    Decoder,
    DisconnectPacket,
    MalformedPacket,
    MqttVersion,
    PacketError,
    PacketProperties,
    PingreqPacket,
    PingrespPacket,
    ProtocolViolation,
    PubrelPacket,
    ReasonCode,
    SubackPacket,
    SubscribePacket,
    TopicSubscription,
    UnsubackPacket,
    UnsubscribePacket,
    WillMessage,
    encode,
    packet_form,
)
from statemachines.mqtt_codec.packet import PubackPacket, PublishPacket
from statemachines.mqtt_codec.plain_packet import PLAIN, read_plain_packet, write_plain_packet


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return len(data).to_bytes(2, "big") + data


def frame(first, *parts):
    body = b"".join(parts)
    assert len(body) < 128
    return bytes((first, len(body))) + body


def connect(flags=2, level=5, name="MQTT", properties=b"\0", tail=None):
    tail = text("c") if tail is None else tail
    return frame(0x10, text(name), bytes((level, flags)), b"\0\0", properties if level == 5 else b"", tail)


def publish(properties=b"\0", topic="t", first=0x30, packet_id=b""):
    return frame(first, text(topic), packet_id, properties, b"p")


def subscribe(topic_filter="t", options=0, packet_id=b"\0\1", properties=b"\0"):
    return frame(0x82, packet_id, properties, text(topic_filter), bytes((options,)))


M, P = MalformedPacket, ProtocolViolation
BROKEN = [
    # statement, bytes, version (0: a server that knows none yet), error, reason code
    ("MQTT-1.5.4-1", publish(topic=b"\xed\xa0\x80"), 5, M, 0x81),
    ("MQTT-1.5.4-1", publish(topic=b"\xff"), 5, M, 0x81),
    ("MQTT-1.5.4-1", publish(topic=b"\xc0\xaf"), 4, M, 0x81),
    ("MQTT-1.5.4-1", connect(tail=text(b"\xed\xbf\xbf")), 0, M, 0x81),
    ("MQTT-1.5.4-2", publish(topic="a\0"), 5, M, 0x81),
    ("MQTT-1.5.4-2", subscribe("a\0"), 5, M, 0x81),
    ("MQTT-1.5.5-1", b"\xc0\x80\x00", 5, M, 0x81),
    ("MQTT-1.5.5-1", publish(b"\x80\x00"), 5, M, 0x81),
    ("1.5.5", publish(b"\xff\xff\xff\xff\x01"), 5, M, 0x81),
    ("2.1.2", b"\x00\x00", 5, M, 0x81),
    ("2.1.2", b"\xf0\x00", 4, M, 0x81),
    ("MQTT-2.1.3-1", b"\xc1\x00", 5, M, 0x81),
    ("MQTT-2.1.3-1", frame(0x60, b"\0\1"), 5, M, 0x81),  # 3.6.1-1
    ("MQTT-2.1.3-1", frame(0x80, b"\0\1\0", text("t"), b"\0"), 5, M, 0x81),  # 3.8.1-1
    ("MQTT-2.1.3-1", frame(0xA0, b"\0\1\0", text("t")), 5, M, 0x81),  # 3.10.1-1
    ("MQTT-2.1.3-1", b"\xe1\x00", 5, M, 0x81),  # 3.14.1-1
    ("MQTT-2.1.3-1", b"\xf1\x00", 5, M, 0x81),  # 3.15.1-1
    ("2.1.4", b"\x30\xff\xff\xff\xff\x01", 5, M, 0x81),
    ("2.1.4", frame(0x30, b"\0\5ab"), 5, M, 0x81),
    ("2.1.4", frame(0x40, b"\0\1\0\0\0"), 5, M, 0x81),
    ("2.1.4", frame(0x40, b"\0\1\0"), 4, M, 0x81),
    ("2.1.4", frame(0x40, b"\0"), 5, M, 0x81),
    ("MQTT-2.2.1-3", publish(first=0x32, packet_id=b"\0\0"), 5, P, 0x82),
    ("MQTT-2.2.1-3", subscribe(packet_id=b"\0\0"), 5, P, 0x82),
    ("MQTT-2.2.1-3", frame(0xA2, b"\0\0\0", text("t")), 5, P, 0x82),
    ("MQTT-2.2.1-3", frame(0x40, b"\0\0"), 5, P, 0x82),
    ("2.2.2.1", publish(b"\x7f"), 5, M, 0x81),
    ("2.2.2.2", publish(b"\x03\x21\0\5"), 5, M, 0x81),  # receive maximum is none of PUBLISH
    ("2.2.2.2", publish(b"\x02\x7e\0"), 5, M, 0x81),  # nobody knows 0x7E
    ("2.1.4", publish(b"\x01\x01"), 5, M, 0x81),  # a value that leaves the properties
    ("2.2.2.2", publish(b"\x04\x01\0\x01\0"), 5, P, 0x82),
    ("2.2.2.2", connect(properties=b"\x02\x17\x02"), 0, P, 0x82),
    ("2.2.2.2", connect(properties=b"\x0a" + b"\x11\0\0\0\1" * 2), 0, P, 0x82),
    ("MQTT-3.1.0-1", b"\xc0\x00", 0, P, 0x82),
    ("MQTT-3.1.0-1", b"\x30", 0, P, 0x82),
    ("MQTT-3.1.2-2", connect(level=6), 0, P, 0x84),
    ("MQTT-3.1.2-2", connect(level=0x84), 0, P, 0x84),  # a bridge
    ("MQTT-3.1.2-2", connect(name="MQIsdp", level=3), 0, P, 0x84),
    ("MQTT-3.1.2-2", connect(name="HTTP"), 0, P, 0x84),
    ("MQTT-3.1.2-3", connect(3), 0, M, 0x81),
    ("MQTT-3.1.2-11", connect(0x0A), 0, M, 0x81),
    ("MQTT-3.1.2-11", connect(0x22), 0, M, 0x81),  # 3.1.2-13
    ("MQTT-3.1.2-12", connect(0x1E, tail=text("c") + b"\0" + text("w") + text("")), 0, M, 0x81),
    ("2.1.4", connect(6), 0, M, 0x81),  # a will flag, and no will: 3.1.2-9
    ("2.1.4", connect(0x82), 0, M, 0x81),  # 3.1.2-17
    ("2.1.4", connect(0x42), 0, M, 0x81),  # 3.1.2-19
    ("2.1.4", connect(tail=text("c") + text("u")), 0, M, 0x81),  # 3.1.2-16
    ("3.1.1: MQTT-3.1.2-22", connect(0x42, 4, tail=text("c") + text("p")), 0, M, 0x81),
    ("3.1.1: MQTT-3.1.3-8", connect(0, 4, tail=text("")), 0, P, 0x85),
    ("MQTT-3.3.2-2", connect(6, tail=text("c") + b"\0" + text("w/#") + text("")), 0, P, 0x90),
    ("3.1.2.11", connect(properties=b"\x03\x21\0\0"), 0, P, 0x82),
    ("3.1.2.11", connect(properties=b"\x05\x27\0\0\0\0"), 0, P, 0x82),
    ("3.1.2.11.10", connect(properties=b"\x03\x16\0\0"), 0, P, 0x82),
    ("MQTT-3.2.2-1", frame(0x20, b"\x02\0\0"), 5, M, 0x81),
    ("MQTT-3.2.2-6", frame(0x20, b"\x01\x87\0"), 5, P, 0x82),
    ("MQTT-3.2.2-8", frame(0x20, b"\0\x10\0"), 5, P, 0x82),
    ("MQTT-3.2.2-8", frame(0x20, b"\0\6"), 4, P, 0x82),
    ("MQTT-3.3.1-2", publish(first=0x38), 5, M, 0x81),
    ("MQTT-3.3.1-4", b"\x36", 5, M, 0x81),
    ("MQTT-3.3.2-2", publish(topic="a/+"), 5, P, 0x90),
    ("MQTT-3.3.2-2", frame(0x30, text("#")), 4, P, 0x90),
    ("MQTT-4.7.3-1", frame(0x30, text("")), 4, P, 0x90),
    ("3.3.2.1", publish(topic=""), 5, P, 0x82),
    ("MQTT-3.3.2-8", publish(b"\x03\x23\0\0"), 5, P, 0x94),
    ("MQTT-3.3.2-14", publish(b"\x06\x08\0\3a/#"), 5, P, 0x90),
    ("3.8.2.1.2", publish(b"\x02\x0b\0"), 5, P, 0x82),
    ("MQTT-3.4.2-1", frame(0x40, b"\0\1\x92"), 5, P, 0x82),
    ("MQTT-3.5.2-1", frame(0x50, b"\0\1\x01"), 5, P, 0x82),
    ("MQTT-3.6.2-1", frame(0x62, b"\0\1\x10"), 5, P, 0x82),
    ("MQTT-3.7.2-1", frame(0x70, b"\0\1\x80"), 5, P, 0x82),
    ("3.8.2.1.2", subscribe(properties=b"\x02\x0b\0"), 5, P, 0x82),
    ("2.2.2.2", subscribe(properties=b"\x04\x0b\1\x0b\2"), 5, P, 0x82),
    ("MQTT-3.8.3-2", frame(0x82, b"\0\1\0"), 5, P, 0x82),
    ("MQTT-3.8.3-2", frame(0x82, b"\0\1"), 4, P, 0x82),
    ("MQTT-3.8.3-4", subscribe("$share/g/t", 4), 5, P, 0x82),
    ("MQTT-3.8.3-5", subscribe(options=0x40), 5, M, 0x81),
    ("MQTT-3.8.3-5", frame(0x82, b"\0\1", text("t"), b"\4"), 4, M, 0x81),
    ("3.8.3.1", subscribe(options=3), 5, P, 0x82),
    ("3.8.3.1", subscribe(options=0x30), 5, P, 0x82),
    ("MQTT-3.9.3-2", frame(0x90, b"\0\1\0\3"), 5, P, 0x82),
    ("MQTT-3.9.3-2", frame(0x90, b"\0\1\x87"), 4, P, 0x82),
    ("MQTT-3.8.4-6", frame(0x90, b"\0\1\0"), 5, P, 0x82),
    ("MQTT-3.10.3-2", frame(0xA2, b"\0\1\0"), 5, P, 0x82),
    ("3.11.3", frame(0xB0, b"\0\1\0"), 5, P, 0x82),
    ("MQTT-3.11.3-2", frame(0xB0, b"\0\1\0"), 4, P, 0x82),
    ("MQTT-3.11.3-2", frame(0xB0, b"\0\1\0\1"), 5, P, 0x82),
    ("3.12.2", b"\xc0\x01", 5, M, 0x81),
    ("3.13.2", b"\xd0\x7f", 4, M, 0x81),
    ("3.14.2", b"\xe0\x01", 4, M, 0x81),
    ("MQTT-3.14.2-1", frame(0xE0, b"\x01"), 5, P, 0x82),
    ("MQTT-3.15.2-1", frame(0xF0, b"\x80\0"), 5, P, 0x82),
    ("3.15.2.2.2", frame(0xF0, b"\x18\0"), 5, P, 0x82),
    ("MQTT-4.7.1-1", subscribe("a#"), 5, P, 0x8F),
    ("MQTT-4.7.1-1", subscribe("#/a"), 5, P, 0x8F),
    ("MQTT-4.7.1-1", subscribe("##"), 5, P, 0x8F),
    ("MQTT-4.7.1-2", subscribe("a/b+"), 5, P, 0x8F),
    ("MQTT-4.7.1-2", subscribe("++/a"), 5, P, 0x8F),
    ("MQTT-4.7.1-2", frame(0xA2, b"\0\1\0", text("a+")), 5, P, 0x8F),
    ("MQTT-4.7.3-1", subscribe(""), 5, P, 0x8F),
    ("MQTT-4.7.3-1", subscribe("$share/g/"), 5, P, 0x8F),
    ("MQTT-4.8.2-1", subscribe("$share//t"), 5, P, 0x8F),
    ("MQTT-4.8.2-2", subscribe("$share/g"), 5, P, 0x8F),
    ("MQTT-4.8.2-2", subscribe("$share/g+/t"), 5, P, 0x8F),
]


@pytest.mark.parametrize(
    ("statement", "raw", "version", "error", "code"), BROKEN, ids=[f"{one[0]}-{n}" for n, one in enumerate(BROKEN)]
)
def test_bytes_that_break_a_statement_are_answered_by_its_reason_code(statement, raw, version, error, code):
    with pytest.raises(PacketError) as caught:
        list(Decoder(version or None).feed(raw))
    assert (type(caught.value), caught.value.reason_code, caught.value.statement) == (error, code, statement)


ACKNOWLEDGED = (0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
REASONS = {
    "CONNACK": (
        "2003 00 {} 00",
        (0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F),
    ),
    "PUBACK": ("4003 0001 {}", ACKNOWLEDGED),
    "PUBREC": ("5003 0001 {}", ACKNOWLEDGED),
    "PUBREL": ("6203 0001 {}", (0x00, 0x92)),
    "PUBCOMP": ("7003 0001 {}", (0x00, 0x92)),
    "SUBACK": ("9004 0001 00 {}", (0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)),
    "UNSUBACK": ("b004 0001 00 {}", (0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91)),
    "DISCONNECT": (
        "e001 {}",
        (0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x8F, 0x90, *range(0x93, 0xA3)),
    ),
    "AUTH": ("f006 {} 04 15 0001 6d", (0x00, 0x18, 0x19)),
}
"""Packet -> its bytes, and the codes of its table in the standard."""


@pytest.mark.parametrize("name", REASONS)
def test_each_packet_has_the_reason_codes_of_its_table_and_no_other(name):
    form, codes = REASONS[name]
    taken = []
    for code in range(256):
        try:
            (packet,) = Decoder(5).feed(bytes.fromhex(form.format(f"{code:02x}")))
        except ProtocolViolation:
            continue
        taken.append(packet.reason_codes[0] if hasattr(packet, "reason_codes") else packet.reason_code)
    assert taken == list(codes)


def test_MQTT_3_1_2_2_a_refused_level_is_told_for_the_answer():
    """A client of 3.1 is answered `20 02 00 01`, others 0x84: whoever answers must know which it is."""
    with pytest.raises(ProtocolViolation) as caught:
        list(Decoder().feed(connect(name="MQIsdp", level=3)))
    assert caught.value.level == 3


# -- vectors ----------------------------------------------------------------------------------------------------------

VECTORS = [
    # MQTT-1.5.4-3: a byte order mark stays; MQTT-2.2.1-2: no packet id at QoS 0; MQTT-2.2.2-1: no properties, length 0
    (5, "30 08 0004 efbbbf61 00 70", PublishPacket("\ufeffa", b"p")),
    (4, "30 04 0001 74 70", PublishPacket("t", b"p")),
    (5, "30 05 0001 74 00 70", PublishPacket("t", b"p")),
    (4, "c0 80 00", PingreqPacket()),
    # 3.1.1, section 3.1: CONNECT with all that it can have
    (4, "10 24 0004 4d515454 04 ce 000a 0001 61 0001 77 0003 627965 0005 68656c6c6f 0006 733363726574",
     ConnectPacket("a", MqttVersion.V3_1_1, True, 10, WillMessage("w", b"bye", 1), "hello", b"s3cret")),
    (4, "20 02 01 00", ConnackPacket(True)),
    (4, "20 02 00 05", ConnackPacket(False, 5)),
    # 3.1.1, section 3.3.2.3: topic a/b, packet id 10
    (4, "32 08 0003 612f62 000a 21", PublishPacket("a/b", b"!", 1, packet_id=10)),
    # MQTT 5, figure 3.9: topic a/b, packet id 10, no properties
    (5, "32 08 0003 612f62 000a 00", PublishPacket("a/b", b"", 1, packet_id=10)),
    (5, "3d 0c 0003 612f62 000a 03 23 0005 ff",
     PublishPacket("a/b", b"\xff", 2, True, True, 10, PacketProperties(topic_alias=5))),
    (5, "40 02 0001", PubackPacket(1)),
    (5, "40 03 0001 10", PubackPacket(1, 0x10)),
    (5, "62 03 0001 92", PubrelPacket(1, 0x92)),
    # 3.1.1, figure 3.23: a/b at QoS 1, c/d at QoS 2
    (4, "82 0e 000a 0003 612f62 01 0003 632f64 02",
     SubscribePacket(10, (TopicSubscription("a/b", 1), TopicSubscription("c/d", 2)))),
    (5, "82 0b 000a 02 0b 05 0003 612f62 2d",
     SubscribePacket(10, (TopicSubscription("a/b", 1, True, True, 2),), PacketProperties(subscription_ids=(5,)))),
    (5, "90 05 000a 00 01 87", SubackPacket(10, (1, 0x87))),
    (4, "90 05 000a 00 02 80", SubackPacket(10, (0, 2, 0x80))),
    (5, "a2 0d 000a 00 0003 612f62 0003 632f64", UnsubscribePacket(10, ("a/b", "c/d"))),
    (4, "b0 02 000a", UnsubackPacket(10)),
    (5, "b0 04 000a 00 11", UnsubackPacket(10, (0x11,))),
    (5, "c0 00", PingreqPacket()),
    (5, "e0 00", DisconnectPacket()),
    (5, "e0 02 04 00", DisconnectPacket(4)),
    (5, "e0 07 00 05 11 ffffffff", DisconnectPacket(0, PacketProperties(session_expiry=2**32 - 1))),
    (5, "f0 06 18 04 15 0001 6d", AuthPacket(0x18, PacketProperties(authentication_method="m"))),
]  # fmt: skip
SHORTER = {"e0 02 04 00": b"\xe0\x01\x04", "c0 80 00": b"\xc0\x00"}
"""Properties of length 0 may be left out, and a remaining length of 3.1.1 may be longer than it needs."""


@pytest.mark.parametrize(("version", "raw", "packet"), VECTORS, ids=[str(n) for n in range(len(VECTORS))])
def test_vectors_written_by_hand_from_the_standard(version, raw, packet):
    data = bytes.fromhex(raw)
    assert list(Decoder(version).feed(data)) == [packet]
    assert encode(packet, version) in (data, SHORTER.get(raw))


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, "00"), (127, "7f"), (128, "8001"), (16_383, "ff7f"), (16_384, "808001"), (2_097_151, "ffff7f"),
     (2_097_152, "80808001"), (268_435_455, "ffffff7f")],
)  # fmt: skip
def test_the_table_of_section_1_5_5(value, raw):
    from statemachines.mqtt_codec.byte_field import ByteReader, write_varint

    assert write_varint(value) == bytes.fromhex(raw)
    assert ByteReader(bytes.fromhex(raw)).read_varint() == value


# -- packets that are refused when they are written -------------------------------------------------------------------

DELAY = PacketProperties(will_delay=1)
UNWRITABLE = [
    (PublishPacket("a/#"), 5, 0x90),
    (PublishPacket(""), 4, 0x90),
    (PublishPacket("t", qos=1), 5, 0x82),
    (PublishPacket("t", b"p", packet_id=1), 5, 0x81),
    (PublishPacket("t", qos=3, packet_id=1), 5, 0x81),
    (PublishPacket("t", dup=True), 5, 0x81),
    (PublishPacket("t\0"), 5, 0x81),
    (PublishPacket("\ud800"), 5, 0x81),
    (PublishPacket("t" * 65_536), 5, 0x81),
    (PublishPacket("t", properties=PacketProperties(topic_alias=1)), 4, 0x81),
    (PublishPacket("t", properties=PacketProperties(receive_maximum=1)), 5, 0x81),
    (PublishPacket("t", properties=PacketProperties(message_expiry=2**32)), 5, 0x81),
    (PublishPacket("t", properties=PacketProperties(message_expiry=-1)), 5, 0x81),
    (PublishPacket("t", properties=PacketProperties(subscription_ids=(2**28,))), 5, 0x81),
    (PubackPacket(65_536), 5, 0x82),
    (PubackPacket(1, 0x80), 4, 0x82),
    (ConnectPacket("c", MqttVersion.V5), 4, 0x84),
    (ConnectPacket("c", MqttVersion.V3_1_1, password=b"p"), 4, 0x81),
    (ConnectPacket("c", keep_alive=65_536), 5, 0x81),
    (ConnectPacket("c", MqttVersion.V3_1_1, will=WillMessage("t", b"", 0, False, DELAY)), 4, 0x81),
    (SubscribePacket(1, (TopicSubscription("t", no_local=True),)), 4, 0x81),
    (SubscribePacket(1, (TopicSubscription("t"),), PacketProperties(subscription_ids=(1, 2))), 5, 0x82),
    (AuthPacket(), 4, 0x82),
]  # fmt: skip


@pytest.mark.parametrize(("packet", "version", "code"), UNWRITABLE, ids=[str(n) for n in range(len(UNWRITABLE))])
def test_a_packet_that_the_standard_forbids_is_not_written(packet, version, code):
    with pytest.raises(PacketError) as caught:
        encode(packet, version)
    assert caught.value.reason_code == code


def test_a_packet_that_is_too_long_for_mqtt_is_not_written(monkeypatch):
    monkeypatch.setattr(packet_form, "VARINT_MAX", 1_000)
    with pytest.raises(ProtocolViolation) as caught:
        encode(PublishPacket("t", bytes(1_000)), 5)
    assert caught.value.reason_code == 0x95


VERSIONS = pytest.mark.parametrize("version", [4, 5])


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


PLAIN_PACKETS_VERSIONS = st.sampled_from(MqttVersion)


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
@given(st.sampled_from(sorted(PLAIN)), st.binary(max_size=12), PLAIN_PACKETS_VERSIONS)
def test_bytes_that_are_plain_are_read_as_the_general_way_reads_them(first, tail, version):
    for body in (tail, b"\0\1t" + tail, b"\0\2\xc3\xa9\0\1" + tail):
        plain = read_plain_packet(first, body, version)
        assert plain is None or plain == read_in_general(first, body, version)


@pytest.mark.long
@settings(max_examples=100)
@given(st.data(), PLAIN_PACKETS_VERSIONS)
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
