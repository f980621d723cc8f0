"""What an owner makes of being taken over: the guards and actions of `yielding` in the table of `resume`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import CancelTimer, Effects, Event, Fsm, Map, Send, SetTimer, Tell, keys_in_order
from statemachines.persistent_sessions.delivery_record import DeliveryRecord
from statemachines.persistent_sessions.message import Live, Queued
from statemachines.persistent_sessions.request import EpochRows
from statemachines.persistent_sessions.resume_actions import stop
from statemachines.persistent_sessions.resume_record import Done, ResumeRecord, Yielded
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
    limit_rows,
)
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW

Place = tuple[str, int, Queued]
"""(writer, epoch, row)."""


# -- what it has ----------------------------------------------------------------------------------------------------


def list_in_delivery(delivery: DeliveryRecord) -> Iterable[Place]:
    """What belongs to a commit that is open, and may be refused, and what waits for the next."""
    waiting = (change.take for change in delivery.inbox if change.take is not None)
    for take in (*delivery.marks, *waiting):
        yield from ((take.writer, take.epoch, row) for row in take.rows)


def list_places(record: ResumeRecord) -> Iterable[Place]:
    """All that came to this owner and is, as far as it knows, in no committed state."""
    for one in record.pending:
        yield from ((one.writer, one.epoch, row) for row in one.rows)
    if record.delivery is not None:
        yield from list_in_delivery(record.delivery)
    for writer, rows in record.blocked_rows.items():
        yield from ((writer, row.epoch, row.queued) for row in rows)
    for flow in record.flows.values():
        yield from ((flow.writer, flow.epoch, row) for row in flow.buffer)


def gather_rows(found: Iterable[Place]) -> tuple[EpochRows, ...]:
    """In the order of their places, each number once."""
    epochs: dict[tuple[str, int], dict[int, Queued]] = {}
    for writer, epoch, row in found:
        epochs.setdefault((writer, epoch), {})[row.number] = row
    return tuple(
        EpochRows(writer, epoch, tuple(row for _, row in sorted(rows.items())))
        for (writer, epoch), rows in sorted(epochs.items())
    )


def count_held_rows(record: ResumeRecord) -> int:
    """How many rows it keeps while it yields, by their copies."""
    return sum(row.copies for one in record.pending for row in one.rows)


# -- guards ---------------------------------------------------------------------------------------------------------


def comes_after(record: ResumeRecord, event: BeginTakeover) -> bool:
    return event.client == record.client and event.token > record.token


def claims_anew(record: ResumeRecord, event: BeginTakeover) -> bool:
    """The last to come wins."""
    return comes_after(record, event) and event.token > record.claim


def has_claimed(record: ResumeRecord, event: BeginTakeover | EndTakeover) -> bool:
    return (event.client, event.token) == (record.client, record.claim)


def has_room(record: ResumeRecord, event: Live) -> bool:
    return count_held_rows(record) + event.queued.copies <= record.times.handover


# -- actions --------------------------------------------------------------------------------------------------------


def timers_back(fsm: Fsm[Any], status: Enum, key: str) -> Effects:
    """Those that a child has in this state are taken back: it is not kept."""
    return tuple(CancelTimer(timer.name, key) for timer in fsm.timers if status in timer.states)


def fall_silent(record: ResumeRecord) -> Done:
    """From now on nothing is changed, asked or sent; what is not committed is kept, to be handed over."""
    cancels: Effects = ()
    for writer in keys_in_order(record.flows):
        cancels = (*cancels, *timers_back(WRITER_FLOW, record.flows[writer].status, writer))
    if record.takeover is not None:
        cancels = (*cancels, *timers_back(TAKEOVER, record.takeover.status, record.takeover.old))
    kept = limit_rows(gather_rows(list_places(record)), record.times.handover)
    record = replace(record, pending=kept, flows=Map(), delivery=None, takeover=None, blocked_rows=Map(), reads=False)
    return record, (*cancels, Tell(Yielded(record.session)))


def yield_unasked(record: ResumeRecord, event: Event, now_ns: int) -> Done:
    """Somebody has the session under a higher token, and will ask."""
    return fall_silent(record)


def answer_begun(record: ResumeRecord, event: BeginTakeover, now_ns: int) -> Done:
    return record, (Send(event.to, TakeoverBegun(event.client, event.token)),)


def yield_session(record: ResumeRecord, event: BeginTakeover, now_ns: int) -> Done:
    record, effects = fall_silent(replace(record, claim=event.token))
    return record, (*effects, *answer_begun(record, event, now_ns)[1])


def yield_to_next(record: ResumeRecord, event: BeginTakeover, now_ns: int) -> Done:
    """The same answer; whoever asked before has lost, and this one has all of its time."""
    patience = SetTimer("orphan", now_ns + record.times.orphan_ms * MS)
    record = replace(record, claim=event.token)
    return record, (patience, *answer_begun(record, event, now_ns)[1])


def hold_live(record: ResumeRecord, event: Live, now_ns: int) -> Done:
    found = gather_rows((*list_places(record), (event.writer, event.epoch, event.queued)))
    return replace(record, pending=found), ()


def hand_over(record: ResumeRecord, event: EndTakeover, now_ns: int) -> Done:
    """Unsubscribe, give what there is, end."""
    found = record.pending
    record, (unsubscribe, told) = stop(record, "taken over")
    return record, (unsubscribe, Send(event.to, TakeoverEnded(event.client, event.token, found)), told)


def refuse(record: ResumeRecord, event: BeginTakeover | EndTakeover, now_ns: int) -> Done:
    return record, (Send(event.to, TakeoverRefused(event.client, event.token)),)


def stop_orphaned(record: ResumeRecord, event: Event, now_ns: int) -> Done:
    return stop(record, "orphaned")
