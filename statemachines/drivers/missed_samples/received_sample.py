"""ReceivedSample: a sample as an application of zenoh knows it, with its source and its number."""

from __future__ import annotations

import msgspec
import zenoh

OVERHEAD = 512
"""Bytes that a sample takes beside its payload and attachment, roughly."""


class OwnSample(msgspec.Struct, frozen=True, gc=False):
    """What a publisher of ours has put, with what zenoh's samples have."""

    key_expr: str
    payload: zenoh.ZBytes
    kind: zenoh.SampleKind
    encoding: zenoh.Encoding
    timestamp: zenoh.Timestamp | None = None
    priority: zenoh.Priority = zenoh.Priority.DATA
    congestion_control: zenoh.CongestionControl = zenoh.CongestionControl.DROP
    express: bool = False
    source_info: zenoh.SourceInfo | None = None


class ReceivedSample(msgspec.Struct, frozen=True, gc=False):
    """One sample.  `payload`, `kind`, `encoding`, `timestamp`, `priority`, `express` and `congestion_control` as in
    zenoh's; `attachment`: the application's bytes (None: none); `source`: who sent it ("": nobody says), `number`: the
    how many-th of its source, from 0 (-1: nobody says); `recovered`: a cache brought it.

    `original` is zenoh's own, or that of a publisher of ours: what nobody asks for is not taken out of it.
    `put_with`: the priority that it was put with, where a reply said so.
    """

    original: zenoh.Sample | OwnSample
    source: str = ""
    number: int = -1
    attachment: bytes | None = None
    recovered: bool = False
    put_with: zenoh.Priority | None = None

    @property
    def key_expr(self) -> str:
        """The key that it was put on."""
        return str(self.original.key_expr)

    @property
    def payload(self) -> zenoh.ZBytes:
        """What was put."""
        return self.original.payload

    @property
    def kind(self) -> zenoh.SampleKind:
        """Put, or deleted."""
        return self.original.kind

    @property
    def encoding(self) -> zenoh.Encoding:
        """Of the payload."""
        return self.original.encoding

    @property
    def timestamp(self) -> zenoh.Timestamp | None:
        """When it was put, where sessions say so."""
        return self.original.timestamp

    @property
    def priority(self) -> zenoh.Priority:
        """That it was put with."""
        return self.original.priority if self.put_with is None else self.put_with

    @property
    def congestion_control(self) -> zenoh.CongestionControl:
        """That it came with."""
        return self.original.congestion_control

    @property
    def express(self) -> bool:
        """Whether it came in a batch of its own."""
        return self.original.express

    @property
    def source_info(self) -> zenoh.SourceInfo | None:
        """What zenoh says of its source, in the advanced layout."""
        info: zenoh.SourceInfo | None = self.original.source_info
        return info

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return OVERHEAD + len(self.payload) + len(self.attachment or b"")
