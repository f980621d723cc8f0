"""Delivery right: S5, one session delivers; S15, one life of a name does; S11, none whose borrower is gone."""

from __future__ import annotations

from collections.abc import Iterable

from statemachines.kernel import BrokenProperty, node_of
from statemachines.shared_subscriptions.borrower import CONNECTED, BorrowerRecord
from statemachines.shared_subscriptions.leader_record import SERVING, LeaderRecord
from statemachines.shared_subscriptions.session_record import SessionRecord, reading_key
from statemachines.shared_subscriptions.stream import ABSENT

Deliverer = tuple[str, str, int]
"""Who delivers a stream: a life, for which leader, by which grant."""


def holds_stream(record: BorrowerRecord, stream: str) -> bool:
    """By what a borrower knows, whose lease has not ended, its session may deliver the stream."""
    if record.status is not CONNECTED or not record.leased:
        return False
    return stream in record.streams and record.streams[stream].status is not ABSENT


def reads_stream(record: SessionRecord, owner: str, stream: str) -> bool:
    """The session may hand messages of the stream over, or still has some in hand, under a lease of this owner."""
    return reading_key(owner, stream) in record.readings and record.leases[owner].held


def are_disjoint(masks: Iterable[int]) -> bool:
    """Of those who may deliver, each with its streams as bits, no two may deliver one stream."""
    together = 0
    for mask in masks:
        if mask & together:
            return False
        together |= mask
    return True


def check_right(
    life: str, stream: str, borrower: BorrowerRecord | None, is_replaced: bool, is_exclusive: bool
) -> tuple[BrokenProperty, ...]:
    """A session delivers a stream: with a leader, and under a lease.  `is_replaced`: its borrower ended itself."""
    if borrower is None or (borrower.link is None and is_replaced):
        return (BrokenProperty("S11", f"{life} delivers {stream} under a borrower that is gone"),)
    if borrower.link is None:
        return (BrokenProperty("S5", f"{life} delivers {stream} without a leader"),)
    if is_exclusive and not borrower.leased:
        return (BrokenProperty("S5", f"{life} delivers {stream} after the end of its lease"),)
    return ()


def check_hand_over(
    stream: str, deliverer: Deliverer, earlier: Deliverer, *, may_still: bool, is_again: bool
) -> tuple[BrokenProperty, ...]:
    """Another delivers a stream than before, who `may_still`; `is_again`: it did so once, by the same grant."""
    life, _, grant = deliverer
    if is_again:
        return (BrokenProperty("S5", f"{life} delivers {stream} under {grant} again, after somebody else did"),)
    if not may_still:
        return ()
    are_lives = node_of(life) == node_of(earlier[0]) and life != earlier[0]
    detail = f"{life} delivers {stream} while {earlier[0]} may under {earlier[2]}"
    return (BrokenProperty("S15" if are_lives else "S5", detail),)


def check_granted(stream: str, deliverer: Deliverer, granted: str) -> tuple[BrokenProperty, ...]:
    """A session delivers what its leader has granted under this number, which is `granted`."""
    if granted == stream:
        return ()
    life, leader, grant = deliverer
    return (BrokenProperty("S4", f"{life} delivers {stream} under {grant}, never granted by {leader}"),)


def assigns_in_grace(record: LeaderRecord) -> bool:
    """A leader assigns a stream while a lease from before may hold."""
    return record.grace and record.status in SERVING and bool(record.assignments)
