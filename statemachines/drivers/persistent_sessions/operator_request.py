"""What an operator asks of a store of sessions, beside the nodes that use it, and what is answered."""

from __future__ import annotations

from typing import Final

import msgspec

LIST_MAX: Final = 10_000
"""Sessions in one answer."""

FILTERS_MAX: Final = 100
"""Filters in one answer."""

WAITING_MAX: Final = 10_000
"""Rows that are looked at to count messages."""

DEAD_MS: Final = 5_000
"""A session of which no node has said for so long that it lives is nowhere."""


class OperatorRequest(msgspec.Struct, frozen=True):
    """Base of all."""


class ListSessions(OperatorRequest, frozen=True):
    """The sessions of at most `limit` clients, in the order of their ids, behind the client `after`; answered with a
    tuple of `SessionSummary`."""

    after: str
    limit: int


class DescribeSession(OperatorRequest, frozen=True):
    """Answered with a `SessionDetail`, or None: the store does not know the client."""

    client: str


class KickClient(OperatorRequest, frozen=True):
    """The connection of the client ends; its session stays, and is as if the client were lost now.  Answered with a
    `SessionSummary` of before, or None: the store does not know the client."""

    client: str


class PurgeClient(OperatorRequest, frozen=True):
    """The session of the client is abandoned, and the client forgotten; answered as `KickClient`."""

    client: str


class DeleteRows(OperatorRequest, frozen=True):
    """At most `limit` rows of a session that is abandoned go; answered with how many."""

    session: str
    limit: int


class SessionSummary(msgspec.Struct, frozen=True):
    """`session` ("": the client has none); `state`: connected, connecting, away, or lost (its node has ended, or is
    silent); `node`: where it is, or was when it got lost; `seen_s`: seconds since its owner said that it lives, or its
    client left; `expiry_s`: how long it outlives that (None: for ever); `waiting_max`: messages that are stored for it
    and that no owner has taken, at most so many (those that have expired, or were too old, may be among them)."""

    client: str
    session: str
    state: str
    node: str
    seen_s: float
    expiry_s: float | None
    waiting_max: int


class SubscribedFilter(msgspec.Struct, frozen=True):
    """A subscription of a session."""

    filter: str
    qos: int


class SessionDetail(msgspec.Struct, frozen=True):
    """`token`: whatever is asked under a lower one is refused; `waiting`: messages that are there and that no
    owner has taken, `waiting_more`: there may be more, since not all rows were looked at; `filters`: the first of them,
    `filters_more`: there are more."""

    summary: SessionSummary
    token: int
    in_flight: int
    queued: int
    waiting: int
    waiting_more: bool
    filters: tuple[SubscribedFilter, ...]
    filters_more: bool
