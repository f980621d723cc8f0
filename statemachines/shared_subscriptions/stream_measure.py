"""Stream measure: what a Leader does when the store has said how far streams go.

Held progress that is covered counts as if it had just come; the rest is refused, said, and its member kicked.
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Effects, SetTimer, Tell, in_order, keys_in_order
from statemachines.shared_subscriptions.acknowledged_ranges import find_reach
from statemachines.shared_subscriptions.configuration import MS
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord, UncoveredProgress
from statemachines.shared_subscriptions.member import REGISTERED, Kick
from statemachines.shared_subscriptions.membership import HEARD, Outcome, is_of_owner, make_held, step_out, step_owned
from statemachines.shared_subscriptions.message import Report, UpdateProgress
from statemachines.shared_subscriptions.plan import Draft, hand_out, reassign
from statemachines.shared_subscriptions.progress_cover import (
    MeasureTimer,
    ProgressRefused,
    hold,
    is_covered,
    measure,
)
from statemachines.shared_subscriptions.stream import make_update
from statemachines.shared_subscriptions.stream_store import FetchFailed, Measured, rank_of

# -- guards ---------------------------------------------------------------------------------------------------------


def is_beyond(record: LeaderRecord, event: UpdateProgress) -> bool:
    """From its owner, and further than what is known to be stored."""
    reach = find_reach(event.progress, event.acked)
    return is_of_owner(record, event) and not is_covered(record, event.stream, reach)


def is_measure(record: LeaderRecord, event: Measured | FetchFailed) -> bool:
    return event.n == record.measure_n


# -- actions --------------------------------------------------------------------------------------------------------


def hold_progress(record: LeaderRecord, event: UpdateProgress, now_ns: int) -> Outcome:
    """It shows that its borrower lives; what it says is not believed yet."""
    draft = Draft(record, now_ns)
    draft.step_member(event.borrower, HEARD)
    hold(draft, event.stream, make_held(event.borrower, event))
    return draft.finish()


def judge_held(record: LeaderRecord, event: Measured, now_ns: int) -> Outcome:
    """What was asked about is believed or refused; what was held meanwhile is asked about now."""
    draft = Draft(replace(record, measure_n=0), now_ns)
    live = record.live
    learn_sizes(draft, event)
    for stream in keys_in_order(record.held):
        held = draft.record.held.get(stream)  # as it is now: its owner may have been kicked for another stream
        if held is None or held.n != event.n:
            continue
        draft.record = replace(draft.record, held=draft.record.held.delete(stream))
        if rank_of(stream)[1] < event.oldest:
            continue  # dropped: the next listing takes the stream back
        if is_covered(draft.record, stream, find_reach(held.progress, held.acked)):
            believe(draft, stream, held)
        else:
            refuse(draft, stream, held)
    if draft.record.live != live:
        reassign(draft)
    elif draft.record.status is LEADING:
        hand_out(draft)
    measure(draft)
    return draft.finish()


def learn_sizes(draft: Draft, event: Measured) -> None:
    """Streams only grow."""
    streams = draft.record.streams
    for size in event.sizes:
        known = streams.get(size.stream)
        if known is not None:
            count, ended = max(known.count, size.count), known.ended or size.ended
            streams = streams.set(size.stream, replace(known, count=count, ended=ended))
    draft.record = replace(draft.record, streams=streams)


def believe(draft: Draft, stream: str, held: UncoveredProgress) -> None:
    """It counts, for its owner as if it had just come; if its owner is gone, as its last word."""
    record = draft.record
    assignment = record.assignments.get(stream)
    if assignment is not None and assignment.grant == held.grant:
        link, at = assignment.link, (stream, held.grant, held.progress, held.finished)
        said = Report(*at, held.failed, held.in_hand, held.acked, held.reason)
        step_owned(draft, make_update(link.borrower, link.epoch, link.registration, said))
        return
    draft.learn_progress(stream, held.progress, held.acked)
    if held.free:
        draft.release(stream)


def refuse(draft: Draft, stream: str, held: UncoveredProgress) -> None:
    """Nothing of it counts, and whoever said it is not believed any more."""
    record = draft.record
    count = record.streams[stream].count  # of a stream that was dropped nothing is refused
    refused = ProgressRefused(record.id, held.borrower, stream, held.grant, held.progress, count)
    draft.effects.append(Tell(refused))
    if held.free:
        draft.release(stream)
    member = record.members.get(held.borrower)
    if member is not None and member.status is REGISTERED:
        step_out(draft, held.borrower, Kick())


def measure_later(record: LeaderRecord, event: FetchFailed, now_ns: int) -> tuple[LeaderRecord, Effects]:
    """It stays held."""
    held = record.held.mutate()
    for stream, one in in_order(record.held):
        if one.n == event.n:
            held[stream] = replace(one, n=0)
    again = SetTimer("measure", now_ns + record.configuration.commit_interval_ms * MS)
    return replace(record, held=held.finish(), measure_n=0), (again,)


def measure_again(record: LeaderRecord, event: MeasureTimer, now_ns: int) -> Outcome:
    draft = Draft(record, now_ns)
    measure(draft)
    return draft.finish()
