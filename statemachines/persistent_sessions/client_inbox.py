"""ClientInbox: what a client makes of the messages of its session (MQTT 5, sections 4.3 and 4.4).

QoS 1 comes again until the client acknowledges it over the same connection.  Of QoS 2 the application has each message
once: the client knows it by its packet until the node has released that.

ClientInboxRecord: what a client has of its session, and has not settled.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Effects, Event, Fsm, Ignore, Invariant, Map, Row, Send, Status, Tell
from statemachines.persistent_sessions.message import Delivered, Puback, Pubcomp, Pubrec, Pubrel


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


NODE = "node"
"""The node that is connected, whichever it is."""
Done = tuple[ClientInboxRecord, Effects]

# -- guards ---------------------------------------------------------------------------------------------------------


def is_repetition(record: ClientInboxRecord, event: Delivered) -> bool:
    """The application has it already: a store that was put back from a copy may give its packet to another message."""
    known = record.unreleased.get(event.packet) if event.qos == 2 else None
    return known is not None and event.dup and known == (event.topic, event.payload)


def is_in_hand(record: ClientInboxRecord, event: AcknowledgeMessage) -> bool:
    """By then the packet may be another message's."""
    found = record.in_hand.get(event.packet)
    return found is not None and found.n == event.n


# -- actions --------------------------------------------------------------------------------------------------------


def hand_out(record: ClientInboxRecord, event: Delivered, now_ns: int) -> Done:
    n, packet = record.count + 1, event.packet
    told = (Tell(MessageReceived(n)),)
    if not (packet and event.qos):
        return replace(record, count=n), told
    unreleased = record.unreleased
    if event.qos == 2:
        unreleased = unreleased.set(packet, (event.topic, event.payload))
    in_hand = record.in_hand.set(packet, InHand(n, event.qos))
    return replace(record, count=n, in_hand=in_hand, unreleased=unreleased), told


def receive_again(record: ClientInboxRecord, event: Delivered, now_ns: int) -> Done:
    """Say so at once where the application has acknowledged it."""
    return record, () if event.packet in record.in_hand else (Send(NODE, Pubrec(event.packet)),)


def acknowledge(record: ClientInboxRecord, event: AcknowledgeMessage, now_ns: int) -> Done:
    packet = event.packet
    said = Puback(packet) if record.in_hand[packet].qos == 1 else Pubrec(packet)
    return settle(record, event, now_ns)[0], (Send(NODE, said),)


def settle(record: ClientInboxRecord, event: AcknowledgeMessage, now_ns: int) -> Done:
    return replace(record, in_hand=record.in_hand.delete(event.packet)), ()


def release(record: ClientInboxRecord, event: Pubrel, now_ns: int) -> Done:
    packet = event.packet
    if packet in record.unreleased:
        record = replace(record, unreleased=record.unreleased.delete(packet))
    return record, (Send(NODE, Pubcomp(packet)),)


def withdraw(record: ClientInboxRecord, event: ConnectionEnded, now_ns: int) -> Done:
    """QoS 1 comes again, whether the application has had it or not."""
    kept = Map({packet: one for packet, one in record.in_hand.items() if one.qos == 2})
    return replace(record, in_hand=kept), ()


# fmt: off
ROWS = (
    #   on                      from       to         do             when           clause
    Row(ConnectionBegun,    AWAY,      CONNECTED, None,          None,          "PS-156"),
    Row(ConnectionEnded,    CONNECTED, AWAY,      withdraw,      None,          "PS-156"),
    Row(Delivered,              CONNECTED, STAY,      receive_again, is_repetition, "PS-156"),
    Row(Delivered,              CONNECTED, STAY,      hand_out,      None,          "PS-700"),
    Row(Pubrel,                 CONNECTED, STAY,      release,       None,          "PS-770"),
    Row(AcknowledgeMessage, CONNECTED, STAY,      acknowledge,   is_in_hand,    "PS-313"),
    Row(AcknowledgeMessage, AWAY,      STAY,      settle,        is_in_hand,    "PS-771"),
    Ignore((AcknowledgeMessage,),  (AWAY, CONNECTED),                           "PS-313"),
    Ignore((Delivered, Pubrel),        AWAY,                                        "PS-772"),
    Ignore((ConnectionBegun,),     CONNECTED,                                   "PS-156"),
    Ignore((ConnectionEnded,),     AWAY,                                        "PS-156"),
)
# fmt: on


def has_what_may_be(record: ClientInboxRecord) -> bool:
    """What the application has came over this connection, or is of QoS 2."""
    return all(
        one.n <= record.count and packet and (one.qos == 2 or (one.qos == 1 and record.status is CONNECTED))
        for packet, one in record.in_hand.items()
    )


CLIENT_INBOX = Fsm(
    "client_inbox",
    protocol="persistent_sessions",
    record=ClientInboxRecord,
    states=ClientInboxStatus,
    initial=AWAY,
    rows=ROWS,
    invariants=(Invariant("has-what-may-be", "PS-156", has_what_may_be),),
)
