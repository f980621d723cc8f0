"""AcknowledgedMessages: what the client of a session has acknowledged, and what of it must not come again.

It is fed what happens to the owners of one session, in the order in which it happens:

    seen, broken = seen.observe("a~1/1", Publish(...))           the owner sends this to its client: REDELIVERED
    seen, _ = seen.observe("a~1/1", TakeAcknowledgements(...))   its node takes this of the client
    seen, _ = seen.observe("a~1/1", LoseClient("a~1/1"))         the client leaves, or is lost
    seen, _ = seen.observe("a~1/1", SessionClosed("s1", "lost")) its node says that the connection is over
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import BrokenProperty, Event, Map
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.message import Puback, Pubcomp, Publish
from statemachines.persistent_sessions.session_host_record import LeaveClient, LoseClient, TakeAcknowledgements

Copy = tuple[str, str]
"""(message, filter): a message comes once by each filter."""

KEPT: Final = frozenset(("left", "lost"))
"""Why a connection is over whose session the owner still had at its end."""


class OwnedConnection(msgspec.Struct, frozen=True, gc=False):
    """One connection: what was `sent` under which packet and is not acknowledged, what is `acknowledged`, and whether
    its client `goes`: by then all that counts is acknowledged."""

    sent: Map[int, Copy] = Map()
    acknowledged: Map[Copy, bool] = Map()
    goes: bool = False


class AcknowledgedMessages(msgspec.Struct, frozen=True, gc=False):
    """`connections` that are not over, by owner; `settled`: what must not come again."""

    connections: Map[str, OwnedConnection] = Map()
    settled: Map[Copy, bool] = Map()

    def observe(self, owner: str, event: Event) -> tuple[AcknowledgedMessages, tuple[BrokenProperty, ...]]:
        """What is known behind this event of the owner, and what breaks; other events change nothing."""
        if isinstance(event, SessionClosed):
            return self._close(owner, event.why), ()
        broken: tuple[BrokenProperty, ...] = ()
        if isinstance(event, Publish) and (event.message, event.filter) in self.settled:
            text = f"{owner} sends {event.message}, which its client has acknowledged"
            broken = (BrokenProperty("REDELIVERED", text),)
        before = self.connections.get(owner, OwnedConnection())
        after = advance_connection(before, event)
        if after == before:
            return self, broken
        return replace(self, connections=self.connections.set(owner, after)), broken

    def _close(self, owner: str, why: str) -> AcknowledgedMessages:
        found = self.connections.get(owner)
        if found is None:
            return self
        settled = self.settled
        if found.goes and why in KEPT:
            settled = settled.update(found.acknowledged)
        return AcknowledgedMessages(self.connections.delete(owner), settled)


def advance_connection(found: OwnedConnection, event: Event) -> OwnedConnection:
    """The connection behind this event; behind the end of its client nothing counts any more."""
    if found.goes:
        return found
    match event:
        case Publish(packet, message, topic_filter) if packet:
            return replace(found, sent=found.sent.set(packet, (message, topic_filter)))
        case TakeAcknowledgements(_, messages):
            for one in messages:
                if not isinstance(one, Pubcomp):
                    last = one.until if isinstance(one, Puback) else one.packet
                    found = acknowledge_packets(found, one.packet, last)
            return found
        case LeaveClient() | LoseClient() if found.acknowledged:
            return replace(found, goes=True)
    return found


def acknowledge_packets(found: OwnedConnection, first: int, last: int) -> OwnedConnection:
    """The client has what was sent under these packets."""
    sent, acknowledged = found.sent, found.acknowledged
    for packet in range(first, last + 1):
        if packet in sent:
            acknowledged = acknowledged.set(sent[packet], True)
            sent = sent.delete(packet)
    return replace(found, sent=sent, acknowledged=acknowledged)
