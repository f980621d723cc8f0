"""Payloads: the messages that a node has stored last, so that it need not read them again to deliver them.

SharedMessage: a message of a group's stream: where it is from, and what of an MQTT publish its stream keeps.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from statemachines.drivers.message_head import MessageHead, add_headers, decode_head, encode_head
from statemachines.shared_subscriptions.stream_store import parse_filter
from statemachines.wire import FRAME_MAX

PAYLOAD_MAX: Final = FRAME_MAX - 2 * 65_535 - 1_024
"""Bytes of the largest payload: a frame holds its topic and the filter, too."""


class Payload(NamedTuple):
    """What is brought of a message: its topic, its payload, and its encoded head (None: it has none)."""

    topic: str
    data: bytes
    head: bytes | None = None


def to_payload(row: Sequence[Any]) -> Payload:
    """Of a row of the database: topic, payload, head."""
    topic, data, head = row
    return Payload(topic.decode(), bytes(data), None if head is None else bytes(head))


BYTES_MAX: Final = 64 * 2**20
"""Bytes of payloads that are kept; the oldest goes first."""

OVERHEAD: Final = 300
"""Bytes that a message takes beside its payload, about."""


class Payloads:
    """Message id -> payload, at most `bytes_max` of them."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.kept: OrderedDict[str, Payload] = OrderedDict()
        """To be read: who looks for thousands makes no call for each."""
        self._size = 0

    def put(self, message: str, payload: Payload) -> None:
        """Keep one, unless it is kept; an id is never that of two."""
        self.put_all({message: payload})

    def put_all(self, payloads: Mapping[str, Payload]) -> None:
        """The same with each of these: no call for each."""
        kept = self.kept
        for message, payload in payloads.items():
            if message not in kept:
                kept[message] = payload
                self._size += OVERHEAD + len(payload[0]) + len(payload[1]) + len(payload[2] or b"")
        while self._size > self._bytes_max:
            _, oldest = self.kept.popitem(last=False)
            self._size -= _size(oldest)

    def drop(self, message: str) -> None:
        """It is not to be delivered."""
        dropped = self.kept.pop(message, None)
        self._size -= 0 if dropped is None else _size(dropped)

    def get(self, message: str) -> Payload | None:
        """None: it is not kept."""
        return self.kept.get(message)


def _size(payload: Payload) -> int:
    return OVERHEAD + len(payload.topic) + len(payload.data) + len(payload.head or b"")


TERMS: Final = "mqtt.shared"
"""The header in which a stream keeps the QoS of a message, and from when on it is over (0: never)."""


class SharedOrigin(NamedTuple):
    """Where a message of a group is from: a stream, or (stream "") a session that has ended."""

    group: str
    """As `name_group` returns it."""
    stream: str
    offset: int
    message: str = ""
    """Its id in the session that has ended."""


class SharedTerms(NamedTuple):
    """What a stream keeps of a publish beside topic, payload and head."""

    qos: int = 2
    until_ns: int = 0


def name_group(topic_filter: str) -> str:
    """The group and filter of `$share/GROUP/FILTER`, the same however it is written."""
    return "/".join(parse_filter(topic_filter))


def add_terms(payload: Payload, terms: SharedTerms) -> Payload:
    """The message as a stream keeps it."""
    value = f"{terms.qos} {terms.until_ns}".encode()
    return payload._replace(head=add_headers(payload.head, {TERMS: value}))


def split_terms(payload: Payload) -> tuple[Payload, SharedTerms]:
    """The message as it was published, and its terms; what another publisher put in their place is left out."""
    if payload.head is None:
        return payload, SharedTerms()
    head = decode_head(payload.head)
    values = [value for name, value in head.headers if name == TERMS]
    if not values:
        return payload, SharedTerms()
    others = tuple(one for one in head.headers if one[0] != TERMS)
    rest = replace(head, headers=others)
    bare = payload._replace(head=None if rest == MessageHead() else encode_head(rest))
    return bare, _read_terms(values[0])


def _read_terms(value: bytes) -> SharedTerms:
    qos, _, until_ns = value.partition(b" ")
    if qos not in (b"0", b"1", b"2") or not until_ns.isdigit() or len(until_ns) > 19:
        return SharedTerms()
    return SharedTerms(int(qos), int(until_ns))
