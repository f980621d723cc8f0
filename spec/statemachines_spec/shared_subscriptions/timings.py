"""Timings: the times of shared subscriptions in systems with a tick: few ticks long, with every relation kept.

A tick is 4 ms and clocks err by a quarter, so that what is reckoned comes out in whole ticks: a lease lasts 3 ticks,
and has surely ended after 5 of another clock; a claim of 5 ticks ends after 3 of its owner's.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.shared_subscriptions.borrower import BorrowerRecord
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.leader_record import LOOKING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines_spec.explorer.timing import Move, Stamp, Timing

TICK_NS = 4 * MS

TIMES = Configuration(
    find_leader_ms=4,
    ping_interval_ms=4,
    ping_timeout_ms=8,
    validity_ms=24,
    max_delay_ms=1,
    clock_drift=0.25,
    unsubscribe_timeout_ms=8,
    resend_interval_ms=4,
    renew_streams_ms=4,
    revoke_timeout_ms=12,
    claim_ttl_ms=20,
    claim_heartbeat_ms=8,
    commit_interval_ms=4,
    idle_stop_ms=12,
    count_deliveries=False,
)


def of_borrower(ours: Configuration, timers: tuple[str, ...], slack: int = 0) -> Timing:
    """Of a consumer with these timed timers.  The sending time of a ping is read when it is answered.  `slack`: ticks
    by which mistaken machines may reckon further than they should."""

    def ping_at(record: BorrowerRecord, live: Move, dead: Move) -> Any:
        move = live if record.outstanding and "lease" in timers else dead
        return replace(record, ping_at_ns=move(record.ping_at_ns))

    return Timing(TICK_NS, timers, (Stamp("ping_at_ns", ours.lease_ms * MS + slack * TICK_NS, ping_at),))


def of_leader(ours: Configuration, timers: tuple[str, ...], slack: int = 0) -> Timing:
    """Of a leader host with these timed timers.  When the last ping was answered is read when a member lapses, when a
    commit was sent once it is known to have happened, when a claim was found by who looks at it.  `slack`: as of a
    borrower."""

    def answered_at(record: LeaderRecord, live: Move, dead: Move) -> Any:
        members = record.members
        for borrower, one in members.items():
            read = one.answered and one.status is REGISTERED and "hand_over" in timers
            moved = (live if read else dead)(one.answered_at_ns)
            if moved != one.answered_at_ns:
                members = members.set(borrower, replace(one, answered_at_ns=moved))
        return replace(record, members=members)

    def sent_at(record: LeaderRecord, live: Move, dead: Move) -> Any:
        trial = record.trial
        if trial is None:
            return record
        read = not trial.release and ("claim_end" in timers or "heartbeat" in timers)
        return replace(record, trial=replace(trial, sent_at_ns=(live if read else dead)(trial.sent_at_ns)))

    def found_at(record: LeaderRecord, live: Move, dead: Move) -> Any:
        read = record.found is not None and record.status in LOOKING
        return replace(record, found_at_ns=(live if read else dead)(record.found_at_ns))

    claim_ns = max(ours.claim_by_own_clock_ns(), ours.claim_heartbeat_ms * MS)
    stamps = (
        Stamp("answered_at_ns", ours.lease_by_other_clock_ns() + slack * TICK_NS, answered_at),
        Stamp("sent_at_ns", claim_ns + slack * TICK_NS, sent_at),
        Stamp("found_at_ns", ours.claim_ttl_ms * MS, found_at),
    )
    return Timing(TICK_NS, timers, stamps)
