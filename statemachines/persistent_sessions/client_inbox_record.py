"""ClientInboxRecord: what a client has of its session, and has not settled."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Call, Event, Map, Status


class ClientInboxStatus(Status):
    """Whether a node is connected."""

    AWAY = "away"
    CONNECTED = "connected"


AWAY, CONNECTED = ClientInboxStatus


class InHand(msgspec.Struct, frozen=True, gc=False):
    """The application has message number `n` of this QoS, and has not acknowledged it."""

    n: int
    qos: int


class ClientInboxRecord(msgspec.Struct, frozen=True, gc=False):
    """The messages that came to one client."""

    id: str
    count: int = 0
    """Messages that the application was handed; they are numbered from 1."""
    in_hand: Map[int, InHand] = Map()
    """Packet -> the message that came under it, until it is acknowledged."""
    unreleased: Map[int, tuple[str, bytes]] = Map()
    """Packet of QoS 2 that the node has not released -> topic and payload of the last message that came under it."""
    status: ClientInboxStatus = AWAY


# -- what the application says, and hears ---------------------------------------------------------------------------


class ConnectionBegun(Call, frozen=True, gc=False):
    """A node is connected."""


class ConnectionEnded(Call, frozen=True, gc=False):
    """The connection is over."""


class AcknowledgeMessage(Call, frozen=True, gc=False):
    """The application is done with message number `n`, which came under this packet."""

    packet: int
    n: int


class MessageReceived(Event, frozen=True, gc=False):
    """The message that has just come is number `n`: it is for the application."""

    n: int
