"""Node messages: what nodes, clients and fronts say to each other beside the messages of the protocol.

A front runs within the process of its node and speaks for clients of another protocol, such as MQTT.  Its messages
never go over the wire.

DirectMessages: messages of QoS 0 on their way to clients of fronts that are connected, past the database (MQ-192).
The transaction that finds the routes of a message says which owner has each session.  To an owner of this node the
message goes at once, to one of another node over the link between both.

NODE, CLIENT: the roles on a connection, and which messages each of them takes.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Final

import msgspec

from statemachines.drivers.clock import Clock
from statemachines.drivers.complaint_log import RateLimitedLog
from statemachines.drivers.identity import Identity
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_trie import Route
from statemachines.drivers.role import NodeRole
from statemachines.kernel import Message, life_of
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Farewell,
    GroupRefused,
    Head,
    LeaveWanted,
    Live,
    LiveMarker,
    MarkerWanted,
    MessageExpiry,
    Number,
    Ping,
    Pong,
    Puback,
    Pubcomp,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Pubrec,
    Pubrel,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines.persistent_sessions.takeover_record import (
    BeginTakeover,
    EndTakeover,
    OwnerReplaced,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)

FROM_STORE: Final = "mqtt.retained"
"""The header of a message that a subscriber gets since it was retained."""

PUBLISHER: Final = "mqtt.publisher"
"""The header of a retained message that says who published it (`RetainedPublisher`)."""

PUBLISHER_BYTES_MAX: Final = 4_096
"""Of that header; a message with a longer one is not retained."""


FRONT_INSTANCE: Final = "front:"
"""How the instance of a client begins that connects by a front."""


class RetainHandling(IntEnum):
    """Which retained messages a subscription brings, as MQTT 5 numbers it (3.8.3.1)."""

    ALWAYS = 0
    IF_NEW = 1
    NEVER = 2


class SessionWill(msgspec.Struct, frozen=True, gc=False):
    """A message that is sent `delay_ms` after the connection has ended, or when the session ends, unless the client
    connects to the session before, or drops it; an empty `head` is none.  `identity`: who may publish it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    expiry_ms: int | None
    head: bytes
    delay_ms: int
    identity: Identity


class RetainedPublisher(msgspec.Struct, frozen=True, gc=False):
    """Who published a retained message, where permissions are limited."""

    identity: Identity
    client: str


class FrontConnect(ConnectWanted, frozen=True, gc=False):
    """Connect, with a will (None: without)."""

    will: SessionWill | None = None


class WillDropped(Message, frozen=True, gc=False):
    """The will of the connection is not to be sent."""


class FrontPublish(PublishWithHead, frozen=True, gc=False):
    """Publish; an empty `head` is none.  `retain`: keep it as the retained message of its topic, or with an empty
    payload delete that.  `PublishStored` or `PublishUnmatched` answers."""

    retain: bool = False
    not_by: frozenset[str] = frozenset()
    """Filters by which it does not come to the publisher's own session (No Local)."""
    packet: int = 0
    """The packet id under which it is kept until the client releases it (QoS 2; 0: none)."""


class PacketReleased(Message, frozen=True, gc=False):
    """The client has released the packet id; the node says the same when that is durable."""

    packet: Number


class FrontSubscribe(SubscribeWanted, frozen=True, gc=False):
    """Subscribe; `options` are kept with the filter, and read by `OptionsWanted`."""

    options: int = 0
    handling: RetainHandling = RetainHandling.NEVER


class RetainedBrought(Message, frozen=True, gc=False):
    """A subscription has brought so many retained messages: ahead of its `Subscribed`, and again when all of them
    `are_stored` for the session or were sent."""

    count: int
    are_stored: bool = False


class OptionsWanted(Message, frozen=True, gc=False):
    """Which filters does the session subscribe, and which packet ids has its client not released?"""

    n: Number


class PublishUnmatched(PublishStored, frozen=True, gc=False):
    """Number `n` is carried out, and no session subscribes its topic."""


class OptionsFound(Message, frozen=True, gc=False):
    """`filters`: filter -> its options; `packets`: ids of QoS 2 whose messages are stored, and not released."""

    n: Number
    filters: dict[str, int]
    packets: tuple[int, ...] = ()


class DeliveryRun(Message, frozen=True, gc=False):
    """To a front: messages of its session that came together, in their order."""

    messages: tuple[Delivered | Pubrel, ...]


logger = logging.getLogger("gapless")

RECEIVERS_BYTES_MAX: Final = 2**16
"""Names of receivers and filters in one message between nodes; more receivers take another one."""

Receiver = tuple[str, str]
"""(owner, filter): who gets a message, and by which subscription."""

NO_WAY: Final = (
    "%s: a message of QoS 0 for clients of %s was dropped: there is no link to it, or it is slow (%d so far); "
    "give each node the others as --peers"
)


class DirectMessage(Message, frozen=True, gc=False):
    """From a node: a message of QoS 0 for owners of the node that it is sent to."""

    receivers: tuple[Receiver, ...]
    topic: str
    payload: bytes
    expiry_ms: MessageExpiry | None = None
    head: Head | None = None


class DirectMessages:
    """Sends them, and takes those of other nodes.

    Args:
        life: of the node.
        deliver: brings one to the client of an owner of this node; False: it is not there, or slow.
        say: to another node; False: there is no room, or no link.
        clock: of the node.
    """

    def __init__(
        self, life: str, deliver: Callable[[str, Delivered], bool], say: Callable[[str, Message], bool], clock: Clock
    ) -> None:
        self.dropped = 0
        """How often one was dropped, for each of its receivers."""
        self._life = life
        self._deliver = deliver
        self._say = say
        self._without_way = RateLimitedLog(clock)

    def send(self, payload: Payload, expiry_ms: int | None, routes: Iterable[Route]) -> None:
        """To the owners of these routes; a route without an owner has another way."""
        elsewhere: defaultdict[str, list[Receiver]] = defaultdict(list)
        here: list[Receiver] = []
        for route in routes:
            if route.owner:
                life = life_of(route.owner)
                (here if life == self._life else elsewhere[life]).append((route.owner, route.filter))
        given = (payload.topic, payload.data, expiry_ms, payload.head)
        if here:
            self.take(DirectMessage(tuple(here), *given))
        for life, receivers in elsewhere.items():
            for piece in split_receivers(receivers):
                if not self._say(piece[0][0], DirectMessage(piece, *given)):
                    self._drop(life, len(piece))

    def take(self, message: DirectMessage) -> None:
        """Bring it to its receivers here."""
        for owner, topic_filter in message.receivers:
            given = (message.topic, message.payload, topic_filter, 0, False, message.expiry_ms, message.head)
            self.dropped += not self._deliver(owner, Delivered(0, *given))

    def _drop(self, life: str, count: int) -> None:
        self.dropped += count
        if self._without_way.count_event():
            logger.warning(NO_WAY, self._life, life, self._without_way.count)


def split_receivers(receivers: Iterable[Receiver]) -> Iterator[tuple[Receiver, ...]]:
    """Pieces that each fit into a message; one receiver always does."""
    piece: list[Receiver] = []
    size = 0
    for one in receivers:
        its = len(one[0].encode()) + len(one[1].encode())
        if piece and size + its > RECEIVERS_BYTES_MAX:
            yield tuple(piece)
            piece, size = [], 0
        piece.append(one)
        size += its
    if piece:
        yield tuple(piece)


PROTOCOL: Final = "persistent_sessions"

NodeMessage = (
    MarkerWanted
    | Live
    | LiveMarker
    | BeginTakeover
    | TakeoverBegun
    | EndTakeover
    | TakeoverEnded
    | TakeoverRefused
    | DirectMessage
    | OwnerReplaced
)
"""From a node."""
ClientMessage = (
    ConnectWanted
    | SubscribeWanted
    | UnsubscribeWanted
    | PublishWanted
    | PublishWithHead
    | LeaveWanted
    | Ping
    | Puback
    | Pubrec
    | Pubcomp
)
"""From a client."""
ClientAnswer = Welcome | Subscribed | Delivered | Pubrel | PublishStored | Refused | GroupRefused | Farewell | Pong
"""To a client."""

NODE: Final = NodeRole(
    PROTOCOL, "node", takes=NodeMessage | ClientMessage, dials=("node",), dialled_by=("node", "client"),
    proved=("node",), storeless=("client",),
)  # fmt: skip
"""Nodes dial each other; all of them work on one store.  What one sends live is taken for a row that is stored."""

CLIENT: Final = NodeRole(
    PROTOCOL, "client", takes=ClientAnswer, dials=("node",), proved=("node",), storeless=("client",)
)  # fmt: skip
"""What is a node is proved to it by a certificate; a secret that all share proves no role."""
