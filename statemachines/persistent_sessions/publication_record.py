"""PublicationRecord: what one publisher has handed over, and what of it is not answered."""

from __future__ import annotations

import msgspec

from statemachines.kernel import Call, Event, Map, Message, Status


class PublicationStatus(Status):
    """Whether a node is connected."""

    AWAY = "away"
    CONNECTED = "connected"


AWAY, CONNECTED = PublicationStatus


class PublicationRecord(msgspec.Struct, frozen=True, gc=False):
    """The window of a publisher."""

    id: str
    messages_max: int
    """So many messages are under way at most."""
    bytes_max: int
    """So many bytes; a larger message is under way alone."""
    count: int = 0
    """Messages so far; they are numbered from 1."""
    next: int = 1
    """Number of the first message that never was in the window."""
    sizes: Map[int, int] = Map()
    """Number of a message that is not answered -> its bytes."""
    under_way: int = 0
    """Messages in the window: those of `sizes` below `next`."""
    window_bytes: int = 0
    """Their bytes."""
    status: PublicationStatus = AWAY


# -- what the application says --------------------------------------------------------------------------------------


class PublishPayload(Call, frozen=True, gc=False):
    """Publish a message of so many bytes; it has the next number."""

    size_bytes: int


class CancelPublish(Call, frozen=True, gc=False):
    """The application waits for this message no more."""

    n: int


class NodeReached(Call, frozen=True, gc=False):
    """A node is connected."""


class NodeLost(Call, frozen=True, gc=False):
    """The connection is over."""


# -- what it hears, and what the node is sent -----------------------------------------------------------------------


class MessageStored(Event, frozen=True, gc=False):
    """Message `n` is stored."""

    n: int


class MessageRefused(Event, frozen=True, gc=False):
    """Message `n` is not stored, and why."""

    n: int
    why: str


class HandMessage(Message, frozen=True, gc=False):
    """Message `n`, with its payload, which the driver has: it goes to the node as `PublishWanted`."""

    n: int
