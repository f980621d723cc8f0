"""Received message: a message in the hands of an application."""

from __future__ import annotations

from typing import Protocol

import msgspec

from statemachines.drivers.message_head import Header, decode_head
from statemachines.persistent_sessions.message import Delivered


class Acknowledger(Protocol):
    """What messages came over: a `PersistentSession`."""

    client_id: str

    def acknowledge(self, message: Received) -> None:
        """The application is done with it."""


class Received(msgspec.Struct, frozen=True, eq=False):
    """`topic`, `payload`, the `filter` that it matches, `qos`; `dup`: it may have come before, under the same `packet`
    (0: QoS 0).  `expiry`: seconds that were left of its time when the node handed it out, 0 for one that comes again
    when they were over (None: it does not expire).  `session`: that was handed it, over its
    `connection` of this number, as message number `n`."""

    topic: str
    payload: bytes
    filter: str
    qos: int
    dup: bool
    packet: int
    expiry: float | None
    session: Acknowledger
    connection: int
    n: int
    head: bytes | None = None
    """Its headers, key and timestamp, encoded (`message_head`)."""

    @classmethod
    def of(cls, message: Delivered, session: Acknowledger, connection: int, n: int) -> Received:
        """What came over this connection of the session, as message number `n`."""
        return cls(
            message.topic,
            message.payload,
            message.filter,
            message.qos,
            message.dup,
            message.packet,
            None if message.expiry_ms is None else message.expiry_ms / 1_000,
            session,
            connection,
            n,
            message.head,
        )

    @property
    def headers(self) -> tuple[Header, ...]:
        """Names and values, in the order in which they were published: `dict(message.headers)`.

        Raises `ConfigurationError`, as `key` and `timestamp` do, where the node has sent something else.
        """
        return decode_head(self.head).headers

    @property
    def key(self) -> bytes | None:
        """What it is about, if its publisher said so."""
        return decode_head(self.head).key

    @property
    def timestamp(self) -> float | None:
        """Seconds since the epoch, if its publisher said so."""
        return decode_head(self.head).timestamp

    def acknowledge(self) -> None:
        """The application is done with it: it need not come again.  A second time changes nothing."""
        self.session.acknowledge(self)
