"""Row hands: what rows of a message say that is the same for all sessions that get it."""

from __future__ import annotations

from typing import Final

import msgspec

from statemachines.persistent_sessions.message import Queued

Hand = tuple[bytes, bytes, int, int, bytes]
"""(message, filter, QoS, until_ns, more), as a row has them."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(tuple[str, ...])


def encode_hand(row: Queued) -> Hand:
    """What is the same for all sessions that get it."""
    more = _encoder.encode(row.more) if row.more else b""
    return row.message.encode(), row.filter.encode(), row.qos, row.until_ns, more


def decode_more(more: bytes | None) -> tuple[str, ...]:
    """The other filters of a row."""
    return _decoder.decode(more) if more else ()
