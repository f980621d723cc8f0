"""Received message: a message in the hands of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from statemachines.persistent_sessions.client_message import Delivered

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.persistent_session import PersistentSession


class Received(msgspec.Struct, frozen=True, eq=False):
    """`topic`, `payload`, the `filter` that it matches, `qos`; `dup`: it may have come before, under the same `packet`
    (0: QoS 0).  `expiry`: seconds that were left of its time when the node handed it out, 0 for one that comes again
    when they were over (None: it does not expire).  `session`: that was handed it, over its
    `connection` of this number."""

    topic: str
    payload: bytes
    filter: str
    qos: int
    dup: bool
    packet: int
    expiry: float | None
    session: PersistentSession
    connection: int

    @classmethod
    def of(cls, message: Delivered, session: PersistentSession, connection: int) -> Received:
        """What came over this connection of the session."""
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
        )

    def acknowledge(self) -> None:
        """The application is done with it: it need not come again.  A second time changes nothing."""
        self.session.acknowledge(self)
