"""Properties of shared subscriptions (S1 to S7 of its properties.md), over local states of the components."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from statemachines.kernel import Status, in_order, life_of
from statemachines.shared_subscriptions.assignment import AssignmentStatus
from statemachines.shared_subscriptions.borrower import CONNECTED, CONNECTING, UNSUBSCRIBING, BorrowerStatus
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import Claim, Commit
from statemachines.shared_subscriptions.leader_record import CANDIDATE, FOLLOWER, SERVING, LeaderStatus
from statemachines.shared_subscriptions.message import UpdateProgress
from statemachines.shared_subscriptions.names import CLAIM, record_name
from statemachines.shared_subscriptions.stream import ABSENT, GRANTED, REVOKING
from statemachines_spec.explorer.party import is_due
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions import consumer, leader_host
from statemachines_spec.shared_subscriptions.consumer import ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import HostLocal
from statemachines_spec.shared_subscriptions.stores import StoreLocal, holder

# -- views ----------------------------------------------------------------------------------------------------------


def may_deliver(streams: tuple[str, ...]) -> Callable[[ConsumerLocal], int]:
    """The streams that a consumer holds under a lease that has not ended, as bits."""

    def view(local: ConsumerLocal) -> int:
        if local.party is None or local.mode not in (*consumer.GOING_ON, consumer.PAUSED):
            return 0
        record = local.party.record
        if record.status is not CONNECTED or not record.leased or is_due(local.party, "lease"):
            return 0
        return sum(
            1 << number
            for number, stream in enumerate(streams)
            if stream in record.streams and record.streams[stream].status is not ABSENT
        )

    return view


def leads(local: HostLocal) -> int:
    """1 if the host has a leader that serves borrowers, by its own clock."""
    if local.party is None or local.mode is leader_host.LATE or is_due(local.party, "claim_end"):
        return 0
    return int(local.party.record.status in SERVING)


# -- over states ----------------------------------------------------------------------------------------------------


def exclusive(consumers: Iterable[str], streams: tuple[str, ...]) -> Always:
    """S5."""
    views = tuple(View(name, 1 << len(streams), may_deliver(streams)) for name in consumers)

    def holds(*masks: int) -> bool:
        together = 0
        for mask in masks:
            if mask & together:
                return False
            together |= mask
        return True

    return Always("S5", "no two consumers hold one stream under leases that have not ended", views, holds)


def one_leader(hosts: tuple[str, ...]) -> Always:
    """L6's safe half: of two leaders at most one serves."""
    views = tuple(View(name, 2, leads) for name in hosts)
    return Always("one leader", "no two leaders serve the group at the same time", views, lambda *on: sum(on) <= 1)


def sometimes_elected(hosts: tuple[str, ...]) -> tuple[Sometimes, ...]:
    """Against empty models: the first claim is served under, and a later one; two hosts try at the same time."""
    epochs, tries = (tuple(View(name, 3, view) for name in hosts) for view in (epoch_served, tries_for))
    return (
        Sometimes("a leader", "a host serves", epochs, lambda *served: any(served)),
        Sometimes("a later leader", "a host serves under a claim that another one held", epochs, lambda *on: 2 in on),
        Sometimes("a race", "two hosts try to commit a claim", tries, lambda *on: sum(map(bool, on)) > 1),
    )


def epoch_served(local: HostLocal) -> int:
    """0: serves nobody; 1: under the first claim of the group; 2: under a later one."""
    return min(2, local.party.record.epoch) if local.party is not None and leads(local) else 0


def tries_for(local: HostLocal) -> int:
    """1 if a claim of the host is on its way."""
    record = None if local.party is None else local.party.record
    return int(record is not None and record.status is CANDIDATE and record.trial is not None)


def sometimes_served(consumers: tuple[str, ...], streams: tuple[str, ...]) -> tuple[Sometimes, ...]:
    """Against empty models: everybody gets a stream, and two have one at the same time."""
    size = 1 << len(streams)
    each = tuple(
        Sometimes(f"{name} delivers", "holds a stream under a lease", (View(name, size, may_deliver(streams)),), bool)
        for name in consumers
    )
    if len(streams) < 2 or len(consumers) < 2:
        return each
    views = tuple(View(name, size, may_deliver(streams)) for name in consumers[:2])
    both = Sometimes("both deliver", "two consumers hold a stream each", views, lambda a, b: bool(a and b))
    return (*each, both)


# -- obligations ----------------------------------------------------------------------------------------------------


def make_elected(hosts: tuple[str, ...]) -> Eventually:
    """L6."""
    views = tuple(View(name, 2, leads) for name in hosts)
    return Eventually("L6", "where nobody leads, somebody does at last", views, lambda *on: not any(on))


def obligations(consumers: Iterable[str], hosts: Iterable[str]) -> tuple[Eventually, ...]:
    """L1, L2, L3, L7: what is open at one component, and is met once faults stop."""
    return (
        *(
            Eventually(f"L1 {name}", "connecting leads to connected", (View(name, 2, _is(CONNECTING)),), bool)
            for name in consumers
        ),
        *(
            Eventually(f"L7 {name}", "unsubscribing ends", (View(name, 2, _is(UNSUBSCRIBING)),), bool)
            for name in consumers
        ),
        *(
            Eventually(f"L2 {name}", "granting leads to granted", (View(name, 2, _has(ASSIGNED_GRANTING)),), bool)
            for name in hosts
        ),
        *(
            Eventually(f"L3 {name}", "revoking leads to none", (View(name, 2, _has(TAKING_BACK)),), bool)
            for name in hosts
        ),
    )


ASSIGNED_GRANTING, TAKING_BACK = ("granting",), ("revoking", "revoked")


def _is(status: BorrowerStatus) -> Callable[[ConsumerLocal], int]:
    return lambda local: int(local.party is not None and local.party.record.status is status)


def _has(statuses: tuple[str, ...]) -> Callable[[HostLocal], int]:
    """Whether some assignment of the leader is in one of these statuses."""

    def view(local: HostLocal) -> int:
        if local.party is None:
            return 0
        return int(any(one.status.value in statuses for _, one in in_order(local.party.record.assignments)))

    return view


# -- over steps -----------------------------------------------------------------------------------------------------

_RANK: dict[Status, int] = {
    **{status: number for number, status in enumerate(BorrowerStatus)},
    **{status: number for number, status in enumerate(LeaderStatus)},
    **{status: number for number, status in enumerate(AssignmentStatus)},
    FOLLOWER: 0,  # a follower is a candidate again, once the claim is free
    ABSENT: 3,
    GRANTED: 1,
    REVOKING: 2,
}


def goes_forward(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S1: one borrower, one leader, one (stream, grant) on either side never comes back to a status it has left."""
    old, new = _party(before), _party(after)
    if old is None or new is None or old.id != new.id:
        return True
    if _RANK[new.status] < _RANK[old.status]:
        return False
    if isinstance(before, HostLocal):
        return all(
            _RANK[new.assignments[stream].status] >= _RANK[assignment.status]
            for stream, assignment in in_order(old.assignments)
            if stream in new.assignments and new.assignments[stream].grant == assignment.grant
        )
    if not isinstance(before, ConsumerLocal):
        return True
    for stream, child in in_order(old.streams):
        later = new.streams.get(stream)
        if later is not None and later.grant == child.grant and _RANK[later.status] < _RANK[child.status]:
            return False
    return True


def from_owner(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S4: progress that changes what a leader keeps comes from the current owner of the current grant."""
    if not isinstance(before, HostLocal) or not isinstance(event, UpdateProgress):
        return True
    old, new = _party(before), _party(after)
    if old is None or new is None or old.assignments == new.assignments:
        return True
    assignment = old.assignments.get(event.stream)
    return (
        assignment is not None
        and assignment.grant == event.grant
        and assignment.link.borrower == event.borrower
        and assignment.link.epoch == event.epoch
        and assignment.link.registration == event.registration
    )


def by_holder(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S3: a batch that changes the store takes a claim that was watched for its TTL or is of the same life, or comes
    from who holds it."""
    if not isinstance(before, StoreLocal) or not isinstance(event, Commit) or before.state == after.state:
        return True
    held, now = holder(before), next((value for key, value in event.put if record_name(key).name == CLAIM), None)
    if held is None or before.aged:
        return True
    if isinstance(now, Claim) and now.leader and life_of(now.leader) == life_of(held.leader):
        return now.epoch == held.epoch + (now.leader != held.leader)
    return getattr(now, "epoch", 0) == held.epoch and getattr(now, "leader", "") in (held.leader, "")


def durable_grows(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S7: durable progress never decreases, nor does the epoch of the claim."""
    if not isinstance(before, StoreLocal) or actor != GROUP_STORE:
        return True
    for key, stored in in_order(before.state):
        value = stored.value
        if isinstance(value, int) and after.state[key].value < value:
            return False
        if isinstance(value, Claim) and after.state[key].value.epoch < value.epoch:
            return False
    return True


STEPWISE: tuple[Property, ...] = (
    Stepwise("S1", "no status is left and entered again", goes_forward),
    Stepwise("S3", "only the holder of the claim commits", by_holder),
    Stepwise("S4", "progress counts only from the current owner of the current grant", from_owner),
    Stepwise("S7", "durable progress and epochs never decrease", durable_grows),
)


def _party(local: Any) -> Any:
    party = getattr(local, "party", None)
    return None if party is None else party.record


__all__ = [
    "STEPWISE",
    "exclusive",
    "obligations",
    "one_leader",
    "sometimes_served",
]
