"""Stale copies: a bug that a leader had: it judged what was held by what it had read before it kicked anybody."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import in_order
from statemachines.shared_subscriptions.leader_record import LEADING, LeaderRecord
from statemachines.shared_subscriptions.membership import Outcome
from statemachines.shared_subscriptions.plan import Draft, hand_out, reassign
from statemachines.shared_subscriptions.progress_cover import is_covered, measure
from statemachines.shared_subscriptions.stream_measure import believe, learn_sizes, refuse
from statemachines.shared_subscriptions.stream_store import Measured, rank_of


def judge_copies(record: LeaderRecord, event: Measured, now_ns: int) -> Outcome:
    """As `measuring.judge_held`, but that a kick for one stream is not seen by what follows of another."""
    draft = Draft(replace(record, measure_n=0), now_ns)
    live = record.live
    learn_sizes(draft, event)
    for stream, held in in_order(record.held):
        if held.n != event.n or stream not in draft.record.held:
            continue
        draft.record = replace(draft.record, held=draft.record.held.delete(stream))
        if rank_of(stream)[1] < event.oldest:
            continue
        judge = believe if is_covered(draft.record, stream, held.progress) else refuse
        judge(draft, stream, held)
    if draft.record.live != live:
        reassign(draft)
    elif draft.record.status is LEADING:
        hand_out(draft)
    measure(draft)
    return draft.finish()
