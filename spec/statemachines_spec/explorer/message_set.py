"""MessageSet: a network that is a set from which nothing is removed, as specifications in TLA+ often have it.

A message that was sent once can be handed over at any later moment, any number of times, in any order; sending it again
changes nothing.  The set is one component, and each filling of it is one local state: so a state needs few bits for it,
and there is an entry for each message and each filling.  A system whose messages can be sent in very many combinations
is better declared with a `Network`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from statemachines.kernel import ConfigurationError, Message
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.post import Bag, Carry, Hand, MessageTransport, Parcel, envelope_bytes

MESSAGES_MAX = 255


class MessageSet(MessageTransport):
    """Declared as an actor of the system, in place of its `Network`.  `most`: different messages that a run may send;
    a step that sends more is cut.  What services are asked and what they answer is handed over once."""

    def __init__(self, most: int = 64, *, name: str = "messages") -> None:
        super().__init__(name)
        if not 1 <= most <= MESSAGES_MAX:
            raise ConfigurationError(f"most of {name}", most, f"must lie between 1 and {MESSAGES_MAX}")
        self.most = most

    def inputs(self, local: Bag) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(Hand(one.kind, one.envelope) for one in local.parcels))

    def react(self, local: Bag, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Carry(kind, sent):
                return Reaction(_with(local, Parcel(kind, sent)))
            case Hand(kind, sent):
                return Reaction(_after(local, Parcel(kind, sent)), (), (sent,))
        raise TypeError(f"a set of messages does not take {event!r}")

    def within(self, local: Bag) -> bool:
        return len(local.parcels) <= self.most

    def bounds(self) -> dict[str, str]:
        return {"network": f"a set from which nothing is removed; at most {self.most} different messages"}


def _with(local: Bag, sent: Parcel) -> Bag:
    """The set with what was sent, in the order of its bytes."""
    if isinstance(sent.envelope.event, Message) and sent in local.parcels:
        return local
    place = bisect_left(local.parcels, _order(sent), key=_order)
    return Bag((*local.parcels[:place], sent, *local.parcels[place:]))


def _after(local: Bag, handed: Parcel) -> Bag:
    """The set once something was handed over: a message stays."""
    if isinstance(handed.envelope.event, Message):
        return local
    place = local.parcels.index(handed)
    return Bag((*local.parcels[:place], *local.parcels[place + 1 :]))


def _order(one: Parcel) -> tuple[str, bytes]:
    return one.kind, envelope_bytes(one.envelope)
