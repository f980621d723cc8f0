"""Rows about the MQTT codec: packets a second, beside the same bytes packed by hand."""

from __future__ import annotations

import struct
from functools import partial
from time import process_time
from typing import Final

from statemachines_bench.row import BenchRow, RatioKind, Size, TurnPair

TOPIC: Final = "sensors/7"
PAYLOAD: Final = b"x" * 100


def rate_codec(packets: int) -> float:
    """Packets that are encoded and decoded in a second of processor time."""
    from statemachines.mqtt_codec import Decoder, MqttVersion, PublishPacket, encode

    decoder, count = Decoder(5), 0
    began = process_time()
    for number in range(packets):
        packet = PublishPacket(TOPIC, PAYLOAD, 1, packet_id=number % 65_535 + 1)
        for _ in decoder.feed(encode(packet, MqttVersion.V5)):
            count += 1
    spent = process_time() - began
    assert count == packets
    return packets / spent


def rate_by_hand(packets: int) -> float:
    """The same with `struct`, for this one packet, with no check of anything."""
    count = 0
    began = process_time()
    for number in range(packets):
        topic = TOPIC.encode()
        head = struct.pack("!BBH", 0x32, 5 + len(topic) + len(PAYLOAD), len(topic))
        data = head + topic + struct.pack("!HB", number % 65_535 + 1, 0) + PAYLOAD
        first, length, size = struct.unpack_from("!BBH", data)
        packet_id, properties = struct.unpack_from("!HB", data, 4 + size)
        parts = (data[4 : 4 + size].decode(), data[7 + size : 2 + length], first, packet_id, properties)
        count += parts[1] == PAYLOAD
    spent = process_time() - began
    assert count == packets
    return packets / spent


def prepare(size: Size) -> TurnPair:
    """Ours and the baseline with as many packets."""
    packets = size.pick(200_000, 500)
    return TurnPair(partial(rate_codec, packets), partial(rate_by_hand, packets))


ROWS: Final = (
    BenchRow(
        "mqtt-codec",
        "PUBLISH of QoS 1 with 100 bytes, encoded and decoded",
        "packets/s",
        "by hand, unchecked",
        prepare,
        RatioKind.OURS_OVER_BASELINE,
    ),
)
