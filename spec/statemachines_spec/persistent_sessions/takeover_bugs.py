"""Bugs of a takeover: mistakes that can be planted in either side of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import STAY, Ask, Send
from statemachines.kernel.row import Delegate
from statemachines.persistent_sessions import (
    resume,
    resume_actions,
    takeover_actions,
    writer_flow_actions,
    yield_actions,
)
from statemachines.persistent_sessions.in_flight import Resend
from statemachines.persistent_sessions.message import Publish
from statemachines.persistent_sessions.request import DATABASE, ReadPending, RowsConfirmed
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.resume_record import (
    READING,
    TAKING,
    YIELDING,
    OrphanTimeout,
)
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.takeover_message import BeginTakeover, TakeoverRefused
from statemachines.persistent_sessions.takeover_record import ENDING, OVER, FinishTakeover
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW
from statemachines.persistent_sessions.writer_flow_record import Handed
from statemachines_spec.bug import Bug, change_rows, combine, replace_call
from statemachines_spec.persistent_sessions.clients import on


def stay(record: Any, event: Any, now_ns: int) -> Any:
    return record, ()


def believe(record: Any, event: Any, now_ns: int) -> Any:
    """What is handed over is taken as it is."""
    return takeover_actions.hand_on(record, RowsConfirmed(event.found), now_ns)


start_takeover, finish = resume.start_takeover, resume.finish
hand_over = yield_actions.hand_over
step_delivery, step_takeover = resume_actions.step_delivery, resume.step_takeover


def send_at_once(record: Any, event: Any, now_ns: int) -> Any:
    """What is in flight goes out while the owner of before is still asked."""
    record, effects, seen = start_takeover(record, event, now_ns)
    record, more, steps = step_delivery(record, Resend(), now_ns)
    return record, (*effects, *more), (*seen, *steps)


def fall_back_as_loaded(record: Any, event: Any, now_ns: int) -> Any:
    """It goes on with what was loaded before it waited."""
    record, told, seen = step_takeover(record, event, now_ns)
    record, effects, steps = step_delivery(record, Resend(), now_ns)
    return record, (*told, *effects, Ask(DATABASE, ReadPending(record.session))), (*seen, *steps)


def send_nothing_again(record: Any, now_ns: int) -> Any:
    return step_takeover(record, FinishTakeover(), now_ns)


def send_again_alone(record: Any, now_ns: int) -> Any:
    return step_delivery(record, Resend(), now_ns)


def take_at_begin(record: Any, event: Any, now_ns: int) -> Any:
    """What is in flight goes out when the owner of before has begun, and not when the subscription is answered."""
    record, effects, seen = subscribe_over(record, event, now_ns)
    record, more, steps = step_delivery(record, Resend(), now_ns)
    return record, (*effects, *more), (*seen, *steps)


subscribe_over = resume.subscribe_over


def take_handed(rows: Any) -> Any:
    """Another choice of what is handed over: `rows(record, event)` of the epoch."""

    def changed(record: Any, event: Any, now_ns: int) -> Any:
        found = tuple(rows(record, event))
        last = found[-1].number if found else record.taken
        return replace(record, taken=last), writer_flow_actions.take(record, found, record.epoch)

    return changed


def of_the_epoch(record: Any, event: Any) -> Any:
    return (row for one in event.found if one.epoch == record.epoch for row in one.rows)


def beyond_the_marker(record: Any, event: Any) -> Any:
    return writer_flow_actions.select_contiguous(of_the_epoch(record, event), record.taken)


def over_holes(record: Any, event: Any) -> Any:
    below = (row for row in of_the_epoch(record, event) if not record.k or row.number < record.k)
    return (row for row in below if row.number > record.taken)


def of_any_epoch(record: Any, event: Any) -> Any:
    rows = (row for one in event.found for row in one.rows if not record.k or row.number < record.k)
    return writer_flow_actions.select_contiguous(rows, record.taken)


def take_and_forget(record: Any, event: Any, now_ns: int) -> Any:
    """It is sent, and not counted."""
    after, effects = shipped_take_handed(record, event, now_ns)
    return replace(after, taken=record.taken), effects


def count_and_drop(record: Any, event: Any, now_ns: int) -> Any:
    return shipped_take_handed(record, event, now_ns)[0], ()


shipped_take_handed = writer_flow_actions.take_handed


def drain_to_client(record: Any, event: Any, now_ns: int) -> Any:
    """What it kept goes to the client, too."""
    sent = (Publish(0, row.message, row.filter, 0, False) for one in record.pending for row in one.rows)
    after, effects = hand_over(record, event, now_ns)
    return after, (*(Send(record.client, one) for one in sent), *effects)


def hand_to_any(record: Any, event: Any, now_ns: int) -> Any:
    """Every flow gets all of it."""
    done: Any = (record, (), ())
    for writer in sorted(record.flows):
        flow = done[0].flows[writer]
        after, effects, steps = resume_actions.step_flow(done[0], flow, Handed(event.found), now_ns)
        done = after, (*done[1], *effects), (*done[2], *steps)
    return done


R, T, F = RESUME, TAKEOVER, WRITER_FLOW

BUGS = (
    Bug("handed-over-and-believed", "what is handed over is taken without a look into the database", "PS-175",
        "the question", change_rows(T, "confirm", to=OVER, do=believe)),
    Bug("sent-before-begun", "the new owner sends before the one before has yielded", "PS-170", "the wait",
        change_rows(R, "start_takeover", do=Delegate(send_at_once))),
    Bug("sent-when-begun", "what is in flight is sent again before the subscription is answered", "PS-174",
        "the token", combine(change_rows(R, "subscribe_over", do=Delegate(take_at_begin)),
                          replace_call(resume, "finish", send_nothing_again))),
    Bug("old-goes-on", "the owner of before answers, and goes on", "PS-180", "the yielding",
        change_rows(R, "yield_session", to=STAY, do=yield_actions.answer_begun)),
    Bug("drained-to-the-client", "the owner of before sends what it kept when it ends", "PS-184", "the silence",
        change_rows(R, "hand_over", do=drain_to_client)),
    Bug("orphan-stays", "an owner that yields stays until somebody comes", "PS-185", "the timer",
        on(R, OrphanTimeout, YIELDING, to=STAY, do=stay)),
    Bug("refusal-waited-out", "an owner that refuses to begin is waited for", "PS-173", "the refusal",
        on(R, TakeoverRefused, TAKING, to=STAY, do=stay)),
    Bug("refusal-at-end-waited-out", "an owner that is gone when it is to end is waited for", "PS-178", "the refusal",
        on(T, TakeoverRefused, ENDING, to=STAY, do=stay)),
    Bug("fallback-as-loaded", "a resume that falls back goes on with what it had loaded before it waited", "PS-173",
        "the second load", change_rows(R, "fall_back", to=READING, do=Delegate(fall_back_as_loaded))),
    Bug("end-not-asked", "the owner of before is not asked to end", "PS-174", "the end",
        replace_call(resume, "finish", send_again_alone)),
    Bug("nothing-sent-again", "what is in flight is not sent again after a takeover", "PS-174", "the resend",
        replace_call(resume, "finish", send_nothing_again)),
    Bug("second-claim-ignored", "an owner that yields does not answer who comes after the first", "PS-183",
        "the answer", on(R, BeginTakeover, YIELDING, to=STAY, do=stay)),
    Bug("handed-beyond-the-marker", "what is handed over is taken from the marker on, too", "PS-177", "the marker",
        change_rows(F, "take_handed", do=take_handed(beyond_the_marker))),
    Bug("handed-over-holes", "a hole in what is handed over is stepped over", "PS-177", "the hole",
        change_rows(F, "take_handed", do=take_handed(over_holes))),
    Bug("handed-of-any-epoch", "what is handed over of another epoch is taken for this one", "PS-177", "the epoch",
        change_rows(F, "take_handed", do=take_handed(of_any_epoch))),
    Bug("handed-and-not-counted", "what is handed over is taken, and up to where is not kept", "PS-177", "the number",
        change_rows(F, "take_handed", do=take_and_forget)),
    Bug("handed-to-any-writer", "what is handed over of one writer goes to the flow of another", "PS-176",
        "the writer", replace_call(resume, "hand_to_flows", hand_to_any)),
    Bug("handed-and-dropped", "what is handed over counts as taken, and is not", "PS-177", "the rows",
        change_rows(F, "take_handed", do=count_and_drop)),
)  # fmt: skip
"""Each with a sentence of its own."""
