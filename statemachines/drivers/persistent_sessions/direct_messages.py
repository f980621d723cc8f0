"""DirectMessages: messages of QoS 0 on their way to clients of fronts that are connected, past the database (MQ-192).

The transaction that finds the routes of a message says which owner has each session.  To an owner of this node the
message goes at once, to one of another node over the link between both.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from statemachines.drivers.clock import Clock
from statemachines.drivers.persistent_sessions.payloads import Payload
from statemachines.drivers.persistent_sessions.route_trie import Route
from statemachines.drivers.rate_limited_log import RateLimitedLog
from statemachines.kernel import Message, life_of
from statemachines.persistent_sessions.message import Delivered, Head, MessageExpiry

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
