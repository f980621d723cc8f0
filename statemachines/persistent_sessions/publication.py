"""Publication: the window of one publisher (page: "Message routing to persistent sessions").

Messages are numbered in the order of the calls, and go to the node as far as the window has room.  The others wait, in
their order.  What is not answered when a connection ends goes to the next node, in order.

PublicationRecord: what one publisher has handed over, and what of it is not answered.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Call,
    Effect,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Map,
    Message,
    Row,
    Send,
    Status,
    Tell,
    keys_in_order,
)
from statemachines.persistent_sessions.message import PublishStored, Refused


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


NODE = "node"
"""The node that is connected, whichever it is."""
Done = tuple[PublicationRecord, Effects]

# -- guards ---------------------------------------------------------------------------------------------------------


def is_under_way(record: PublicationRecord, event: PublishStored | Refused) -> bool:
    """A node can answer only what it was handed."""
    return event.n in record.sizes and event.n < record.next


def is_unanswered(record: PublicationRecord, event: CancelPublish) -> bool:
    return event.n in record.sizes


# -- actions --------------------------------------------------------------------------------------------------------


def publish(record: PublicationRecord, event: PublishPayload, now_ns: int) -> Done:
    n = record.count + 1
    return fill_window(replace(record, count=n, sizes=record.sizes.set(n, event.size_bytes)))


def hand_over_all(record: PublicationRecord, event: NodeReached, now_ns: int) -> Done:
    numbers = keys_in_order(record.sizes)
    return record, tuple(Send(NODE, HandMessage(n)) for n in numbers if n < record.next)


def tell_stored(record: PublicationRecord, event: PublishStored, now_ns: int) -> Done:
    return end_message(record, event.n, Tell(MessageStored(event.n)))


def tell_refused(record: PublicationRecord, event: Refused, now_ns: int) -> Done:
    return end_message(record, event.n, Tell(MessageRefused(event.n, event.why)))


def cancel(record: PublicationRecord, event: CancelPublish, now_ns: int) -> Done:
    return end_message(record, event.n)


def end_message(record: PublicationRecord, n: int, *told: Effect) -> Done:
    """A message is over; those that wait have its room."""
    left = replace(record, sizes=record.sizes.delete(n))
    if n < record.next:
        size = record.window_bytes - record.sizes[n]
        left = replace(left, under_way=record.under_way - 1, window_bytes=size)
    after, sent = fill_window(left)
    return after, (*told, *sent)


def fill_window(record: PublicationRecord) -> Done:
    """Take in what waits, in its order, as far as there is room."""
    first, under_way, size = record.next, record.under_way, record.window_bytes
    taken: list[Effect] = []
    while first <= record.count:
        its = record.sizes.get(first)
        if its is not None:
            if under_way and (under_way >= record.messages_max or size + its > record.bytes_max):
                break
            under_way, size = under_way + 1, size + its
            taken.append(Send(NODE, HandMessage(first)))
        first += 1
    if first == record.next:
        return record, ()
    after = replace(record, next=first, under_way=under_way, window_bytes=size)
    return after, tuple(taken) if record.status is CONNECTED else ()


ALWAYS = (AWAY, CONNECTED)

# fmt: off
ROWS = (
    #   on                  from       to         do             when           clause
    Row(PublishPayload, ALWAYS,    STAY,      publish,       None,          "PS-760"),
    Row(NodeReached,    AWAY,      CONNECTED, hand_over_all, None,          "PS-157"),
    Row(NodeLost,       CONNECTED, AWAY,      None,          None,          "PS-157"),
    Row(PublishStored,      CONNECTED, STAY,      tell_stored,   is_under_way,  "PS-762"),
    Row(Refused,            CONNECTED, STAY,      tell_refused,  is_under_way,  "PS-763"),
    Row(CancelPublish,  ALWAYS,    STAY,      cancel,        is_unanswered, "PS-764"),
    Ignore((CancelPublish,),       ALWAYS,                                  "PS-764"),
    Ignore((PublishStored, Refused),   ALWAYS,                                  "PS-765"),
    Ignore((NodeReached,),         CONNECTED,                               "PS-157"),
    Ignore((NodeLost,),            AWAY,                                    "PS-157"),
)
# fmt: on


def counts_its_window(record: PublicationRecord) -> bool:
    """Figures of the window are those of its messages."""
    its = [size for n, size in record.sizes.items() if n < record.next]
    return (record.under_way, record.window_bytes) == (len(its), sum(its))


def keeps_its_bounds(record: PublicationRecord) -> bool:
    """A window holds no more than it may, or one message."""
    if record.under_way <= 1:
        return True
    return record.under_way <= record.messages_max and record.window_bytes <= record.bytes_max


PUBLICATION = Fsm(
    "publication",
    protocol="persistent_sessions",
    record=PublicationRecord,
    states=PublicationStatus,
    initial=AWAY,
    rows=ROWS,
    invariants=(
        Invariant("counts-its-window", "PS-761", counts_its_window),
        Invariant("keeps-its-bounds", "PS-761", keeps_its_bounds),
    ),
)
