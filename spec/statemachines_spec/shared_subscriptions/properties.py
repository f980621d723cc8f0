"""Properties of shared subscriptions (S1 to S7 of its properties.md), over local states of the components.

Last words: what a leader says and keeps as it, or a member, goes (S5, S7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.borrower import UNSUBSCRIBING, BorrowerRecord
from statemachines.shared_subscriptions.group_store import SERVICE, Claim, Commit, FailingMessage
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.leader_record import CANDIDATE, SERVING, LeaderRecord
from statemachines.shared_subscriptions.message import UpdateProgress
from statemachines.shared_subscriptions.names import CLAIM, ROOT, record_name
from statemachines.shared_subscriptions.properties.committed_claim import CommittedClaim, check_unclaimed, find_claim
from statemachines.shared_subscriptions.properties.delivery_right import are_disjoint, holds_stream
from statemachines.shared_subscriptions.properties.granted_stream import GrantedStream
from statemachines.shared_subscriptions.properties.known_progress import KnownProgress
from statemachines.shared_subscriptions.properties.settled_group import (
    Broken,
    find_leaderless,
    find_taken_back,
    find_unconnected,
    find_unended,
    find_ungranted,
)
from statemachines.shared_subscriptions.properties.status_order import goes_back
from statemachines_spec.explorer.party import is_due
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, Stepwise, View
from statemachines_spec.shared_subscriptions import consumer, leader_host
from statemachines_spec.shared_subscriptions.consumer import ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.stores import StoreLocal

# -- views ----------------------------------------------------------------------------------------------------------


def may_deliver(streams: tuple[str, ...]) -> Callable[[ConsumerLocal], int]:
    """The streams that a consumer holds under a lease that has not ended, as bits."""

    def view(local: ConsumerLocal) -> int:
        if local.party is None or local.mode not in (*consumer.GOING_ON, consumer.PAUSED):
            return 0
        if is_due(local.party, "lease"):
            return 0
        record = local.party.record
        return sum(1 << number for number, stream in enumerate(streams) if holds_stream(record, stream))

    return view


def leads(local: LeaderHostLocal) -> int:
    """1 if the host has a leader that serves borrowers, by its own clock."""
    if local.party is None or local.mode is leader_host.LATE or is_due(local.party, "claim_end"):
        return 0
    return int(local.party.record.status in SERVING)


# -- over states ----------------------------------------------------------------------------------------------------


def exclusive(consumers: Iterable[str], streams: tuple[str, ...]) -> Always:
    """S5."""
    views = tuple(View(name, 1 << len(streams), may_deliver(streams)) for name in consumers)
    text = "no two consumers hold one stream under leases that have not ended"
    return Always("S5", text, views, lambda *masks: are_disjoint(masks))


def one_leader(hosts: tuple[str, ...]) -> Always:
    """L6's safe half: of two leaders at most one serves."""
    views = tuple(View(name, 2, leads) for name in hosts)
    return Always("one leader", "no two leaders serve the group at the same time", views, _is_one)


def sometimes_elected(hosts: tuple[str, ...]) -> tuple[Sometimes, ...]:
    """Against empty models: the first claim is served under, and a later one; two hosts try at the same time."""
    epochs, tries = (tuple(View(name, 3, view) for name in hosts) for view in (epoch_served, tries_for))
    return (
        Sometimes("a leader", "a host serves", epochs, lambda *served: any(served)),
        Sometimes("a later leader", "a host serves under a claim that another one held", epochs, lambda *on: 2 in on),
        Sometimes("a race", "two hosts try to commit a claim", tries, lambda *on: sum(map(bool, on)) > 1),
    )


def epoch_served(local: LeaderHostLocal) -> int:
    """0: serves nobody; 1: under the first claim of the group; 2: under a later one."""
    return min(2, local.party.record.epoch) if local.party is not None and leads(local) else 0


def tries_for(local: LeaderHostLocal) -> int:
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
            Eventually(f"L1 {name}", "connecting leads to connected", (View(name, 2, _is(_unconnected)),), bool)
            for name in consumers
        ),
        *(Eventually(f"L7 {name}", "unsubscribing ends", (View(name, 2, _is(_leaving)),), bool) for name in consumers),
        *(
            Eventually(f"L2 {name}", "granting leads to granted", (View(name, 2, _is(find_ungranted)),), bool)
            for name in hosts
        ),
        *(
            Eventually(f"L3 {name}", "revoking leads to none", (View(name, 2, _is(find_taken_back)),), bool)
            for name in hosts
        ),
    )


def _unconnected(record: BorrowerRecord) -> Broken:
    return find_unconnected(record.id, record)


def _leaving(record: BorrowerRecord) -> Broken:
    return find_unended(record.id, record.status is UNSUBSCRIBING, is_ended=False)


def _is_one(*on: int) -> bool:
    return not find_leaderless(["a leader"] * sum(on), is_needed=False)


def _is(open_at: Callable[[Any], Any]) -> Callable[[Any], int]:
    """Whether something is open at the machine of a component."""
    return lambda local: int(local.party is not None and bool(open_at(local.party.record)))


# -- over steps -----------------------------------------------------------------------------------------------------


def goes_forward(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S1: one borrower, one leader, one (stream, grant) on either side never comes back to a status it has left."""
    old, new = _party(before), _party(after)
    if old is None or new is None or old.id != new.id:
        return True
    if goes_back(old.status, new.status):
        return False
    name = "assignments" if isinstance(before, LeaderHostLocal) else "streams"
    if not isinstance(before, LeaderHostLocal | ConsumerLocal):
        return True
    earlier, later = getattr(old, name), getattr(new, name)
    return not any(
        stream in later and later[stream].grant == child.grant and goes_back(child.status, later[stream].status)
        for stream, child in in_order(earlier)
    )


def from_owner(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S4: progress that changes what a leader keeps comes from the current owner of the current grant."""
    if not isinstance(before, LeaderHostLocal) or not isinstance(event, UpdateProgress):
        return True
    old, new = _party(before), _party(after)
    if old is None or new is None or old.assignments == new.assignments:
        return True
    one = old.assignments.get(event.stream)
    granted = GrantedStream() if one is None else GrantedStream(one.grant, one.link)
    return not granted.check_owner(actor, event)


def by_holder(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S3: a batch that changes the store is of who holds the claim, or takes one that is free; it is free where it was
    watched for its TTL.  Who sends a batch is whom it names."""
    if not isinstance(before, StoreLocal) or not isinstance(event, Commit) or before.state == after.state:
        return True
    put = dict(event.put)
    key = find_claim(put)
    if not key:
        return not check_unclaimed(actor, event)
    found = {record_name(name).name: stored for name, stored in in_order(before.state)}
    root = found.get(ROOT)
    claim = CommittedClaim(found.get(CLAIM), root.value if root is not None and isinstance(root.value, int) else 0)
    named = put[key]
    party = named.leader if isinstance(named, Claim) and named.leader else claim.leader
    return not claim.observe(party, event, before.aged, 0)[1]


def durable_grows(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S7: durable progress never decreases, nor does the epoch of the claim."""
    if not isinstance(before, StoreLocal) or actor != GROUP_STORE:
        return True
    return not any(
        falls(key, level_of(stored.value), level_of(after.state[key].value))
        for key, stored in in_order(before.state)
        if isinstance(stored.value, int | Claim)
    )


def level_of(value: int | Claim) -> int:
    """What never falls of a record: a number, or an epoch."""
    return value if isinstance(value, int) else value.epoch


def falls(key: str, known: int, now: int) -> bool:
    """S7, of what is called `key`."""
    return any(one.name == "S7" for one in KnownProgress(known).observe(key, now, "durable")[1])


STEPWISE: tuple[Property, ...] = (
    Stepwise("S1", "no status is left and entered again", goes_forward),
    Stepwise("S3", "only the holder of the claim commits", by_holder),
    Stepwise("S4", "progress counts only from the current owner of the current grant", from_owner),
    Stepwise("S7", "durable progress and epochs never decrease", durable_grows),
)


def _party(local: Any) -> Any:
    party = getattr(local, "party", None)
    return None if party is None else party.record


def clean(consumers: Iterable[str], stream: str) -> Always:
    """S5: a claim that was given up as clean says that nobody holds a lease."""
    views = tuple(View(name, 2, may_deliver((stream,))) for name in consumers)
    text = "nobody may deliver under a claim that was given up as clean"
    return Always(
        "S5 clean", text, (View(SERVICE, 2, _is_clean), *views), lambda clean, *delivers: not (clean and any(delivers))
    )


def _is_clean(local: StoreLocal) -> int:
    claims = (stored.value for _, stored in in_order(local.state) if isinstance(stored.value, Claim))
    return int(any(claim.leader == "" and claim.clean for claim in claims))


def stages(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S7: progress that a serving leader comes to go by is staged in the same step, whoever said it: the next leader
    would grant from less."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or old.id != new.id:
        return True
    for stream, known in in_order(new.streams):
        earlier, staged = old.streams.get(stream), new.staged.get(stream) or 0
        staged = staged.progress if isinstance(staged, FailingMessage) else staged
        if earlier is not None and earlier.progress < known.progress > staged:
            return False
    return True


STAGES = Stepwise("S7 staged", "progress that a leader goes by is about to be durable", stages)


def _serving(local: Any) -> LeaderRecord | None:
    if not isinstance(local, LeaderHostLocal) or local.party is None:
        return None
    record: LeaderRecord = local.party.record
    return record if record.status in SERVING else None
