"""ReceivedSample: a sample as an application of zenoh knows it, with its source and its number."""

from __future__ import annotations

import msgspec
import zenoh

OVERHEAD = 512
"""Bytes that a sample takes beside its payload and attachment, roughly."""


class ReceivedSample(msgspec.Struct, frozen=True):
    """One sample.  `payload`, `kind`, `encoding`, `timestamp`, `priority`, `express` and `congestion_control` as in
    zenoh's; `attachment`: the application's bytes (None: none); `source`: who sent it ("": nobody says), `number`: the
    how many-th of its source, from 0 (-1: nobody says); `recovered`: a cache brought it."""

    key_expr: str
    payload: zenoh.ZBytes
    kind: zenoh.SampleKind
    encoding: zenoh.Encoding
    attachment: bytes | None = None
    timestamp: zenoh.Timestamp | None = None
    priority: zenoh.Priority = zenoh.Priority.DATA
    congestion_control: zenoh.CongestionControl = zenoh.CongestionControl.DROP
    express: bool = False
    source: str = ""
    number: int = -1
    recovered: bool = False
    source_info: zenoh.SourceInfo | None = None

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return OVERHEAD + len(self.payload) + len(self.attachment or b"")


def received(
    sample: zenoh.Sample,
    source: str,
    number: int,
    attachment: bytes | None,
    *,
    recovered: bool = False,
    priority: zenoh.Priority | None = None,
) -> ReceivedSample:
    """From zenoh's; `priority`: what somebody says that it was, if zenoh does not."""
    return ReceivedSample(
        str(sample.key_expr),
        sample.payload,
        sample.kind,
        sample.encoding,
        attachment,
        sample.timestamp,
        sample.priority if priority is None else priority,
        sample.congestion_control,
        sample.express,
        source,
        number,
        recovered,
        sample.source_info,
    )
