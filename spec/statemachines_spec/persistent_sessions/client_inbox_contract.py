"""What a client owes its application and its nodes, whatever these say: PS-156, PS-313, PS-700, PS-770 to PS-772."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Send, Tell
from statemachines.persistent_sessions import client_inbox_record as own
from statemachines.persistent_sessions.client_inbox import CLIENT_INBOX, NODE
from statemachines.persistent_sessions.client_message import Delivered
from statemachines.persistent_sessions.message import Puback, Pubcomp, Pubrec, Pubrel
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System

MESSAGES: Final = 3
"""So many are handed to the application at most."""
PACKETS: Final = (1, 2)
PAYLOADS: Final = (b"a", b"b")
COMING: Final = (
    Delivered(0, "t", b"a", "t", 0, False),
    *(Delivered(packet, "t", b"a", "t", 1, dup) for packet in PACKETS for dup in (False, True)),
    *(Delivered(packet, "t", payload, "t", 2, dup)
      for packet in PACKETS for payload in PAYLOADS for dup in (False, True)),
)  # fmt: skip
Said = tuple[Any, ...]


class MessageInHand(msgspec.Struct, frozen=True, gc=False):
    """A message that the application has, and has not acknowledged."""

    n: int
    packet: int
    qos: int


class InboxFacts(msgspec.Struct, frozen=True, gc=False):
    """`handed` to the application, in order; `last`: packet of QoS 2 that is not released -> the payload that came
    under it last; `count` of all messages that were handed out."""

    connected: bool = False
    count: int = 0
    handed: tuple[MessageInHand, ...] = ()
    last: tuple[tuple[int, bytes], ...] = ()


class ClientSurroundings(Counterpart):
    """an application that acknowledges whatever it likes, and nodes that send any message under any packet"""

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> InboxFacts:
        return InboxFacts()

    def says(self, known: InboxFacts) -> Iterator[Any]:
        yield own.ConnectionBegun()
        yield own.ConnectionEnded()
        yield from (Pubrel(packet) for packet in PACKETS)
        yield from (own.AcknowledgeMessage(packet, n) for packet in PACKETS for n in range(1, known.count + 1))
        if known.count < MESSAGES:
            yield from COMING

    def learns(self, known: InboxFacts, event: Any, said: Said) -> InboxFacts:
        match event:
            case own.ConnectionBegun():
                return replace(known, connected=True)
            case own.ConnectionEnded():
                kept = tuple(one for one in known.handed if one.qos == 2)
                return replace(known, connected=False, handed=kept)
            case own.AcknowledgeMessage(packet, n):
                return replace(known, handed=tuple(one for one in known.handed if (one.packet, one.n) != (packet, n)))
            case Pubrel(packet) if known.connected:
                return replace(known, last=tuple(one for one in known.last if one[0] != packet))
            case Delivered() if is_new(known, event):
                return self._hand_out(known, event)
        return known

    def _hand_out(self, known: InboxFacts, message: Delivered) -> InboxFacts:
        n, packet = known.count + 1, message.packet
        known = replace(known, count=n)
        if message.qos == 2:
            others = tuple(one for one in known.last if one[0] != packet)
            known = replace(known, last=tuple(sorted((*others, (packet, message.payload)))))
        if not packet:
            return known
        # What came under the packet before cannot be acknowledged any more: an answer would be taken for this one's.
        left = tuple(one for one in known.handed if one.packet != packet)
        return replace(known, handed=(*left, MessageInHand(n, packet, message.qos)))


# -- when it is bound, and what it says then ------------------------------------------------------------------------


def is_repeated(known: InboxFacts, event: Any) -> bool:
    """Of QoS 2 the application was handed this before."""
    is_exact = isinstance(event, Delivered) and event.qos == 2
    return known.connected and is_exact and event.dup and (event.packet, event.payload) in known.last


def is_new(known: InboxFacts, event: Any) -> bool:
    """A message that the application must have."""
    return known.connected and isinstance(event, Delivered) and not is_repeated(known, event)


def find_handed(known: InboxFacts, event: Any) -> MessageInHand | None:
    """What the application acknowledges by this."""
    if not isinstance(event, own.AcknowledgeMessage):
        return None
    return next((one for one in known.handed if (one.packet, one.n) == (event.packet, event.n)), None)


def is_acknowledged(known: InboxFacts, event: Any) -> bool:
    """Its node is to know."""
    return known.connected and find_handed(known, event) is not None


def is_settled(known: InboxFacts, event: Any) -> bool:
    """There is no node to tell."""
    return not known.connected and find_handed(known, event) is not None


def is_released(known: InboxFacts, event: Any) -> bool:
    """The node knows that it has come."""
    return known.connected and isinstance(event, Pubrel)


def is_nothing(known: InboxFacts, event: Any) -> bool:
    """It binds to nothing."""
    bound = (is_repeated, is_new, is_acknowledged, is_released)
    return not any(one(known, event) for one in bound)


def receives_again(known: InboxFacts, event: Delivered, said: Said) -> bool:
    """Nothing of it is for the application; one that is acknowledged is so at once."""
    waits = any(one.packet == event.packet for one in known.handed)
    return said == (() if waits else (Send(NODE, Pubrec(event.packet)),))


def acknowledges(known: InboxFacts, event: Any, said: Said) -> bool:
    """By the packet, as its QoS has it."""
    found = find_handed(known, event)
    if found is None:
        return False
    return said == (Send(NODE, Puback(found.packet) if found.qos == 1 else Pubrec(found.packet)),)


RULES: Final = (
    Rule("hands out", "PS-156, PS-700", "a message that the application has not had is handed to it, once", is_new,
         lambda known, event, said: said == (Tell(own.MessageReceived(known.count + 1)),)),
    Rule("repeats nothing", "PS-156", "of QoS 2 the application has a message once", is_repeated, receives_again),
    Rule("acknowledges", "PS-313", "what the application is done with is acknowledged, once", is_acknowledged,
         acknowledges),
    Rule("settles", "PS-771", "what it is done with while there is no node is said to none", is_settled,
         lambda known, event, said: said == ()),
    Rule("answers a release", "PS-770", "a release is answered", is_released,
         lambda known, event, said: said == (Send(NODE, Pubcomp(event.packet)),)),
    Rule("ignores", "PS-313, PS-772", "it says nothing where nothing is wanted", is_nothing,
         lambda known, event, said: said == ()),
)  # fmt: skip

SYSTEMS: Final[dict[str, tuple[str]]] = {
    "client-inbox-told": ("what a client owes its application and its nodes",),
}
"""Name -> (about)."""


def system(name: str) -> System:
    """The system called so."""
    machine = Machine(CLIENT_INBOX, own.ClientInboxRecord("client"), says_so=False)
    return contract(name, *SYSTEMS[name], machine, ClientSurroundings())
