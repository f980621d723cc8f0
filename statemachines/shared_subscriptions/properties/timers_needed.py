"""TimersNeeded: L10, timers are few; and the safe halves of S11, L9 and L11: what is waited for has a timer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from statemachines.kernel import BrokenProperty, in_order
from statemachines.shared_subscriptions.assignment import GRANTING, REVOKED, REVOKING
from statemachines.shared_subscriptions.leader_record import SERVING, LeaderRecord
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED

Timers = Collection[tuple[str, str]]
"""The name and key of each timer that is set."""

TIMERS_OF_OTHERS: Final = 5
"""So many a machine has that is neither a leader nor a borrower."""

OF_BORROWER: Final = frozenset({"find_leader", "ping_timeout", "ping", "lease", "unsubscribe"})
OF_LEADER: Final = frozenset(
    {"retry", "claim_end", "heartbeat", "grace", "renew", "commit", "recheck", "measure", "idle"}
)
MEMBERS: Final = {REGISTERED: "expiry", LAPSED: "hand_over"}
ASSIGNMENTS: Final = {
    "resend": (GRANTING, REVOKING, REVOKED),
    "grant_timeout": (GRANTING,),
    "revoke_timeout": (REVOKING, REVOKED),
}


def is_borrower_timer(name: str, key: str) -> bool:
    """A borrower may have it."""
    return name in OF_BORROWER and not key


def is_leader_timer(record: LeaderRecord, name: str, key: str) -> bool:
    """A leader may have it: for a member, or for an assignment that waits for an answer; besides them it has a fixed
    few."""
    if name in MEMBERS.values():
        member = record.members.get(key)
        return member is not None and MEMBERS.get(member.status) == name
    if name in ASSIGNMENTS:
        assignment = record.assignments.get(key)
        return assignment is not None and assignment.status in ASSIGNMENTS[name]
    return name in OF_LEADER and not key


def check_timers(machine: str, record: Any, timers: Timers) -> tuple[BrokenProperty, ...]:
    """A machine, which says its name by its record, has no timer that it does not need."""
    if machine == "borrower":
        unneeded = [one for one in timers if not is_borrower_timer(*one)]
    elif machine == "leader":
        unneeded = [one for one in timers if not is_leader_timer(record, *one)]
    else:
        unneeded = sorted(timers)[TIMERS_OF_OTHERS:]
    if not unneeded:
        return ()
    return (BrokenProperty("L10", f"{record.id} has {len(timers)} timers set, and does not need {unneeded[0]}"),)


def keeps_until_deadlines(record: LeaderRecord, timers: Timers) -> bool:
    """S11, and the safe half of L9: a registered borrower has its expiry, a lapsed one the end of its lease, and nobody
    else is assigned anything."""
    if record.status not in SERVING:
        return True
    kept = all((MEMBERS.get(member.status, ""), borrower) in timers for borrower, member in in_order(record.members))
    return kept and all(is_registered(record, one.link) for _, one in in_order(record.assignments))


def is_registered(record: LeaderRecord, said: Any) -> bool:
    """What names a borrower and its numbers names one that is registered under these."""
    member = record.members.get(said.borrower)
    if member is None or member.status is not REGISTERED:
        return False
    return (member.link.epoch, member.link.registration) == (said.epoch, said.registration)


def answers_have_deadlines(record: LeaderRecord, timers: Timers) -> bool:
    """L11: a stream that is being granted has its grant timeout, or an answer that the store is asked about."""
    if record.status not in SERVING:
        return True
    return all(
        ("grant_timeout", stream) in timers or (stream in record.held and record.held[stream].grant == one.grant)
        for stream, one in in_order(record.assignments)
        if one.status is GRANTING
    )
