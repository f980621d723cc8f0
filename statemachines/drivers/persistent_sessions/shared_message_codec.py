"""SharedMessage: a message of a group's stream: where it is from, and what of an MQTT publish its stream keeps."""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec.structs import replace

from statemachines.drivers.message_head import MessageHead, add_headers, decode_head, encode_head
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.topic_filter import GROUP_PREFIXES
from statemachines.shared_subscriptions.stream_store import parse_filter

TERMS: Final = "mqtt.shared"
"""The header in which a stream keeps the QoS of a message, and from when on it is over (0: never)."""

QOS_MAX: Final = 2


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

    qos: int = QOS_MAX
    until_ns: int = 0


def name_group(topic_filter: str) -> str:
    """The group and filter of `$share/GROUP/FILTER`, the same however it is written."""
    return "/".join(parse_filter(topic_filter))


def spell_group(group: str) -> tuple[str, ...]:
    """Every filter that is of this group."""
    return tuple(f"{prefix}{group}" for prefix in GROUP_PREFIXES)


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
