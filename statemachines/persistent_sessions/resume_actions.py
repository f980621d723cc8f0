"""What an event makes of a Resume: the guards and actions of its table (`resume`).

What an owner makes of being taken over: the guards and actions of `yielding` in the table of `resume`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Ask, CancelTimer, Effects, Event, Fsm, Map, Send, SetTimer, Tell, keys_in_order
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.delivery import DELIVERY, READY, DeliveryRecord
from statemachines.persistent_sessions.in_flight import Resend
from statemachines.persistent_sessions.message import Live, LiveMarker, Puback, Pubcomp, Pubrec, Queued
from statemachines.persistent_sessions.request import (
    DATABASE,
    EpochRows,
    FencedRows,
    LoadSession,
    PendingRead,
    Polled,
    Position,
    ReadPending,
    SessionLoaded,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
    UnsubscribeLive,
)
from statemachines.persistent_sessions.resume_record import (
    CatchUpDue,
    Delegated,
    Discarded,
    Done,
    Lull,
    Resumed,
    ResumeEnded,
    ResumeRecord,
    Yielded,
    add_take,
    may_pass,
    needs_read,
    release_rows,
)
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.takeover_record import (
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
    limit_rows,
)
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer_flow import (
    BEHIND,
    DONE,
    FINALIZING,
    STARVED,
    SYNCING,
    WRITER_FLOW,
    AskAgain,
    Begin,
    BlockRows,
    CatchUp,
    LinkLost,
    MarkerTimeout,
    PollDue,
    Room,
    Settled,
    Starve,
    Take,
    WriterDown,
    WriterFlowRecord,
    WriterUp,
    is_full,
    is_next,
    next_live,
    select_contiguous,
    with_read,
    with_rows,
)

KEEPING = (BEHIND, SYNCING, FINALIZING)
OfWriter = Live | LiveMarker | Polled | FencedRows | WriterUp | WriterDown | LinkLost
FlowTimer = AskAgain | PollDue | MarkerTimeout


# -- children -------------------------------------------------------------------------------------------------------


def step_delivery(record: ResumeRecord, event: Event, now_ns: int) -> Delegated:
    assert record.delivery is not None
    after, effects, seen = DELIVERY.child_step(record.delivery, event, now_ns)
    return replace(record, delivery=after), effects, (seen,)


def step_flow(record: ResumeRecord, flow: WriterFlowRecord, event: Event, now_ns: int) -> Delegated:
    """One step of a writer; what it takes goes into the session state at once, or waits for what is older."""
    after, effects, seen = WRITER_FLOW.child_step(flow, event, now_ns)
    record = replace(record, flows=record.flows.set(after.writer, after))
    out: Effects = ()
    steps: tuple[ChildStep, ...] = (seen,)
    for effect in effects:
        if not isinstance(effect, Tell):
            out = (*out, effect)
        elif isinstance(effect.event, Take) and not may_pass(record, effect.event, event):
            record, more, seen_more = block_take(add_take(record, effect.event, event), effect.event, now_ns)
            out, steps = (*out, *more), (*steps, *seen_more)
        else:
            record, more, seen_more = step_delivery(record, effect.event, now_ns)
            out, steps = (*out, *more), (*steps, *seen_more)
    return pass_blocked(record, out, steps, now_ns) if record.blocked_rows else (record, out, steps)


def block_take(record: ResumeRecord, event: Take, now_ns: int) -> Delegated:
    """The session state hears of rows that it gets later."""
    return step_delivery(record, BlockRows(event.writer, event.epoch, event.rows), now_ns)


def pass_blocked(record: ResumeRecord, out: Effects, steps: tuple[ChildStep, ...], now_ns: int) -> Delegated:
    """Rows that nothing blocks any more go into the session state; for the others all writers are read, where there is
    room."""
    record, takes = release_rows(record)
    for take in takes:
        record, more, seen = step_delivery(record, take, now_ns)
        out, steps = (*out, *more), (*steps, *seen)
    if not record.reads and not is_crowded(record) and needs_read(record):
        record, out = replace(record, reads=True), (*out, read_all(record))
    return record, out, steps


def read_all(record: ResumeRecord) -> Ask:
    return Ask(DATABASE, ReadPending(record.session, rows=record.times.page))


def settle(before: ResumeRecord, done: Delegated, now_ns: int) -> Delegated:
    """Once all that was taken is committed, writers that have waited for it send what they kept; and whoever waits for
    room reads on when there is some.  Where there begins to be some, but less than a page, it is looked at later."""
    record, effects, steps = done
    if record.blocked_rows:
        record, effects, steps = pass_blocked(record, effects, steps, now_ns)
    settled = [writer for writer in keys_in_order(record.flows) if record.flows[writer].status is FINALIZING]
    for writer in (*settled, *keys_in_order(record.flows)):  # what settles may release rows of one that waits for room
        flow = record.flows[writer]
        event: Event | None = None
        if flow.status is FINALIZING and is_committed(record):
            event = cut_at(flow, next_live(flow)) if is_crowded_for(record, flow) else Settled()
        elif is_starved(record, flow) and has_room_for_page(record):
            event = Room(record.times.page)
        if event is not None:
            record, more, seen = step_flow(record, flow, event, now_ns)
            effects, steps = (*effects, *more), (*steps, *seen)
    if waits_with_room(record) and not waits_with_room(before):
        effects = (*effects, SetTimer("lull", now_ns + record.times.lull_ms * MS))
    return record, effects, steps


def new_flow(record: ResumeRecord, writer: str) -> WriterFlowRecord:
    """The writer as the session state knows it."""
    assert record.delivery is not None
    epoch, number = record.delivery.state.taken.get(writer, (1, 0))
    return WriterFlowRecord(
        record.session, writer, record.id, record.token, record.times, epoch=epoch, taken=number
    )  # fmt: skip


def add_flow(record: ResumeRecord, writer: str, now_ns: int) -> Delegated:
    """A writer that nothing was known of: it is synchronised like the others."""
    return step_flow(record, new_flow(record, writer), Begin(), now_ns)


def take_prefix(record: ResumeRecord, writer: str) -> ResumeRecord:
    """With what was read of the writer before the session subscribed, as far as it has no hole."""
    flow = new_flow(record, writer)
    if is_crowded(record):
        return replace(record, flows=record.flows.set(writer, flow))
    pending = tuple(one for one in record.pending if one.writer == writer)
    rows = select_contiguous((row for one in pending if one.epoch == flow.epoch for row in one.rows), flow.taken)
    flow = with_read(with_rows(flow, rows), pending, record.complete_ns)
    record = replace(record, flows=record.flows.set(writer, flow))
    return add_take(record, Take(writer, flow.epoch, rows), None) if rows else record


# -- a client that cannot keep up -----------------------------------------------------------------------------------


def cut_at(flow: WriterFlowRecord, number: int) -> Starve:
    """What the writer has stored below this number is read when there is room."""
    return Starve(flow.epoch, number)


def what_starves(record: ResumeRecord, flow: WriterFlowRecord, event: OfWriter) -> Starve | None:
    """What the flow hears before `event`, if that brings something that there is no room for."""
    if isinstance(event, Live):
        if flow.status is DONE:
            return cut_at(flow, event.number) if is_next(flow, event) and is_crowded_for(record, flow) else None
        is_kept = flow.status in KEEPING and (event.epoch, event.number) == (flow.epoch, next_live(flow))
        return cut_at(flow, event.number) if is_kept and is_full(flow) else None
    if isinstance(event, Polled) and flow.status is SYNCING and is_crowded_for(record, flow):
        return cut_at(flow, next_live(flow))
    return None


def as_far_as_there_is_room(record: ResumeRecord, event: OfWriter) -> OfWriter:
    """A fence is raised; its rows are read when there is room."""
    if isinstance(event, FencedRows) and event.found and is_crowded_for(record, record.flows[event.writer]):
        return replace(event, found=(), more=True, complete_ns=0)
    return event


# -- guards ---------------------------------------------------------------------------------------------------------


def is_crowded(record: ResumeRecord) -> bool:
    """As many messages wait for the client, or for a commit, as may."""
    delivery = record.delivery
    return delivery is not None and len(delivery.state.queued) + len(delivery.inbox) >= record.times.queue


def is_crowded_for(record: ResumeRecord, flow: WriterFlowRecord) -> bool:
    """The same, or as many rows of this writer wait for older ones of others."""
    return is_crowded(record) or len(record.blocked_rows.get(flow.writer, ())) >= record.times.queue


def is_starved(record: ResumeRecord, flow: WriterFlowRecord) -> bool:
    """Nothing but room is waited for, and nothing of this writer waits for others."""
    return flow.status in STARVED and flow.writer not in record.blocked_rows


def is_committed(record: ResumeRecord) -> bool:
    return record.delivery is not None and record.delivery.status is READY


def room_for(record: ResumeRecord) -> int:
    """So many rows the client receives beside what is in flight; none while something waits to be sent."""
    delivery = record.delivery
    if delivery is None or delivery.inbox or delivery.state.queued:
        return 0
    return max(0, delivery.receive_maximum - len(delivery.state.packets))


def has_room_for_page(record: ResumeRecord) -> bool:
    """Nothing waits to be sent, and the client receives a page more than what is in flight."""
    return room_for(record) >= record.times.page


def waits_with_room(record: ResumeRecord) -> bool:
    """A writer waits for room for a page, and there is room for less."""
    if not 0 < room_for(record) < record.times.page or not is_committed(record):
        return False
    return any(is_starved(record, flow) for flow in record.flows.values())


def is_synchronised(record: ResumeRecord) -> bool:
    """All writers are done, or wait for the client alone, and all that was taken is committed, or waits for those."""
    ready = (DONE, *STARVED)
    if not is_committed(record) or any(flow.status not in ready for flow in record.flows.values()):
        return False
    return not record.blocked_rows or any(is_starved(record, flow) for flow in record.flows.values())


def needs_no_writer(record: ResumeRecord, event: SubscribedLive) -> bool:
    return not event.writers and not event.gone and is_committed(record)


def is_known(record: ResumeRecord, event: OfWriter) -> bool:
    return event.writer in record.flows


def is_of_a_flow(record: ResumeRecord, event: FlowTimer) -> bool:
    return event.key in record.flows


def ends_with_commit(record: ResumeRecord, event: StateCommitted) -> bool:
    return is_synchronised(take_commit(record, event, 0)[0])


def ends_with_writer(record: ResumeRecord, event: Polled | FencedRows) -> bool:
    return is_known(record, event) and is_synchronised(take_of_writer(record, event, 0)[0])


def ends_with_catch_up(record: ResumeRecord, event: PendingRead) -> bool:
    return record.reads and is_synchronised(catch_up(record, event, 0)[0])


def is_reading(record: ResumeRecord, event: Event) -> bool:
    return record.reads


# -- actions --------------------------------------------------------------------------------------------------------


def load(record: ResumeRecord, event: Event, now_ns: int) -> Done:
    return record, (Ask(DATABASE, LoadSession(record.client, record.id, record.token)),)


def load_session(record: ResumeRecord, event: SessionLoaded) -> ResumeRecord:
    most = record.times.receive_maximum
    delivery = DeliveryRecord(
        event.session, record.client, record.token, most, event.state, loaded_ns=event.time_ns
    )  # fmt: skip
    return replace(record, session=event.session, delivery=delivery)


def restore(record: ResumeRecord, event: SessionLoaded, now_ns: int) -> Delegated:
    """What is in flight goes out first, under its old packet ids."""
    record, effects, seen = step_delivery(load_session(record, event), Resend(event.time_ns), now_ns)
    return record, (*effects, read_all(record)), seen


def subscribe(record: ResumeRecord, event: PendingRead, now_ns: int) -> Done:
    request = SubscribeLive(record.session, record.id, record.token)
    record = replace(record, pending=event.found, complete_ns=event.complete_ns)
    return record, (Ask(DATABASE, request),)


def begin_flows(record: ResumeRecord, event: SubscribedLive, now_ns: int) -> Delegated:
    """What is pending first; then a marker of each writer, and those that are dead, or on a silent node, are fenced."""
    effects: Effects = ()
    steps: tuple[ChildStep, ...] = ()
    writers = sorted({*event.writers, *event.gone})
    record = replace(record, known_ns=event.seen_ns)
    for writer in writers:
        record = take_prefix(record, writer)
    record, takes = release_rows(record)
    for take in takes:
        record, more, seen = step_delivery(record, take, now_ns)
        effects, steps = (*effects, *more), (*steps, *seen)
    for writer in keys_in_order(record.blocked_rows):
        epoch, rows = record.flows[writer].epoch, tuple(row.queued for row in record.blocked_rows[writer])
        record, _, seen = block_take(record, Take(writer, epoch, rows), now_ns)
        steps = (*steps, *seen)
    for writer in writers:
        record, more, seen = step_flow(record, record.flows[writer], Begin(), now_ns)
        effects, steps = (*effects, *more), (*steps, *seen)
        if writer not in event.writers or writer == record.silent:
            record, more, seen = step_flow(record, record.flows[writer], WriterDown(writer), now_ns)
            effects, steps = (*effects, *more), (*steps, *seen)
    return replace(record, pending=(), complete_ns=0, silent=""), effects, steps


def tell_resumed(record: ResumeRecord, event: SubscribedLive, now_ns: int) -> Done:
    return replace(record, pending=(), complete_ns=0, known_ns=event.seen_ns), (Tell(Resumed(record.session)),)


def add_writer(record: ResumeRecord, event: OfWriter, now_ns: int) -> Delegated:
    return add_flow(record, event.writer, now_ns)


def add_dead_writer(record: ResumeRecord, event: WriterDown, now_ns: int) -> Delegated:
    """It may have stored something and died before anything of it came."""
    record, effects, steps = add_flow(record, event.writer, now_ns)
    record, more, seen = step_flow(record, record.flows[event.writer], event, now_ns)
    return record, (*effects, *more), (*steps, *seen)


def take_of_writer(record: ResumeRecord, event: OfWriter, now_ns: int) -> Delegated:
    before, flow = record, record.flows[event.writer]
    starve = what_starves(record, flow, event)
    effects: Effects = ()
    steps: tuple[ChildStep, ...] = ()
    if starve is not None:
        record, effects, steps = step_flow(record, flow, starve, now_ns)
    event = as_far_as_there_is_room(record, event)
    record, more, seen = step_flow(record, record.flows[event.writer], event, now_ns)
    return settle(before, (record, (*effects, *more), (*steps, *seen)), now_ns)


def catch_up(record: ResumeRecord, event: PendingRead, now_ns: int) -> Delegated:
    """What was stored before rows that are blocked, also by writers that nothing was known of; where a replica shows
    nothing new of it, all is read again a moment later."""
    before = record
    effects: Effects = ()
    steps: tuple[ChildStep, ...] = ()
    record = replace(record, known_ns=max(record.known_ns, event.seen_ns))
    for writer in sorted({one.writer for one in event.found if one.rows} - set(record.flows)):
        record, more, seen = add_flow(record, writer, now_ns)
        effects, steps = (*effects, *more), (*steps, *seen)
    for writer in keys_in_order(record.flows):
        found = tuple(one for one in event.found if one.writer == writer)
        record, more, seen = step_flow(record, record.flows[writer], CatchUp(found, event.complete_ns), now_ns)
        effects, steps = (*effects, *more), (*steps, *seen)
    if needs_read(record) and not is_crowded(record) and find_places(record) == find_places(before):
        effects = (*effects, SetTimer("catch_up", now_ns + record.times.poll_ms * MS))
    else:
        record = replace(record, reads=False)
    return settle(before, (record, effects, steps), now_ns)


def find_places(record: ResumeRecord) -> dict[str, Position]:
    """Of each writer the last that was taken."""
    return {writer: (flow.epoch, flow.taken) for writer, flow in record.flows.items()}


def read_again(record: ResumeRecord, event: CatchUpDue, now_ns: int) -> Done:
    return record, (read_all(record),)


def take_timer(record: ResumeRecord, event: FlowTimer, now_ns: int) -> Delegated:
    return step_flow(record, record.flows[event.key], event, now_ns)


def take_commit(record: ResumeRecord, event: StateCommitted, now_ns: int) -> Delegated:
    return settle(record, step_delivery(record, event, now_ns), now_ns)


def take_acknowledgement(record: ResumeRecord, event: Puback | Pubrec | Pubcomp, now_ns: int) -> Delegated:
    return settle(record, step_delivery(record, event, now_ns), now_ns)


def finish_with_commit(record: ResumeRecord, event: StateCommitted, now_ns: int) -> Delegated:
    record, effects, steps = take_commit(record, event, now_ns)
    return record, (*effects, Tell(Resumed(record.session))), steps


def finish_with_writer(record: ResumeRecord, event: Polled | FencedRows, now_ns: int) -> Delegated:
    record, effects, steps = take_of_writer(record, event, now_ns)
    return record, (*effects, Tell(Resumed(record.session))), steps


def finish_with_catch_up(record: ResumeRecord, event: PendingRead, now_ns: int) -> Delegated:
    record, effects, steps = catch_up(record, event, now_ns)
    return record, (*effects, Tell(Resumed(record.session))), steps


def read_on_in_lull(record: ResumeRecord, event: Lull, now_ns: int) -> Delegated:
    """The client may keep what it has until it has more; whoever waits reads as many as there is room for."""
    effects: Effects = ()
    steps: tuple[ChildStep, ...] = ()
    rows = room_for(record)
    for writer in keys_in_order(record.flows):
        if is_starved(record, record.flows[writer]) and rows:
            record, more, seen = step_flow(record, record.flows[writer], Room(rows), now_ns)
            effects, steps = (*effects, *more), (*steps, *seen)
    return record, effects, steps


# -- the end --------------------------------------------------------------------------------------------------------


def stop(record: ResumeRecord, why: str) -> Done:
    """Nothing is marked that was not sent, and the state stays as it was committed."""
    record = replace(record, flows=Map(), pending=(), delivery=None, takeover=None, blocked_rows=Map(), reads=False)
    return record, (
        Ask(DATABASE, UnsubscribeLive(record.session, record.token)),
        Tell(ResumeEnded(record.session, why)),
    )


def stop_absent(record: ResumeRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(ResumeEnded("", "absent")),)


def stop_superseded(record: ResumeRecord, event: Event, now_ns: int) -> Done:
    return stop(record, "superseded")


def stop_late(record: ResumeRecord, event: Event, now_ns: int) -> Done:
    return stop(record, "timeout")


def stop_lost(record: ResumeRecord, event: Event, now_ns: int) -> Done:
    return stop(record, "lost")


def stop_discarded(record: ResumeRecord, event: Discarded, now_ns: int) -> Done:
    return stop(record, "discarded")


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
