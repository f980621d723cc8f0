"""Payloads: the messages that a node has stored last, so that it need not read them again to deliver them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

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
