"""Received: a message in the hands of an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from statemachines.persistent_sessions.client_message import Delivered

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.persistent_session import PersistentSession


class Received(msgspec.Struct, frozen=True, eq=False):
    """`topic`, `payload`, the `filter` that it matches, `qos`; `dup`: it may have come before, under the same `packet`
    (0: QoS 0).  `session`, and its `connection` that it came over: for `acknowledge`."""

    topic: str
    payload: bytes
    filter: str
    qos: int
    dup: bool
    packet: int
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
            session,
            connection,
        )

    def acknowledge(self) -> None:
        """The application is done with it: it need not come again."""
        self.session.acknowledge(self)
