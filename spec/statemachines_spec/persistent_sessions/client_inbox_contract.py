"""What a client owes its application and its nodes, whatever these say: PS-156, PS-313, PS-700, PS-770 to PS-772."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Send, Tell
from statemachines.persistent_sessions import client_inbox as own
from statemachines.persistent_sessions.client_inbox import CLIENT_INBOX, NODE
from statemachines.persistent_sessions.message import Delivered, Puback, Pubcomp, Pubrec, Pubrel
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.table_contract import Duty, TableContract, TableFacts

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


class InboxFacts(TableFacts, frozen=True, gc=False):
    """`handed` to the application, in order; `last`: packet of QoS 2 that is not released -> the payload that came
    under it last; `count` of all messages that were handed out."""

    count: int = 0
    handed: tuple[MessageInHand, ...] = ()
    last: tuple[tuple[int, bytes], ...] = ()


class ClientSurroundings(TableContract):
    """an application that acknowledges whatever it likes, and nodes that send any message under any packet"""

    def can_say(self, known: InboxFacts, word: Any) -> bool:
        """So many messages come, and those that have come are acknowledged."""
        if isinstance(word, Delivered):
            return known.count < MESSAGES
        return not isinstance(word, own.AcknowledgeMessage) or word.n <= known.count


# -- what it must say, and what is known then -----------------------------------------------------------------------


def is_repeated(known: InboxFacts, event: Delivered) -> bool:
    """Of QoS 2 the application was handed this before."""
    return event.qos == 2 and event.dup and (event.packet, event.payload) in known.last


def hand_out(known: InboxFacts, message: Delivered) -> InboxFacts:
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


def receive_again(known: InboxFacts, event: Delivered) -> Said:
    """Nothing of it is for the application; one that is acknowledged is so at once."""
    waits = any(one.packet == event.packet for one in known.handed)
    return () if waits else (Send(NODE, Pubrec(event.packet)),)


def find_handed(known: InboxFacts, event: own.AcknowledgeMessage) -> list[MessageInHand]:
    """What the application acknowledges by this."""
    return [one for one in known.handed if (one.packet, one.n) == (event.packet, event.n)]


def is_handed(known: InboxFacts, event: own.AcknowledgeMessage) -> bool:
    return bool(find_handed(known, event))


def acknowledge(known: InboxFacts, event: own.AcknowledgeMessage) -> tuple[InboxFacts, Said]:
    """By the packet, as its QoS has it; where there is no node nothing is said."""
    found = find_handed(known, event)
    kinds = {1: Puback, 2: Pubrec}
    said = tuple(Send(NODE, kinds[one.qos](one.packet)) for one in found if known.phase == "connected")
    return replace(known, handed=tuple(one for one in known.handed if one not in found)), said


# fmt: off
ROWS: Final = (
    Duty("hands out", "PS-156, PS-700", "a message that the application has not had is handed to it, once",
         Delivered, "connected", lambda known, event: (Tell(own.MessageReceived(known.count)),),
         when=lambda known, event: not is_repeated(known, event), then=hand_out),
    Duty("repeats nothing", "PS-156", "of QoS 2 the application has a message once",
         Delivered, "connected", receive_again),
    Duty("acknowledges", "PS-313", "what the application is done with is acknowledged, once",
         own.AcknowledgeMessage, "connected", when=is_handed, step=acknowledge),
    Duty("settles", "PS-771", "what it is done with while there is no node is said to none",
         own.AcknowledgeMessage, "alone", when=is_handed, step=acknowledge),
    Duty("answers a release", "PS-770", "a release is answered",
         Pubrel, "connected", lambda known, event: (Send(NODE, Pubcomp(event.packet)),),
         then=lambda known, event: replace(known, last=tuple(one for one in known.last if one[0] != event.packet))),
    Duty("ignores", "PS-313, PS-772", "it says nothing where nothing is wanted", own.ConnectionBegun, to="connected"),
    Duty("ignores", "", "", own.ConnectionEnded, to="alone",
         then=lambda known, event: replace(known, handed=tuple(one for one in known.handed if one.qos == 2))),
    Duty("ignores", "", "", object),
)
WORDS: Final = (
    own.ConnectionBegun(), own.ConnectionEnded(), *(Pubrel(packet) for packet in PACKETS), *COMING,
    *(own.AcknowledgeMessage(packet, n) for packet in PACKETS for n in range(1, MESSAGES + 1)),
)
# fmt: on

SYSTEMS: Final[dict[str, tuple[str]]] = {
    "client-inbox-told": ("what a client owes its application and its nodes",),
}
"""Name -> (about)."""


def system(name: str) -> System:
    """The system called so."""
    machine = Machine(CLIENT_INBOX, own.ClientInboxRecord("client"), says_so=False)
    return contract(name, *SYSTEMS[name], machine, ClientSurroundings(ROWS, (), WORDS, InboxFacts("alone")))
