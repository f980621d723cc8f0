"""Leader progress: no leader waits for nothing: for all that it is still to do a timer is set, or an answer is to come.

Each is the half of a liveness property that needs no waiting.  Where a store does not even fail, an answer is to come
for ever; so these say nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.assignment import GRANTING, REVOKED, REVOKING
from statemachines.shared_subscriptions.leader_record import (
    CANDIDATE,
    CLAIMED,
    FOLLOWER,
    HOLDING,
    LOADING,
    LOOKING,
    RELEASING,
    SERVING,
    LeaderRecord,
)
from statemachines.shared_subscriptions.properties.delivery_right import assigns_in_grace
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.shared_subscriptions import leader_steps, stray_messages
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal

Waits = Callable[[LeaderRecord, set[tuple[str, str]], bool], bool]
"""(record, the timers that are set, whether an answer is to come) -> it waits for nothing that will not come."""


def promises(hosts: Iterable[str]) -> tuple[Property, ...]:
    """All of these, of all leaders."""
    hosts = tuple(hosts)
    return (*waits_for_something(hosts), *is_graced(hosts), *leader_steps.STEPWISE, *stray_messages.of_leaders(hosts))


def waits_for_something(hosts: Iterable[str]) -> tuple[Property, ...]:
    """Of all leaders, one property for each kind of thing that is to be done."""
    hosts = tuple(hosts)

    def views(waits: Waits) -> tuple[View, ...]:
        return tuple(View(host, 2, _holds(waits)) for host in hosts)

    return tuple(Always(f"{name} waits", text, views(waits), lambda *each: all(each)) for name, text, waits in PROMISES)


def is_graced(hosts: Iterable[str]) -> tuple[Property, ...]:
    """S5: nothing is assigned as long as the leader counts on leases from before; and sometimes somebody waits."""
    views = tuple(View(host, 3, _graced) for host in hosts)
    text = "while a lease from before may hold, nobody is assigned anything"
    return (Always("S5 grace", text, views, lambda *each: 2 not in each),)


def waits_in_grace(hosts: Iterable[str]) -> Sometimes:
    """Against a model without a grace: somebody is a member, and is given nothing yet."""
    views = tuple(View(host, 3, _graced) for host in hosts)
    return Sometimes("S5 graced", "a member waits for the leases of before", views, lambda *each: 1 in each)


def _graced(local: LeaderHostLocal) -> int:
    """0: no lease from before is waited for, or nobody is there; 1: somebody waits; 2: and has been assigned
    something."""
    record = None if local.party is None else local.party.record
    if record is None or not record.grace or record.status not in SERVING:
        return 0
    return 2 if assigns_in_grace(record) else int(bool(record.members))


def _holds(waits: Waits) -> Callable[[LeaderHostLocal], int]:
    def view(local: LeaderHostLocal) -> int:
        if local.party is None:
            return 1
        return int(waits(local.party.record, set(local.party.timers), local.awaited > 0))

    return view


def _has_end(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    return record.status not in HOLDING or ("claim_end", "") in timers


def _gets_claim(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """Who looks for the claim, or loads what stands under it, looks again or hears of it."""
    return record.status not in (CANDIDATE, FOLLOWER, LOADING) or answered or ("retry", "") in timers


def _keeps_claim(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """Who has it renews it; what became of a batch is found out."""
    if record.status not in CLAIMED:
        return True
    return ("heartbeat", "") in timers and (record.trial is None or answered or ("recheck", "") in timers)


def _ends_grace(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    return record.status not in CLAIMED or not record.grace or ("grace", "") in timers


def _looks(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    return record.status not in SERVING or answered or ("renew", "") in timers


def _commits(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """What is staged, or held, goes on; what was committed before is behind the next batch."""
    if record.status not in SERVING:
        return True
    staged = not record.staged or record.trial is not None or ("commit", "") in timers
    unasked = any(held.borrower and not held.n for _, held in in_order(record.held))
    judged = not record.measure_n or answered
    return staged and judged and (not unasked or answered or ("measure", "") in timers)


def _repeats(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """What somebody is to answer is said again; who is to give back has a time for it."""
    return record.status not in SERVING or all(
        (one.status not in (GRANTING, REVOKING, REVOKED) or ("resend", stream) in timers)
        and (one.status not in (REVOKING, REVOKED) or ("revoke_timeout", stream) in timers)
        for stream, one in in_order(record.assignments)
    )


def _releases(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """Who gives its claim up has asked for it, or asks when the batch under way is answered."""
    if record.status is not RELEASING:
        return True
    return answered or (record.trial is not None and not record.trial.release)


def _ends(record: LeaderRecord, timers: set[tuple[str, str]], answered: bool) -> bool:
    """A follower goes, and a leader that hears no member."""
    unneeded = record.status is FOLLOWER or (record.status in SERVING and not leader_steps.is_heard(record))
    return not unneeded or ("idle", "") in timers


PROMISES: tuple[tuple[str, str, Waits], ...] = (
    ("S3", "who holds a claim has its end by the own clock before it", _has_end),
    ("L6", "who looks for the claim, or loads, asks again or is answered", _gets_claim),
    ("L6 renewal", "who has the claim renews it, and finds out what became of a batch", _keeps_claim),
    ("L2 grace", "leases from before are waited for until a time that is set", _ends_grace),
    ("L2", "a leader looks for new streams again and again", _looks),
    ("L5", "what is staged, and what is held, is not forgotten", _commits),
    ("L3", "what somebody is to answer is said again, and the wait for what is to be given back ends", _repeats),
    ("L6 release", "who gives its claim up has asked for it, or is about to", _releases),
    ("L6 idle", "whom nobody needs does not lead, or follow, for ever", _ends),
)
"""Name, text, and what it comes to.  The names are those of the properties whose safe halves these are."""

assert set(LOOKING) < {CANDIDATE, FOLLOWER, LOADING}
