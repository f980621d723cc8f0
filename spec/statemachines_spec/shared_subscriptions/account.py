"""Account: the books of the applications: what they were given, and what they have dealt with.

An observer: sessions tell it of every message that is handed over or acknowledged, and it sees for itself what excuses
a second delivery (a borrower that ends before it has finished, a member that expires or is kicked, another leader) and
what becomes durable.  Only what a property needs is kept: two runs that differ in nothing else are one state.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, in_order
from statemachines.shared_subscriptions.assignment import GrantTimeout, RevokeTimeout
from statemachines.shared_subscriptions.borrower import UNSUBSCRIBING, OnUnsubscribe
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import Commit
from statemachines.shared_subscriptions.leader_record import LEADING
from statemachines.shared_subscriptions.member import ExpiryTimer, HandOverTimer
from statemachines.shared_subscriptions.message import Revoked
from statemachines.shared_subscriptions.names import record_name
from statemachines.shared_subscriptions.properties.delivered_messages import DeliveredMessages, DeliveryPlace
from statemachines.shared_subscriptions.session import Ack, Take
from statemachines.shared_subscriptions.session_record import Acknowledged, Deliver
from statemachines.shared_subscriptions.stream import ABSENT
from statemachines_spec.explorer.actor import Crash, Envelope, Observer, Reaction, Watch
from statemachines_spec.shared_subscriptions.consumer import ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.session_consumer import ACCOUNT, Unheard
from statemachines_spec.shared_subscriptions.stores import StoreLocal

LET_GO = (ExpiryTimer, HandOverTimer, GrantTimeout, RevokeTimeout)
"""When a leader may let a member go."""


class Excused(Event, frozen=True, gc=False):
    """Something has happened after which messages of these streams may be delivered again; `gone`: a borrower that
    delivers no more ("" = none)."""

    streams: tuple[str, ...]
    gone: str = ""


class Durable(Event, frozen=True, gc=False):
    """Progress was committed: of each stream the next offset."""

    progress: tuple[tuple[str, int], ...]


class BorrowerPlace(msgspec.Struct, frozen=True, gc=False):
    """Where a borrower is in a stream, under its last grant."""

    borrower: str
    stream: str
    place: DeliveryPlace


class AccountLocal(msgspec.Struct, frozen=True, gc=False):
    """By stream, in the order of the account's `streams`: `acked`, offsets that are acknowledged, as bits; `once`, what
    is delivered; `durable`, the progress committed.  `places` by (borrower, stream)."""

    acked: tuple[int, ...]
    once: tuple[DeliveredMessages, ...]
    durable: tuple[int, ...]
    places: tuple[BorrowerPlace, ...] = ()


class DeliveryAccount(Observer):
    """The books over `streams`; `published`: the messages of each that somebody is to acknowledge."""

    def __init__(self, streams: tuple[str, ...], published: tuple[int, ...]) -> None:
        super().__init__(ACCOUNT)
        self.streams = streams
        self.published = published

    def initial(self) -> AccountLocal:
        nothing = (0,) * len(self.streams)
        return AccountLocal(nothing, (DeliveredMessages(),) * len(self.streams), nothing)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if isinstance(before, ConsumerLocal):
            return self._of_consumer(before, event, after)
        if isinstance(before, LeaderHostLocal):
            return self._of_leader(before, event, after)
        if isinstance(before, StoreLocal) and actor == GROUP_STORE and isinstance(event, Commit):
            return self._of_store(before, after)
        return None

    def react(self, local: AccountLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Deliver() as event:
                return Reaction(self._delivered(local, event))
            case Acknowledged(_, stream, _, first, last):
                return Reaction(replace(local, acked=self._with(local.acked, stream, bits(first, last))))
            case Excused(streams, gone):
                once = tuple(
                    DeliveredMessages() if stream in streams else known
                    for stream, known in zip(self.streams, local.once, strict=True)
                )
                places = tuple(place for place in local.places if place.borrower != gone)
                return Reaction(replace(local, once=once, places=places))
            case Durable(progress):
                known = dict(progress)
                return Reaction(replace(local, durable=tuple(known.get(stream, 0) for stream in self.streams)))
        raise TypeError(f"the account does not take {envelope.event!r}")

    def describe(self, local: AccountLocal) -> str:
        return "; ".join(
            f"{stream}: acknowledged {numbers(acked)}, given once {numbers(mask_of(once))}, durable below {durable}"
            for stream, acked, once, durable in zip(self.streams, local.acked, local.once, local.durable, strict=True)
        )

    # -- inside -------------------------------------------------------------------------------------------------

    def _delivered(self, local: AccountLocal, event: Deliver) -> AccountLocal:
        key = (event.owner, event.stream)
        known = [one.place for one in local.places if (one.borrower, one.stream) == key]
        under = known[0] if known and known[0].grant == event.grant else DeliveryPlace(event.grant, event.first)
        others = [one for one in local.places if (one.borrower, one.stream) != key]
        places = sorted(
            (*others, BorrowerPlace(*key, under.observe(event)[0])), key=lambda one: (one.borrower, one.stream)
        )
        once = tuple(
            known.observe(event)[0] if name == event.stream else known
            for name, known in zip(self.streams, local.once, strict=True)
        )
        return replace(local, once=once, places=tuple(places))

    def _with(self, masks: tuple[int, ...], stream: str, more: int) -> tuple[int, ...]:
        return tuple(mask | more if name == stream else mask for name, mask in zip(self.streams, masks, strict=True))

    def _of_consumer(self, before: ConsumerLocal, event: Any, after: ConsumerLocal) -> Excused | None:
        """A borrower that is gone: an excuse, unless it had finished."""
        if before.party is None:
            return None
        record = before.party.record
        if after.party is not None and after.party.record.id == record.id:
            return None
        orderly = isinstance(event, OnUnsubscribe) or (
            record.status is UNSUBSCRIBING and isinstance(event, Ack | Unheard | Take | Revoked)
        )
        held = tuple(stream for stream, child in in_order(record.streams) if child.status is not ABSENT)
        return Excused(() if orderly else held, record.id)

    def _of_leader(self, before: LeaderHostLocal, event: Any, after: LeaderHostLocal) -> Excused | None:
        """Another leader, or none; a member that expires or is kicked, until its lease has surely ended."""
        if isinstance(event, Crash):
            return Excused(self.streams)
        old, new = (None if one.party is None else one.party.record for one in (before, after))
        led, leads = (one is not None and one.status is LEADING for one in (old, new))
        if led != leads:
            return Excused(self.streams)
        if (
            old is None
            or new is None
            or not isinstance(event, ExpiryTimer | HandOverTimer | GrantTimeout | RevokeTimeout)
        ):
            return None
        lost: list[str] = []
        for borrower, member in in_order(old.members):
            later = new.members.get(borrower)
            if later is None or later.status is not member.status:
                lost += [stream for _, stream in in_order(member.grants)]
        return Excused(tuple(sorted(set(lost)))) if lost else None

    def _of_store(self, before: StoreLocal, after: StoreLocal) -> Durable | None:
        old, new = progress_in(before), progress_in(after)
        return None if old == new else Durable(tuple(sorted(new.items())))


def progress_in(local: StoreLocal) -> dict[str, int]:
    """The progress that a group store holds, by stream."""
    found = ((record_name(key).stream, stored.value) for key, stored in in_order(local.state))
    return {stream: value for stream, value in found if stream}


def bits(first: int, last: int) -> int:
    """Offsets `first`..`last` as bits."""
    return (1 << last + 1) - (1 << first)


def mask_of(known: DeliveredMessages) -> int:
    """What was delivered once, as bits."""
    return sum(bits(first, last) for first, last in known.once.ranges)


def prefix(mask: int) -> int:
    """How many offsets from 0 on are in `mask` without a hole."""
    return (~mask & mask + 1).bit_length() - 1


def numbers(mask: int) -> str:
    """The offsets of a mask, for people."""
    return ", ".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1) or "none"
