"""Datagram: one message with its number, as bytes.

MessagePack of [version, publisher, life, subject, number, TIME, CHAIN, payload]; TIME and CHAIN are 0 where there is
none, and so is the life of a publisher that does not say which it is.  What is not exactly that is malformed; the
layout of another version is told apart from that.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from statemachines.kernel import GaplessError
from statemachines.sequence_windows.publisher_table import SUBJECT_MAX
from statemachines.sequence_windows.sequence import NUMBER_MAX

VERSION: Final = 2
DATAGRAM_MAX: Final = 65_507
"""Bytes that one UDP datagram holds over IPv4."""
PUBLISHER_MAX: Final = 128
"""Letters of the id of a publisher."""


class MalformedDatagram(GaplessError):
    """Bytes that are no message of ours."""


class OtherLayout(MalformedDatagram):
    """A message in the layout of another version."""

    def __init__(self, version: int) -> None:
        self.version = version
        super().__init__(
            f"a datagram of layout {version}, and we speak {VERSION}: "
            "publishers and receivers of a group need one version of gapless"
        )


class MessageTooLarge(GaplessError):
    """A message that is more than one datagram: it is not numbered, and not sent."""


class Datagram(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """See the module."""

    version: int
    publisher: Annotated[str, msgspec.Meta(min_length=1, max_length=PUBLISHER_MAX)]
    life: Annotated[int, msgspec.Meta(ge=0)]
    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=SUBJECT_MAX)]
    number: int
    time_ns: Annotated[int, msgspec.Meta(ge=0)]
    chain: int
    payload: bytes


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Datagram)
_WIDEST: Final = (NUMBER_MAX, 2**63 - 1, NUMBER_MAX)
_ARRAYS: Final = range(0x90, 0xA0)
"""The first byte of a short array in MessagePack."""
_NUMBERS: Final = range(0x80)
"""That of a small number."""


def encode(publisher: str, subject: str, number: int, time_ns: int, chain: int, payload: bytes, life: int = 0) -> bytes:
    """The bytes of a message."""
    return _ENCODER.encode(Datagram(VERSION, publisher, life, subject, number, time_ns, chain, payload))


def check_size(publisher: str, subject: str, payload: bytes, limit: int, life: int = 0) -> None:
    """Raises `MessageTooLarge` for a message that might be more than `limit` bytes, whatever its number is."""
    size = len(publisher.encode()) + len(subject.encode()) + len(payload)
    if size + 64 <= limit:
        return
    size = len(encode(publisher, subject, *_WIDEST, payload, life))
    if size > limit:
        raise MessageTooLarge(f"a message on {subject[:64]!r} takes {size} bytes, and a datagram at most {limit}")


def decode(data: bytes) -> Datagram:
    """The message in these bytes; raises `MalformedDatagram`, and `OtherLayout` for one of another version.

    Whether its number is one the window says.
    """
    if len(data) > 1 and data[0] in _ARRAYS and data[1] in _NUMBERS and data[1] != VERSION:
        raise OtherLayout(data[1])
    try:
        found = _DECODER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedDatagram(f"{len(data)} bytes are no message: {error}") from None
    if found.version != VERSION:
        raise OtherLayout(found.version)
    return found
