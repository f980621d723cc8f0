"""Attachment: what our own parties say of a sample where zenoh has no place for it.

zenoh's source information has numbers of 32 bits, and a reply cannot carry it.  So a sample of the plain layout, and
every reply of our caches, has an attachment: four bytes that are ours, and a MessagePack array.  The application's own
attachment travels inside it.  `Stamp` is of a sample, `Beat` of a heartbeat of the plain layout, `End` is the last
reply of a cache to a query.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from statemachines.missed_samples.serial_number import WIDTH_MAX

MAGIC: Final = b"\xb6GL1"
ATTACHMENT_MAX: Final = 1 << 20
"""Bytes of an attachment that is read."""

Source = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Number = Annotated[int, msgspec.Meta(ge=0)]


class MalformedAttachment(ValueError):
    """The attachment begins as ours do, and cannot be read; the text says what was seen and what is expected."""


class SampleAttachment(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="stamp", forbid_unknown_fields=True):
    """Sample `sn` of `source`; `attachment`: the application's (None: it gave none); `priority`: of the sample, which a
    reply does not keep (0: not said)."""

    source: Source
    sn: Number
    attachment: bytes | None = None
    priority: Annotated[int, msgspec.Meta(ge=0, le=7)] = 0


class BeatAttachment(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="beat", forbid_unknown_fields=True):
    """A heartbeat: `source` has sent everything up to `last`."""

    source: Source
    last: Number


class EndAttachment(msgspec.Struct, frozen=True, gc=False, array_like=True, tag="end", forbid_unknown_fields=True):
    """The cache has sent so many replies to the query, and this is the last."""

    count: Number


_DECODER: Final = msgspec.msgpack.Decoder(SampleAttachment | BeatAttachment | EndAttachment)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(said: SampleAttachment | BeatAttachment | EndAttachment) -> bytes:
    """The bytes of an attachment."""
    return MAGIC + _ENCODER.encode(said)


def decode(data: bytes) -> SampleAttachment | BeatAttachment | EndAttachment | None:
    """What an attachment says (None: it is not one of ours); raises `MalformedAttachment`."""
    if data[:4] != MAGIC:
        return None
    if len(data) > ATTACHMENT_MAX:
        raise MalformedAttachment(f"attachment of {len(data)} bytes: expected at most {ATTACHMENT_MAX}")
    try:
        said: Any = _DECODER.decode(data[4:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedAttachment(f"attachment {data[:24]!r}: expected a stamp, a beat or an end: {error}") from None
    if (
        isinstance(said, (SampleAttachment, BeatAttachment))
        and (said.sn if isinstance(said, SampleAttachment) else said.last) >> WIDTH_MAX
    ):
        raise MalformedAttachment(f"attachment {data[:24]!r}: expected a number of {WIDTH_MAX} bits")
    return said  # type: ignore[no-any-return]
