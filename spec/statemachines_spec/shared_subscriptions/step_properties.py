"""Promises: what single steps and single records of shared subscriptions keep, so that most mistakes show at once.

Each is the half of a property that needs no waiting: where L4 says that members are balanced at last, a leader with
nothing left to do is balanced now; where L6 says that somebody leads at last, nobody who has the claim is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from statemachines.kernel import SetTimer, in_order
from statemachines.shared_subscriptions.borrower import UNSUBSCRIBING
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import Claim, Commit, record_key
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import LEADING, SERVING, LeaderRecord
from statemachines.shared_subscriptions.message import Disconnect, LeaderWanted, Ping, RevokeFinished, UpdateProgress
from statemachines.shared_subscriptions.names import CLAIM, record_name
from statemachines.shared_subscriptions.properties.settled_group import (
    find_begun_again,
    find_unbalanced,
    hands_nothing_over,
)
from statemachines.shared_subscriptions.session_record import reading_key
from statemachines.shared_subscriptions.stream import ABSENT, REVOKING, StreamLink
from statemachines_spec.explorer.property import Always, Stepwise, View
from statemachines_spec.shared_subscriptions import consumer
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP, ConsumerLocal
from statemachines_spec.shared_subscriptions.leader_host import LeaderHostLocal
from statemachines_spec.shared_subscriptions.properties import falls
from statemachines_spec.shared_subscriptions.session_consumer import SessionLocal
from statemachines_spec.shared_subscriptions.stores import StoreLocal, holder

# -- over steps -----------------------------------------------------------------------------------------------------


def progress_kept(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S7: of one grant, and of one stream, a leader never keeps less than it did."""
    old, new = leader_of(before), leader_of(after)
    if old is None or new is None or old.id != new.id:
        return True
    for stream, assignment in in_order(old.assignments):
        later = new.assignments.get(stream, assignment)
        if later.grant == assignment.grant and falls(stream, assignment.progress, later.progress):
            return False
    return not any(
        stream in new.streams and falls(stream, known.progress, new.streams[stream].progress)
        for stream, known in in_order(old.streams)
    )


def is_balanced_at_rest(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L4: with nothing being granted or taken back, and nobody's lease waited for, the numbers of streams differ by at
    most one."""
    record = leader_of(after)
    if record is None or record.status is not LEADING or not hands_nothing_over(record):
        return True
    return not find_unbalanced(record)


def holder_renews(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L6: a batch of who has the claim, under the epoch of that claim, is not refused."""
    if not isinstance(before, StoreLocal) or actor != GROUP_STORE or not isinstance(event, Commit):
        return True
    held = holder(before)
    put = next((value for key, value in event.put if record_name(key).name == CLAIM), None)
    if held is None or not isinstance(put, Claim) or before.state != after.state:
        return True
    expected = next((stored for key, stored in event.expect if record_name(key).name == CLAIM), None)
    ours = expected is not None and isinstance(expected.value, Claim) and expected.value.leader == held.leader
    return not (ours and put.epoch == held.epoch)


def session_finishes(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L3: what a borrower is to give back, its session finishes: without that the final progress never comes."""
    if not isinstance(after, SessionLocal) or after.party is None or after.session is None:
        return True
    record, readings = after.party.record, after.session.record.readings
    for stream, child in in_order(record.streams):
        reading = readings.get(reading_key(record.id, stream))
        if child.status is REVOKING and reading is not None and reading.grant == child.grant and not reading.finishing:
            return False
    return True


def ends_for_good(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L7: no other borrower begins where the client has unsubscribed."""
    if not isinstance(before, ConsumerLocal) or before.party is None:
        return True
    return not find_begun_again(actor, before.party.record.status is UNSUBSCRIBING, after.number != before.number)


def own_expiry(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L9: what one borrower says puts off the expiry of no other: who is dead is gone in time."""
    record = leader_of(before)
    if record is None or not isinstance(event, LeaderWanted | Ping | UpdateProgress | RevokeFinished | Disconnect):
        return True
    return all(
        effect.key == event.borrower
        for effect in LEADER.step(record, event, 0).effects
        if isinstance(effect, SetTimer) and effect.timer == "expiry"
    )


STEPWISE: tuple[Stepwise, ...] = (
    Stepwise("S7 kept", "the progress that a leader keeps never decreases", progress_kept),
    Stepwise("L3 finishing", "a session finishes what its borrower is to give back", session_finishes),
    Stepwise("L4 at rest", "a leader with nothing left to do is balanced", is_balanced_at_rest),
    Stepwise("L6 renewal", "who has the claim can renew it", holder_renews),
    Stepwise("L7 for good", "who unsubscribed does not begin again", ends_for_good),
    Stepwise("L9 own expiry", "nobody's expiry is put off by what others say", own_expiry),
)


# -- over states ----------------------------------------------------------------------------------------------------

PROGRESS = 6
"""Progress is viewed up to 4; what is more is 5, the end of a stream among it."""
GRANTS = 8
REGISTRATIONS = 3
EPOCHS = 3
"""What lies beyond these is not viewed."""


def make_confirmed(consumers: Iterable[str], hosts: Iterable[str], stream: str) -> tuple[Always, ...]:
    """S10: once a borrower has nothing left to report, its leader knows at least the progress that it knows."""
    size = (EPOCHS * REGISTRATIONS + 1) * GRANTS * PROGRESS
    return tuple(
        Always(
            f"S10 {name} {host}",
            f"what {name} has reported of {stream}, and had answered, {host} knows",
            (View(name, size, _reported(stream)), View(host, size, _view_known(name, stream))),
            _agree,
        )
        for name in consumers
        for host in hosts
    )


def _reported(stream: str) -> Callable[[ConsumerLocal], int]:
    def view(local: ConsumerLocal) -> int:
        if local.party is None or local.mode not in consumer.GOING_ON:
            return 0
        record = local.party.record
        child = record.streams.get(stream)
        if record.link is None or record.outstanding or record.changed or record.carried:
            return 0
        if child is None or child.status is ABSENT:
            return 0
        return _coded(record.link, child.grant, child.progress)

    return view


def _view_known(name: str, stream: str) -> Callable[[LeaderHostLocal], int]:
    def view(local: LeaderHostLocal) -> int:
        record = leader_of(local)
        assignment = None if record is None else record.assignments.get(stream)
        if assignment is None or assignment.link.borrower.partition("~")[0] != name:
            return 0
        return _coded(assignment.link, assignment.grant, assignment.progress)

    return view


def _coded(link: StreamLink, grant: int, progress: int) -> int:
    """(who, grant, progress) as one number from 1 on; 0: beyond what is viewed."""
    if link.epoch > EPOCHS or link.registration > REGISTRATIONS or grant >= GRANTS:
        return 0
    who = (link.epoch - 1) * REGISTRATIONS + link.registration
    return (who * GRANTS + grant) * PROGRESS + min(progress, PROGRESS - 1)


def _agree(said: int, known: int) -> bool:
    """Of one grant: the leader's progress is not behind."""
    return not said or not known or said // PROGRESS != known // PROGRESS or known >= said


def begins_behind_nothing(hosts: Iterable[str], stream: str) -> tuple[Always, ...]:
    """S7: who leads under the claim that stands knows at least the progress that is durable."""
    size = (EPOCHS + 1) * PROGRESS
    return tuple(
        Always(
            f"S7 loaded {host}",
            f"{host} knows the durable progress of {stream}",
            (View(host, size, _leads_from(stream)), View(GROUP_STORE, size, _durable(stream))),
            _is_not_behind,
        )
        for host in hosts
    )


def _leads_from(stream: str) -> Callable[[LeaderHostLocal], int]:
    def view(local: LeaderHostLocal) -> int:
        record = leader_of(local)
        if record is None or record.status not in SERVING or record.epoch > EPOCHS or stream not in record.streams:
            return 0
        assignment = record.assignments.get(stream)
        reported = 0 if assignment is None else assignment.progress
        progress = max(record.streams[stream].progress, reported)
        return record.epoch * PROGRESS + min(progress, PROGRESS - 1)

    return view


def _durable(stream: str) -> Callable[[StoreLocal], int]:
    key = record_key(GROUP, FILTER, f"progress:{stream}")

    def view(local: StoreLocal) -> int:
        claim, stored = holder(local), local.state.get(key)
        if claim is None or claim.epoch > EPOCHS or stored is None:
            return 0
        return claim.epoch * PROGRESS + min(int(stored.value), PROGRESS - 1)

    return view


def _is_not_behind(known: int, durable: int) -> bool:
    return known // PROGRESS != durable // PROGRESS or known >= durable


def leader_of(local: Any) -> LeaderRecord | None:
    """The record of the leader of a host; None for every other component."""
    if not isinstance(local, LeaderHostLocal) or local.party is None:
        return None
    record: LeaderRecord = local.party.record
    return record
