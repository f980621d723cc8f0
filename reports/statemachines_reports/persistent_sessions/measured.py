"""Measured: what is told of resumes and takeovers, besides latencies."""

from __future__ import annotations

import msgspec


class Resume(msgspec.Struct, frozen=True):
    """A resume that came to normal operation: how many messages were `pending` in the database, how many it `kept`
    behind markers, and how long it took."""

    run: int
    pending: int
    kept: int
    took_ns: int


class Takeover(msgspec.Struct, frozen=True):
    """A takeover that is over, and `why`: handed, refused, silent."""

    run: int
    why: str
