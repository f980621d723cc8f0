"""LeaderSteps: what single steps of a leader keep: what its members say counts, and what is over changes nothing."""

from __future__ import annotations

from typing import Any, Final

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.leader import IdleTimer
from statemachines.shared_subscriptions.leader_record import SERVING, LeaderRecord
from statemachines.shared_subscriptions.member import REGISTERED
from statemachines.shared_subscriptions.message import Disconnect, UpdateProgress
from statemachines.shared_subscriptions.stream_store import Measured
from statemachines_spec.explorer.property import Stepwise
from statemachines_spec.shared_subscriptions.leader_stores import Echo
from statemachines_spec.shared_subscriptions.step_properties import leader_of


def _serving(local: Any) -> LeaderRecord | None:
    record = leader_of(local)
    return record if record is not None and record.status in SERVING else None


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


def stored_is_believed(actor: str, before: Any, event: Any, after: Any) -> bool:
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


def needed_stays(actor: str, before: Any, event: Any, after: Any) -> bool:
    """L8: a leader that has members does not end for being idle, nor is it asked again and again whether it is."""
    old, new = _serving(before), _serving(after)
    if old is None or not old.members or not isinstance(event, IdleTimer):
        return True
    return new is not None and ("idle", "") not in after.party.timers


def echo_changes_nothing(actor: str, before: Any, event: Any, after: Any) -> bool:
    """S3: an answer to another request than those that were asked last, each of its kind, changes nothing."""
    if not isinstance(event, Echo) or getattr(before, "party", None) is None:
        return True
    return event.answer.n in _asked_last(before.party.record) or before == after


def _asked_last(record: Any) -> tuple[int, ...]:
    if not isinstance(record, LeaderRecord):
        return (record.n,)
    trial = () if record.trial is None else (record.trial.n, record.trial.check_n)
    return (record.load_n, record.list_n, record.measure_n, *trial)


STEPWISE: Final = (
    Stepwise("S11 last word", "who has said its last word is no member any more, and that counts", last_word_counts),
    Stepwise("S10 counts", "what the owner of a stream has read its leader goes by", progress_counts),
    Stepwise("L8 believed", "nobody is given up for what the store bears out", stored_is_believed),
    Stepwise("L8 needed", "a leader with members does not end for being idle", needed_stays),
)
ECHO: Final = Stepwise("S3 again", "an answer to a request that was given up changes nothing", echo_changes_nothing)
