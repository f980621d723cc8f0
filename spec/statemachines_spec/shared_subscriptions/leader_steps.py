"""LeaderSteps: what single steps of a leader keep: what its members say counts, and what is over changes nothing."""

from __future__ import annotations

from typing import Any, Final

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.assignment import REVOKED
from statemachines.shared_subscriptions.claim import Halt, agrees, is_declared
from statemachines.shared_subscriptions.group_store import ReadDone, Refused
from statemachines.shared_subscriptions.leader import IdleTimer
from statemachines.shared_subscriptions.leader_record import (
    CANDIDATE,
    CLAIMED,
    FOLLOWER,
    HOLDING,
    LOOKING,
    RELEASING,
    SERVING,
    LeaderRecord,
)
from statemachines.shared_subscriptions.member import LAPSED, REGISTERED, ExpiryTimer
from statemachines.shared_subscriptions.message import END_OF_STREAM, Disconnect, UpdateProgress
from statemachines.shared_subscriptions.stream_store import Measured
from statemachines_spec.explorer.property import Stepwise
from statemachines_spec.shared_subscriptions.leader_stores import Echo
from statemachines_spec.shared_subscriptions.step_properties import leader_of


def _serving(local: Any) -> LeaderRecord | None:
    record = leader_of(local)
    return record if record is not None and record.status in SERVING else None


def is_heard(record: LeaderRecord) -> bool:
    """The leader has answered a ping of a member that it has."""
    return any(one.answered for _, one in in_order(record.members))


def _keeps(record: LeaderRecord, stream: str, progress: int) -> bool:
    """The leader goes by so much of the stream, or knows it no more."""
    known, assignment = record.streams.get(stream), record.assignments.get(stream)
    return known is None or max(known.progress, 0 if assignment is None else assignment.progress) >= progress


def _is_stored(record: LeaderRecord, stream: str, progress: int) -> bool:
    """As far as the leader knows, the stream has so many messages."""
    return stream in record.streams and progress <= record.streams[stream].count


def last_word_counts(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S11: who has said its last word is no member any more, and what it said counts."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, Disconnect) or event.epoch != old.epoch:
        return True
    member = old.members.get(event.borrower)
    counts = member is None or all(
        _keeps(new, one.stream, one.progress)
        for one in event.reports
        if member.grants.get(one.grant) == one.stream and _is_stored(old, one.stream, one.progress)
    )
    return counts and event.borrower not in new.members


def progress_counts(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S10: what the owner of a stream has read, and is known to be stored, its leader goes by."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, UpdateProgress):
        return True
    one, member = old.assignments.get(event.stream), old.members.get(event.borrower)
    owns = one is not None and (one.grant, one.link.borrower) == (event.grant, event.borrower)
    registered = member is not None and member.link.registration == event.registration and event.epoch == old.epoch
    if not (owns and registered and _is_stored(old, event.stream, event.progress)):
        return True
    return _keeps(new, event.stream, event.progress)


def is_stored_believed(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L8: nobody is given up for what the store bears out."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, Measured):
        return True
    counts = {size.stream: size.count for size in event.sizes}
    asked = [(stream, held) for stream, held in in_order(old.held) if held.n == event.n]
    if any(held.progress > counts.get(stream, 0) for stream, held in asked):
        return True
    stay = {held.borrower for _, held in asked if held.borrower in old.members}
    stay = {one for one in stay if old.members[one].status is REGISTERED}
    return all(one in new.members and new.members[one].status is REGISTERED for one in stay) and all(
        _keeps(new, stream, held.progress) for stream, held in asked
    )


def is_needed_staying(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L8: a leader that has a member that it has heard does not end for being idle, nor is it asked again and again
    whether it is."""
    old, new = _serving(before), _serving(after)
    if old is None or not is_heard(old) or not isinstance(event, IdleTimer):
        return True
    return new is not None and ("idle", "") not in after.party.timers


def echo_changes_nothing(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S3: an answer to another request than those that were asked last, each of its kind, changes nothing."""
    if not isinstance(event, Echo) or getattr(before, "party", None) is None:
        return True
    return event.answer.n in _asked_last(before.party.record) or before == after


def own_claim_is_kept(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L6: who reads that the claim is still its own, and the root what it left or wrote, goes on."""
    old, new = leader_of(before), leader_of(after)
    if old is None or old.status not in CLAIMED or old.trial is None or not isinstance(event, ReadDone):
        return True
    if event.n != old.trial.check_n or old.claim is None:
        return True
    claim, root = (None if stored is None else stored.value for stored in event.records)
    left = None if old.root is None else old.root.value
    ours = claim == old.claim.value and root in (left, old.trial.root)
    return not ours or (new is not None and new.status in CLAIMED)


def is_lost_claim_left(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S3: who is refused since the claim is not its own any more does nothing else."""
    old = leader_of(before)
    if old is None or old.status not in HOLDING or old.trial is None or not isinstance(event, Refused):
        return True
    return event.n != old.trial.n or event.key != old.key("claim") or leader_of(after) is None


def is_halted_ending(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L6: a leader that its host stops is gone, or gives its claim up."""
    new = leader_of(after)
    return not isinstance(event, Halt) or new is None or new.status is RELEASING


def candidate_takes(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S1: a follower is a candidate again only to take the claim."""
    old, new = leader_of(before), leader_of(after)
    if old is None or new is None or old.status is not FOLLOWER or new.status is not CANDIDATE:
        return True
    return new.trial is not None


def other_times_are_refused(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S18: who reads that a group is not declared, or lives by other times, does not lead it."""
    old, new = leader_of(before), leader_of(after)
    if old is None or old.status not in LOOKING or not isinstance(event, ReadDone) or event.n != old.load_n:
        return True
    declared = is_declared(event.records[1]) and agrees(old.configuration, event.records[1])
    return declared or new is None


def lease_is_waited_for_if_any(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L9: a member that is given up, and had no ping answered, or no stream, is gone at once."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None:
        return True
    return not any(
        member.status is REGISTERED
        and not (member.answered and member.grants)
        and (new.members[name].status is LAPSED or (isinstance(event, ExpiryTimer) and event.key == name))
        for name, member in in_order(old.members)
        if name in new.members
    )


def is_ended_revoked(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L3: a stream that its owner has read to its end, as the store says too, is taken back."""
    old, new = _serving(before), _serving(after)
    if old is None or new is None or not isinstance(event, UpdateProgress) or event.progress != END_OF_STREAM:
        return True
    one, member = old.assignments.get(event.stream), old.members.get(event.borrower)
    owns = one is not None and (one.grant, one.link.borrower) == (event.grant, event.borrower)
    registered = member is not None and member.link.registration == event.registration and event.epoch == old.epoch
    if not (owns and registered and event.stream in old.streams and old.streams[event.stream].ended):
        return True
    left = new.assignments.get(event.stream)
    return left is None or left.status is REVOKED


def _asked_last(record: Any) -> tuple[int, ...]:
    if not isinstance(record, LeaderRecord):
        return (record.n,)
    trial = () if record.trial is None else (record.trial.n, record.trial.check_n)
    return (record.load_n, record.list_n, record.measure_n, *trial)


STEPWISE: Final = (
    Stepwise("S11 last word", "who has said its last word is no member any more, and that counts", last_word_counts),
    Stepwise("S10 counts", "what the owner of a stream has read its leader goes by", progress_counts),
    Stepwise("L8 believed", "nobody is given up for what the store bears out", is_stored_believed),
    Stepwise("L8 needed", "a leader that hears a member does not end for being idle", is_needed_staying),
    Stepwise("L6 own", "who reads that the claim is still its own goes on", own_claim_is_kept),
    Stepwise("S3 lost", "who is refused since the claim is not its own ends at once", is_lost_claim_left),
    Stepwise("L6 halted", "a leader that its host stops is gone, or gives its claim up", is_halted_ending),
    Stepwise("S1 candidate", "a follower is a candidate again only to take the claim", candidate_takes),
    Stepwise("S18 refuses", "a group that is not declared so is not led by who reads that", other_times_are_refused),
    Stepwise("L9 at once", "who has no lease, or no stream, is gone as soon as it is given up",
             lease_is_waited_for_if_any),
    Stepwise("L3 ended", "a stream that was read to its end is taken back", is_ended_revoked),
)  # fmt: skip
ECHO: Final = Stepwise("S3 again", "an answer to a request that was given up changes nothing", echo_changes_nothing)
