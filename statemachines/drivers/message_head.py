"""MessageHead: what a publisher says of a message beside its topic and payload: headers, a key and a timestamp.

Stores keep it, and the wire carries it, as the bytes that `encode_head` returns, and a message that has none of it has
no such bytes.  Only the application reads it: machines and stores never do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from statemachines.kernel import ConfigurationError

HEADERS_MAX: Final = 64
"""Headers of one message."""

NAME_MAX: Final = 256
"""Bytes of the name of a header, in UTF-8."""

KEY_MAX: Final = 1_024
"""Bytes of a key."""

HEAD_MAX: Final = 16_384
"""Bytes of an encoded head: headers with their names, key and timestamp."""

ADDED_HEADERS_MAX: Final = 16
ADDED_MAX: Final = 8_192
"""Headers that a store may add to a head, and their bytes: what a dead letter says of its message."""

TIMESTAMP_MAX: Final = 2.0**38
"""Seconds since the epoch; some 8 700 years."""

Header = tuple[str, bytes]
"""Name and value; a name may come several times."""

Headers = Mapping[str, bytes] | Iterable[Header]
"""Headers as an application gives them."""


class MessageHead(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The head of a message; `make_head` makes one of what an application gives."""

    headers: tuple[Header, ...] = ()
    """In the order in which the publisher gave them."""
    key: bytes | None = None
    """What the message is about, as the publisher says."""
    timestamp: float | None = None
    """Seconds since the epoch, by the publisher's word."""


EMPTY: Final = MessageHead()

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(MessageHead)


def make_head(
    headers: Headers | None = None, key: bytes | None = None, timestamp: float | None = None
) -> MessageHead | None:
    """The checked head of these; None where nothing is given.

    Raises `ConfigurationError` for what breaks a bound or has the wrong type.
    """
    if not headers and key is None and timestamp is None:
        return None
    given = headers.items() if isinstance(headers, Mapping) else headers or ()
    pairs = [_check_pair(one) for one in given]
    return check_head(MessageHead(tuple(pairs), key, None if timestamp is None else _check_timestamp(timestamp)))


def check_head(head: MessageHead, most: int = HEADERS_MAX) -> MessageHead:
    """The head itself; raises `ConfigurationError` where it breaks a bound or holds the wrong type."""
    if len(head.headers) > most:
        raise ConfigurationError("headers", f"{len(head.headers)} headers", f"must be at most {most}")
    for one in head.headers:
        _check_pair(one)
    if head.key is not None:
        _check_bytes("key", head.key, KEY_MAX)
    if head.timestamp is not None:
        _check_timestamp(head.timestamp)
    return head


def encode_head(head: MessageHead | None) -> bytes | None:
    """The bytes that stores and wire carry; None for no head, and for an empty one.

    Raises `ConfigurationError` for a head that `check_head` refuses, or that has more than `HEAD_MAX` bytes.
    """
    if head is None or head == EMPTY:
        return None
    encoded = _ENCODER.encode(check_head(head))
    check_size(encoded)
    return encoded


def decode_head(encoded: bytes | None) -> MessageHead:
    """The head in these bytes, checked; None holds an empty one.

    Raises `ConfigurationError` for bytes that `encode_head` does not return.
    """
    if encoded is None:
        return EMPTY
    check_size(encoded, HEAD_MAX + ADDED_MAX)
    try:
        return check_head(_DECODER.decode(encoded), HEADERS_MAX + ADDED_HEADERS_MAX)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError("head", f"{len(encoded)} bytes", f"is not the head of a message: {error}") from error


def add_headers(encoded: bytes | None, headers: Mapping[str, bytes]) -> bytes:
    """The bytes of a head that has these headers, and of the others those with another name."""
    head = decode_head(encoded)
    others = (one for one in head.headers if one[0] not in headers)
    return _ENCODER.encode(MessageHead((*others, *headers.items()), head.key, head.timestamp))


def check_size(encoded: bytes, most: int = HEAD_MAX) -> None:
    """Raises `ConfigurationError` for more bytes than that."""
    if len(encoded) > most:
        rule = f"headers, key and timestamp must have at most {most} bytes together; put the rest into the payload"
        raise ConfigurationError("headers", f"{len(encoded)} bytes", rule)


def _check_pair(pair: object) -> Header:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ConfigurationError("headers", pair, "must be pairs of a name and its value, or a mapping of them")
    name, value = pair
    if not isinstance(name, str):
        raise ConfigurationError("header name", name, f"must be a str, not {type(name).__name__}")
    if not name:
        raise ConfigurationError("header name", name, "must not be empty")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError("header name", name, "must be UTF-8 text without lone surrogates") from error
    if size > NAME_MAX:
        raise ConfigurationError("header name", f"{name[:20]}...", f"must have at most {NAME_MAX} bytes, has {size}")
    _check_bytes(f"header {name!r}", value, HEAD_MAX)
    return name, value


def _check_bytes(what: str, value: object, most: int) -> None:
    if not isinstance(value, bytes):
        raise ConfigurationError(what, value, f"must be bytes, not {type(value).__name__}; encode it first")
    if len(value) > most:
        raise ConfigurationError(what, f"{len(value)} bytes", f"must have at most {most} bytes")


def _check_timestamp(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= TIMESTAMP_MAX:  # type: ignore[operator]
        rule = f"must be seconds since the epoch, from 0 to {TIMESTAMP_MAX:.0f}; leave it out for none"
        raise ConfigurationError("timestamp", value, rule)
    return float(value)  # type: ignore[arg-type]
