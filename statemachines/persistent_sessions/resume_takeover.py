"""What an event of a takeover makes of a Resume that takes the session over (`resume`, `takeover`)."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, Tell, node_of
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.in_flight import Resend
from statemachines.persistent_sessions.request import (
    DATABASE,
    RowsConfirmed,
    SessionLoaded,
    SubscribedLive,
    SubscribeLive,
)
from statemachines.persistent_sessions.resume_actions import (
    begin_flows,
    load,
    load_session,
    needs_no_writer,
    settle,
    step_delivery,
    step_flow,
    tell_resumed,
)
from statemachines.persistent_sessions.resume_record import Delegated, ResumeRecord
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.takeover_actions import is_ours
from statemachines.persistent_sessions.takeover_message import TakeoverBegun, TakeoverEnded, TakeoverRefused
from statemachines.persistent_sessions.takeover_record import (
    BEGUN,
    OVER,
    BeginTimeout,
    EndTimeout,
    FinishTakeover,
    HandedOver,
    SayAgain,
    StartTakeover,
    TakeoverRecord,
)
from statemachines.persistent_sessions.writer_flow_record import Handed

OfTakeover = TakeoverBegun | TakeoverEnded | TakeoverRefused | RowsConfirmed | SayAgain | BeginTimeout | EndTimeout


# -- the child ------------------------------------------------------------------------------------------------------


def step_takeover(record: ResumeRecord, event: Event, now_ns: int) -> Delegated:
    """One step of the takeover; what the database has confirmed goes to the writers that it is of."""
    assert record.takeover is not None
    after, effects, seen = TAKEOVER.child_step(record.takeover, event, now_ns)
    record = replace(record, takeover=None if after.status is OVER else after)
    out: Effects = ()
    steps: tuple[ChildStep, ...] = (seen,)
    for effect in effects:
        if isinstance(effect, Tell) and isinstance(effect.event, HandedOver):
            record, more, seen_more = hand_to_flows(record, effect.event, now_ns)
            out, steps = (*out, *more), (*steps, *seen_more)
        else:
            out = (*out, effect)
    return record, out, steps


def hand_to_flows(record: ResumeRecord, event: HandedOver, now_ns: int) -> Delegated:
    effects: Effects = ()
    steps: tuple[ChildStep, ...] = ()
    for writer in sorted({one.writer for one in event.found} & set(record.flows)):
        handed = Handed(tuple(one for one in event.found if one.writer == writer))
        record, more, seen = step_flow(record, record.flows[writer], handed, now_ns)
        effects, steps = (*effects, *more), (*steps, *seen)
    return record, effects, steps


def resend(record: ResumeRecord, now_ns: int) -> Delegated:
    """What is in flight goes out again."""
    assert record.delivery is not None
    return step_delivery(record, Resend(record.delivery.loaded_ns), now_ns)


# -- guards ---------------------------------------------------------------------------------------------------------


def is_live_elsewhere(record: ResumeRecord, event: SessionLoaded) -> bool:
    return record.old not in ("", record.id)


def is_taking(record: ResumeRecord, event: OfTakeover) -> bool:
    return record.takeover is not None


def is_answered(record: ResumeRecord, event: TakeoverBegun | TakeoverRefused) -> bool:
    """By the owner that is asked to begin."""
    return record.takeover is not None and is_ours(record.takeover, event)


def has_begun(record: ResumeRecord, event: SubscribedLive) -> bool:
    return record.takeover is not None and record.takeover.status is BEGUN


def has_no_writers(record: ResumeRecord, event: SubscribedLive) -> bool:
    return has_begun(record, event) and needs_no_writer(resend(record, 0)[0], event)


# -- actions --------------------------------------------------------------------------------------------------------


def start_takeover(record: ResumeRecord, event: SessionLoaded, now_ns: int) -> Delegated:
    """Loaded under our token; nothing is sent to the client until the owner of before says that it yields."""
    record = load_session(record, event)
    takeover = TakeoverRecord(
        record.session, record.client, record.id, record.token, record.old, record.times, left=record.left
    )
    return step_takeover(replace(record, takeover=takeover), StartTakeover(), now_ns)


def subscribe_over(record: ResumeRecord, event: TakeoverBegun, now_ns: int) -> Delegated:
    """Nothing is read before: what was pending is handed over, or comes from the database below the markers."""
    record, timers, seen = step_takeover(record, event, now_ns)
    return record, (*timers, Ask(DATABASE, SubscribeLive(record.session, record.id, record.token))), seen


def fall_back(record: ResumeRecord, event: TakeoverRefused | BeginTimeout, now_ns: int) -> Delegated:
    """There is nobody to take over from: it is loaded again, as if it were live nowhere, since somebody may have come
    after us while we waited.  The writer on a node that does not answer is not waited for either."""
    record, told, seen = step_takeover(record, event, now_ns)
    is_silent = not isinstance(event, TakeoverRefused) or event.is_gone
    silent = node_of(record.old) if is_silent and node_of(record.old) != node_of(record.id) else ""
    record, asked = load(replace(record, old="", session="", delivery=None, silent=silent), event, now_ns)
    return record, (*told, *asked), seen


def finish(record: ResumeRecord, now_ns: int) -> Delegated:
    """We are subscribed under our token, so nobody has come after us: what is in flight goes out, and the owner of
    before is asked for what it has; nobody waits for that."""
    record, effects, seen = resend(record, now_ns)
    record, asked, more = step_takeover(record, FinishTakeover(), now_ns)
    return record, (*effects, *asked), (*seen, *more)


def begin_flows_and_end(record: ResumeRecord, event: SubscribedLive, now_ns: int) -> Delegated:
    record, effects, seen = finish(record, now_ns)
    record, more, steps = begin_flows(record, event, now_ns)
    return record, (*effects, *more), (*seen, *steps)


def tell_resumed_and_end(record: ResumeRecord, event: SubscribedLive, now_ns: int) -> Delegated:
    record, effects, seen = finish(record, now_ns)
    record, told = tell_resumed(record, event, now_ns)
    return record, (*effects, *told), seen


def take_of_takeover(record: ResumeRecord, event: OfTakeover, now_ns: int) -> Delegated:
    return settle(record, step_takeover(record, event, now_ns), now_ns)
