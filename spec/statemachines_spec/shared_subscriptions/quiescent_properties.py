"""Settling: what a leader comes to once faults have stopped (L4, L6, L9), and that resets come of faults only (L8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statemachines.kernel import identity, in_order
from statemachines.shared_subscriptions.leader_record import LEADING, SERVING, LeaderRecord
from statemachines.shared_subscriptions.properties.settled_group import (
    find_resets,
    find_unconnected,
    find_unshared,
    hands_nothing_over,
)
from statemachines_spec.explorer.property import Always, Eventually, Sometimes, View
from statemachines_spec.shared_subscriptions import consumer as consumers_of
from statemachines_spec.shared_subscriptions.consumer import Consumer, ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal

# -- L4 -------------------------------------------------------------------------------------------------------------


def make_balanced(hosts: Iterable[str]) -> Always:
    """The safe half of L4: where nothing is being handed over any more, it has been handed over fairly."""
    views = tuple(View(host, 3, _rest) for host in hosts)
    text = "where every stream is granted, free or read, the members have as many each, and none is free"
    return Always("L4 at rest", text, views, lambda *each: 1 not in each)


def at_rest(hosts: Iterable[str]) -> Sometimes:
    """Against an empty L4: members have come to rest with streams in their hands."""
    views = tuple(View(host, 3, _rest) for host in hosts)
    return Sometimes("L4 rest", "every stream is granted to a member", views, lambda *each: 2 in each)


def _rest(local: LeaderHostLocal) -> int:
    """0: something is being handed over, or nobody is there; 1: at rest, and not fair; 2: at rest, and fair."""
    record = _leading(local)
    if record is None or not record.members or not hands_nothing_over(record):
        return 0
    return 1 if find_unshared(record) else 2


def _leading(local: LeaderHostLocal) -> LeaderRecord | None:
    record = None if local.party is None else local.party.record
    return record if record is not None and record.status is LEADING else None


# -- obligations ----------------------------------------------------------------------------------------------------


def obligations(consumers: Iterable[Consumer], hosts: tuple[str, ...]) -> tuple[Eventually, ...]:
    """L4, L6, L9: open at a leader, or at all of them."""
    consumers = tuple(consumers)
    leads = tuple(View(host, 2, _serves) for host in hosts)
    looking = tuple(View(one.name, 2, _looks) for one in consumers)
    return (
        *(
            Eventually(
                f"L4 {host}", "streams are shared fairly, and none is left free", (View(host, 2, _unfair),), bool
            )
            for host in hosts
        ),
        Eventually(
            "L6",
            "somebody leads while borrowers look for a leader, or wait for its answer",
            (*leads, *looking),
            lambda *on: not any(on[: len(hosts)]) and any(on[len(hosts) :]),
        ),
        *(
            Eventually(
                f"L9 {one.name} {host}",
                "a member that is dead is gone",
                (View(one.name, one.lives + 1, _alive), View(host, 2 << one.lives, _members(one.name))),
                lambda alive, members: bool(members & ~(1 << alive)),
            )
            for one in consumers
            for host in hosts
        ),
    )


def _unfair(local: LeaderHostLocal) -> int:
    record = _leading(local)
    return int(record is not None and bool(find_unshared(record)))


def _serves(local: LeaderHostLocal) -> int:
    return int(local.party is not None and local.party.record.status in SERVING)


def _looks(local: ConsumerLocal) -> int:
    record = None if local.party is None else local.party.record
    return int(record is not None and bool(find_unconnected(record.id, record) or record.outstanding))


def _alive(local: ConsumerLocal) -> int:
    """The number of the borrower of the moment; 0: there is none."""
    return 0 if local.party is None else local.number


def _members(consumer: str) -> Callable[[LeaderHostLocal], int]:
    """The numbers of the consumer's borrowers that a leader keeps, as bits."""

    def view(local: LeaderHostLocal) -> int:
        record = None if local.party is None else local.party.record
        if record is None or record.status not in SERVING:
            return 0
        return sum(
            1 << number_of(borrower)
            for borrower, _ in in_order(record.members)
            if identity.node_of(borrower) == consumer
        )

    return view


def number_of(borrower: str) -> int:
    """The running number in an id."""
    return int(borrower.rpartition("/")[2])


# -- L8 -------------------------------------------------------------------------------------------------------------


def resets_bounded(consumers: Iterable[Consumer], faults: int) -> tuple[Always, Sometimes]:
    """L8: a borrower is replaced only where something went wrong, once for each time it did."""
    consumers = tuple(consumers)
    views = tuple(View(one.name, one.lives + 1, _resets) for one in consumers)
    text = f"no more borrowers end themselves than there are faults that end one: {faults}"
    return (
        Always("L8", text, views, lambda *each: not find_resets(sum(each), faults)),
        Sometimes("L8 resets", "a borrower ends itself", views, lambda *each: any(each)),
    )


def _resets(local: ConsumerLocal) -> int:
    return local.number - 1 + (local.mode is consumers_of.ENDED)
