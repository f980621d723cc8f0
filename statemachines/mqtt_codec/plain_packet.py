"""Plain packets: PUBLISH without properties, and acknowledgements of success, which are nearly all that a connection
carries.  They are read and written here in few steps; whatever is not plain takes the general way of `packet_form`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from struct import Struct
from typing import Any, Final

from statemachines.mqtt_codec import packet as p
from statemachines.mqtt_codec.codec_error import PacketError
from statemachines.mqtt_codec.packet_property import NO_PROPERTIES
from statemachines.mqtt_codec.topic_rule import check_topic

TOPICS_MAX: Final = 256  # topics that are remembered to be well formed; each has 64 KiB at most

ANSWERS: Final = {0x40: p.PubackPacket, 0x50: p.PubrecPacket, 0x62: p.PubrelPacket, 0x70: p.PubcompPacket}
FIRSTS: Final[dict[type[Any], int]] = {kind: first for first, kind in ANSWERS.items()}
PLAIN: Final = frozenset((*ANSWERS, *(0x30 | bits for bits in range(16) if 0 < bits >> 1 & 3 < 3)))
"""First bytes of packets that may be plain, and are right whatever follows."""

WRITE_ANSWER: Final = Struct(">BBH").pack
write_puback: Final = partial(WRITE_ANSWER, 0x40, 2)  # of a packet id that is right
BODY_MAX: Final = 2**14 - 1  # its length takes two bytes


def read_plain_packet(first: int, body: bytes, version: p.MqttVersion | None) -> p.PacketValue | None:
    """The packet of this first byte and body; None: it is not plain, or wrong."""
    number = body[0] << 8 | body[1] if first in PLAIN and version is not None and len(body) > 1 else 0
    if first in ANSWERS:
        return ANSWERS[first](number) if number and len(body) == 2 else None
    at = 2 + number
    if not number or at + 2 >= len(body):
        return None
    topic, packet_id, at = _read_topic(body[2:at]), body[at] << 8 | body[at + 1], at + 2
    at += version is p.MqttVersion.V5
    if topic is None or not packet_id or (version is p.MqttVersion.V5 and body[at - 1]):
        return None
    return p.PublishPacket(topic, body[at:], first >> 1 & 3, bool(first & 1), bool(first & 8), packet_id)


def write_plain_packet(packet: p.PacketValue, version: p.MqttVersion) -> bytes | None:
    """Its bytes; None: it is not plain, or wrong."""
    first = FIRSTS.get(type(packet))
    if first is not None:
        packet_id, code, properties = packet.packet_id, packet.reason_code, packet.properties  # type: ignore[union-attr]
        is_plain = not code and properties is NO_PROPERTIES and 0 < packet_id < 65_536
        return WRITE_ANSWER(first, 2, packet_id) if is_plain else None
    return write_plain_publishes((packet,), version)[0] if isinstance(packet, p.PublishPacket) else None


def write_plain_publishes(packets: Iterable[p.PublishPacket], version: p.MqttVersion) -> list[bytes | None]:
    """The same of each of these: many in a row have one topic, and none takes a call."""
    found: list[bytes | None] = []
    behind = b"\0" if version is p.MqttVersion.V5 else b""
    name, topic = "", _write_topic("")
    for one in packets:
        packet_id, qos, payload = one.packet_id, one.qos, one.payload
        if one.topic != name:
            name, topic = one.topic, _write_topic(one.topic)
        found.append(None)
        size = len(topic or b"") + 2 + len(behind) + len(payload)
        is_right = 0 < qos < 3 and 0 < packet_id < 65_536 and size <= BODY_MAX and one.properties is NO_PROPERTIES
        if topic is not None and is_right:
            first = 0x30 | one.dup << 3 | qos << 1 | one.retain
            head = bytes((first, size)) if size < 128 else bytes((first, size & 127 | 128, size >> 7))
            found[-1] = b"".join((head, topic, packet_id.to_bytes(2, "big"), behind, payload))
    return found


@lru_cache(TOPICS_MAX)
def _read_topic(data: bytes) -> str | None:
    try:
        topic = data.decode()
        check_topic(topic)
    except (UnicodeDecodeError, PacketError):
        return None
    return None if "\0" in topic else topic


@lru_cache(TOPICS_MAX)
def _write_topic(topic: str) -> bytes | None:
    data = topic.encode(errors="replace")
    return len(data).to_bytes(2, "big") + data if len(data) < 65_536 and _read_topic(data) == topic else None
