"""Deadline orders of shared subscriptions, each from a relation that `Configuration` keeps.

What the machines reckon their deadlines with is reckoned again here: an order whose relation they do not keep is not
assumed (`is_kept`), and what breaks without it is found.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec

from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.leader import GraceEnd
from statemachines.shared_subscriptions.leader_record import HOLDING
from statemachines.shared_subscriptions.member import HandOverTimer
from statemachines_spec.explorer.order import Order
from statemachines_spec.shared_subscriptions import consumer, leader_host
from statemachines_spec.shared_subscriptions.consumer import ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal


class PossibleLease(msgspec.Struct, frozen=True):
    """A lease that holds, or that an answer already sent may still bring."""

    borrower: str
    epoch: int
    registration: int


def lease_of(actor: str, local: Any) -> PossibleLease | None:
    """The lease of a consumer, if its end has not passed.

    A borrower whose outstanding ping has been answered may still get that lease: its ping timeout ends the wait, and
    lies before the end of the lease (ping_timeout < ping_interval + ping_timeout from the same sending time).
    """
    if not isinstance(local, ConsumerLocal) or local.party is None:
        return None
    if local.mode in (consumer.LATER, consumer.HEARING):
        return None
    record = local.party.record
    leased = record.leased and local.mode is not consumer.LATE
    if record.link is None or not (leased or local.promised):
        return None
    return PossibleLease(record.id, record.link.epoch, record.link.registration)


def hand_over(actor: str, local: Any, event: Any) -> PossibleLease | None:
    """The lease that a hand-over waits for."""
    if not isinstance(event, HandOverTimer) or local.party is None:
        return None
    record = local.party.record
    member = record.members.get(event.key)
    return None if member is None else PossibleLease(event.key, record.epoch, member.link.registration)


def grace_end(actor: str, local: Any, event: Any) -> int | None:
    """The epoch whose predecessors' leases a grace waits for."""
    if not isinstance(event, GraceEnd) or local.party is None:
        return None
    epoch: int = local.party.record.epoch
    return epoch


class Belief(msgspec.Struct, frozen=True):
    """A claim as its leader, or who watches it, knows it: of the commit with this stamp."""

    leader: str
    stamp: int


def claim_held(actor: str, local: Any) -> Belief | None:
    """The claim that a leader believes in, by its own clock."""
    if not isinstance(local, LeaderHostLocal) or local.party is None or local.mode is leader_host.LATE:
        return None
    record = local.party.record
    return Belief(record.id, record.claim.stamp) if record.status in HOLDING else None


def claim_aged(actor: str, local: Any, event: Any) -> Belief | None:
    """The claim that somebody is about to have watched for its TTL."""
    if not isinstance(event, leader_host.Age) or not isinstance(local, LeaderHostLocal):
        return None
    found = leader_host.read_watched(local)
    return None if found is None else Belief(found.value.leader, found.stamp)


def ends_before(held: Belief, aged: Belief) -> bool:
    """A leader that knows of a later commit than who watches is not meant: its claim ends later."""
    return held.leader == aged.leader and held.stamp <= aged.stamp


LEASE_BEFORE_HAND_OVER = Order(
    "lease before hand-over",
    "a lease lasts L from the sending of its ping; hand-over comes L * (1+d) / (1-d) after its receipt",
    lease_of,
    hand_over,
    lambda lease, waiting: lease == waiting,
)

LEASE_BEFORE_GRACE = Order(
    "lease before the end of the grace",
    "a lease of an earlier epoch lasts at most L from before the claim; the grace L * (1+d) / (1-d) after it",
    lease_of,
    grace_end,
    lambda lease, epoch: lease.epoch < epoch,
)

CLAIM_END_BEFORE_AGE = Order(
    "end of a claim before its age",
    "a leader's claim ends claim_ttl * (1-d) / (1+d) after it was sent; who watches it waits for claim_ttl after that",
    claim_held,
    claim_aged,
    ends_before,
)

ORDERS = (LEASE_BEFORE_HAND_OVER, LEASE_BEFORE_GRACE, CLAIM_END_BEFORE_AGE)


def is_kept(order: Order, configuration: Configuration) -> bool:
    """Whether what the machines reckon with keeps the relation that the order follows from."""
    d = Fraction(round(configuration.clock_drift * 1_000_000), 1_000_000)
    if order is CLAIM_END_BEFORE_AGE:
        return configuration.claim_by_own_clock_ns() <= configuration.claim_ttl_ms * MS * (1 - d) / (1 + d)
    lease_ns = (configuration.ping_interval_ms + configuration.ping_timeout_ms) * MS
    return configuration.lease_by_other_clock_ns() >= lease_ns * (1 + d) / (1 - d)
