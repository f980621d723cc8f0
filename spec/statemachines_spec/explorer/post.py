"""Post: messages that take a bounded time, in a system with a tick: none is on its way for longer than `delay` ticks.

A component that carries what all others send, in place of the network: it hands messages over, in any order, loses and
copies them where it may, and refuses a tick while one has been on its way for as long as it can be.  With `delay=0`
none survives a tick.

MessageSet: a network that is a set from which nothing is removed, as specifications in TLA+ often have it.

A message that was sent once can be handed over at any later moment, any number of times, in any order; sending it again
changes nothing.  The set is one component, and each filling of it is one local state: so a state needs few bits for it,
and there is an entry for each message and each filling.  A system whose messages can be sent in very many combinations
is better declared with a `Network`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Event, Message, name_of
from statemachines.kernel.pmap import enc_hook
from statemachines_spec.explorer.actor import Actor, Envelope, Passed, Reaction, Timing, Watch

PLACES_MAX = 8


class Carry(Event, frozen=True, gc=False):
    """A message is sent.  `kind`: its type, since messages of two types may have the same fields."""

    kind: str
    envelope: Envelope


class Hand(Event, frozen=True, gc=False):
    """A message is handed over."""

    kind: str
    envelope: Envelope


class Copy(Event, frozen=True, gc=False):
    """A copy of a message is handed over, and it stays on its way."""

    kind: str
    envelope: Envelope


class Lose(Event, frozen=True, gc=False):
    """A message is lost."""

    kind: str
    envelope: Envelope


class Parcel(msgspec.Struct, frozen=True, gc=False):
    """A message on its way, and for how many ticks it has been."""

    kind: str
    envelope: Envelope
    age: int = 0


class Bag(msgspec.Struct, frozen=True, gc=False):
    """What is on its way, in the order in which it was sent, as far as that matters: sorted."""

    parcels: tuple[Parcel, ...] = ()


class MessageTransport(Actor):
    """Base of a component that carries what all others send, in place of the network.  A system has one at most."""

    def initial(self) -> Bag:
        return Bag()

    def carries(self, sent: Envelope) -> Envelope:
        """What it is called with when something is sent."""
        return Envelope(sent.sender, self.name, Carry(name_of(type(sent.event)), sent))

    def describe(self, local: Bag) -> str:
        each = (
            f"{one.kind} from {one.envelope.sender} to {one.envelope.to}" + (f" for {one.age}" if one.age else "")
            for one in local.parcels
        )
        return ", ".join(each) or "nothing on its way"


class Post(MessageTransport):
    """`delay`: ticks that a message takes at most; `places`: as many are on their way at most; `loses`, `copies`:
    whether it may (what services answer is neither lost nor copied)."""

    def __init__(
        self, tick_ns: int, *, delay: int = 0, places: int = 3, loses: bool = False, copies: bool = False,
        name: str = "post",
    ) -> None:  # fmt: skip
        super().__init__(name)
        if delay < 0 or not 1 <= places <= PLACES_MAX:
            rule = f"needs a delay of 0 ticks or more, and 1 to {PLACES_MAX} places"
            raise ConfigurationError(name, f"delay {delay}, places {places}", rule)
        self.delay = delay
        self.places = places
        self.loses = loses
        self.copies = copies
        self.set_timing(Timing(tick_ns))

    def inputs(self, local: Bag) -> tuple[Any, ...]:
        events: list[Any] = []
        for kind, envelope in dict.fromkeys((one.kind, one.envelope) for one in local.parcels):
            events.append(Hand(kind, envelope))
            if isinstance(envelope.event, Message):
                events += [Copy(kind, envelope)] if self.copies else []
                events += [Lose(kind, envelope)] if self.loses else []
        return tuple(events)

    def react(self, local: Bag, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        match event:
            case Passed():
                if event.ticks and any(one.age >= self.delay for one in local.parcels):
                    return None
                older = tuple(replace(one, age=one.age + event.ticks) for one in local.parcels)
                return Reaction(_sorted(older))
            case Carry(kind, sent):
                return Reaction(_sorted((*local.parcels, Parcel(kind, sent))))
            case Lose(kind, sent):
                return Reaction(_without(local, kind, sent))
            case Hand(kind, sent):
                return Reaction(_without(local, kind, sent), (), (sent,))
            case Copy(_, sent):
                return Reaction(local, (), (sent,))
        raise TypeError(f"the post does not take {event!r}")

    def within(self, local: Bag) -> bool:
        return len(local.parcels) <= self.places

    def bounds(self) -> dict[str, str]:
        kinds = ("loses" if self.loses else "loses nothing", "copies" if self.copies else "copies nothing")
        takes = f"{self.delay} ticks at most" if self.delay else "no tick: whatever is sent arrives before the next"
        return {"messages": f"{', '.join(kinds)}, reorders; at most {self.places} on their way", "takes": takes}


def _without(local: Bag, kind: str, sent: Envelope) -> Bag:
    """The oldest of those that are alike is gone."""
    alike = [one for one in local.parcels if (one.kind, one.envelope) == (kind, sent)]
    rest = list(local.parcels)
    rest.remove(max(alike, key=lambda one: one.age))
    return Bag(tuple(rest))


def _sorted(parcels: tuple[Parcel, ...]) -> Bag:
    return Bag(tuple(sorted(parcels, key=lambda one: (one.kind, envelope_bytes(one.envelope), one.age))))


def envelope_bytes(envelope: Envelope) -> bytes:
    """An envelope as bytes, to sort by."""
    return msgspec.msgpack.encode(envelope, enc_hook=enc_hook)


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
