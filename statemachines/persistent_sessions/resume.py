"""Resume: a session that comes back from the database (source: "Resuming a persistent session from DB").

`new -> loading -> reading -> subscribing -> syncing -> normal -> stopped`.  It reads what is pending, then
subscribes, then asks every writer for a marker; a WriterFlow a writer brings the two flows together, and a Delivery
takes what they give into the session state.  It stays for as long as the client is connected: a writer that has a
gap, is new, or has died is synchronised again.

A session that is live at another owner is taken over (`loading -> taking -> subscribing`): that one yields before
anything is sent here, and hands over what it had (`takeover`).  Whoever is asked to yield, or finds out that it is
superseded, keeps what it has (`yielding`), until the one that comes after ends it, or for `orphan_ms`.

What an event of a takeover makes of a Resume that takes the session over (`resume`, `takeover`).
"""

from __future__ import annotations

from msgspec.structs import replace

from statemachines.kernel import (
    ANY,
    STAY,
    Ask,
    Delegate,
    Effects,
    Event,
    Fsm,
    Ignore,
    Invariant,
    Refuse,
    Row,
    Tell,
    Timer,
    node_of,
)
from statemachines.kernel.row import ChildStep
from statemachines.persistent_sessions.delivery import DELIVERY
from statemachines.persistent_sessions.in_flight import Resend
from statemachines.persistent_sessions.message import Live, LiveMarker, Puback, Pubcomp, Pubrec
from statemachines.persistent_sessions.request import (
    DATABASE,
    FencedRows,
    NotOwner,
    PendingRead,
    Polled,
    RowsConfirmed,
    SessionAbsent,
    SessionLoaded,
    StateCommitted,
    SubscribedLive,
    SubscribeLive,
)
from statemachines.persistent_sessions.resume_actions import (
    add_dead_writer,
    add_writer,
    answer_begun,
    begin_flows,
    catch_up,
    claims_anew,
    comes_after,
    count_held_rows,
    ends_with_catch_up,
    ends_with_commit,
    ends_with_writer,
    finish_with_catch_up,
    finish_with_commit,
    finish_with_writer,
    hand_over,
    has_claimed,
    has_room,
    has_room_for_page,
    hold_live,
    is_known,
    is_of_a_flow,
    is_reading,
    is_starved,
    load,
    load_session,
    needs_no_writer,
    read_again,
    read_on_in_lull,
    refuse,
    restore,
    settle,
    step_delivery,
    step_flow,
    stop_absent,
    stop_discarded,
    stop_late,
    stop_lost,
    stop_orphaned,
    stop_superseded,
    subscribe,
    take_acknowledgement,
    take_commit,
    take_of_writer,
    take_timer,
    tell_resumed,
    yield_session,
    yield_to_next,
    yield_unasked,
)
from statemachines.persistent_sessions.resume_record import (
    LOADING,
    NEW,
    NORMAL,
    READING,
    STOPPED,
    SUBSCRIBING,
    SYNCING,
    TAKING,
    YIELDING,
    CatchUpDue,
    ConnectionLost,
    Delegated,
    Discarded,
    Lull,
    OrphanTimeout,
    ResumeRecord,
    ResumeSession,
    ResumeStatus,
    ResumeTimeout,
)
from statemachines.persistent_sessions.takeover import TAKEOVER, is_ours
from statemachines.persistent_sessions.takeover_record import (
    BEGINNING,
    BEGUN,
    OVER,
    BeginTakeover,
    BeginTimeout,
    EndTakeover,
    EndTimeout,
    FinishTakeover,
    HandedOver,
    SayAgain,
    StartTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRecord,
    TakeoverRefused,
)
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer_flow import (
    FINALIZING,
    WRITER_FLOW,
    AskAgain,
    Handed,
    LinkLost,
    MarkerTimeout,
    PollDue,
    WriterDown,
    WriterUp,
)

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


RESUMING = (LOADING, TAKING, READING, SUBSCRIBING, SYNCING)
BEFORE = (NEW, LOADING, TAKING, READING, SUBSCRIBING)
OWNING = (READING, SUBSCRIBING, SYNCING, NORMAL)
LIVE = (SYNCING, NORMAL)
HAVING = (*RESUMING, NORMAL)
ACTIVE = (*BEFORE, *LIVE)
ASKING = (TAKING, *LIVE)
OF_TAKEOVER = (TakeoverBegun, TakeoverEnded, TakeoverRefused, RowsConfirmed, SayAgain, BeginTimeout, EndTimeout)

# fmt: off
ROWS = (
    #   on               from         to           do                              when                   clause
    Row(ResumeSession,   NEW,         LOADING,     load,                           None,                  "PS-60"),
    Row(SessionAbsent,   LOADING,     STOPPED,     stop_absent,                    None,                  "PS-61"),
    Row(SessionLoaded,   LOADING,     TAKING,      Delegate(start_takeover),       is_live_elsewhere,     "PS-170"),
    Row(SessionLoaded,   LOADING,     READING,     Delegate(restore),              None,                  "PS-62"),
    Row(TakeoverBegun,   TAKING,      SUBSCRIBING, Delegate(subscribe_over),       is_answered,           "PS-172"),
    Row(TakeoverRefused, TAKING,      LOADING,     Delegate(fall_back),            is_answered,           "PS-173"),
    Row(BeginTimeout,    TAKING,      LOADING,     Delegate(fall_back),            None,                  "PS-173"),
    Row(PendingRead,     READING,     SUBSCRIBING, subscribe,                      None,                  "PS-63"),
    Row(SubscribedLive,  SUBSCRIBING, NORMAL,      Delegate(tell_resumed_and_end), has_no_writers,        "PS-174"),
    Row(SubscribedLive,  SUBSCRIBING, SYNCING,     Delegate(begin_flows_and_end),  has_begun,             "PS-174"),
    Row(SubscribedLive,  SUBSCRIBING, NORMAL,      tell_resumed,                   needs_no_writer,       "PS-64"),
    Row(SubscribedLive,  SUBSCRIBING, SYNCING,     Delegate(begin_flows),          None,                  "PS-64"),
    Row(StateCommitted,  SYNCING,     NORMAL,      Delegate(finish_with_commit),   ends_with_commit,      "PS-66"),
    Row(StateCommitted,  OWNING,      STAY,        Delegate(take_commit),          None,                  "PS-65"),
    Row(Polled,          SYNCING,     NORMAL,      Delegate(finish_with_writer),   ends_with_writer,      "PS-66"),
    Row(FencedRows,      SYNCING,     NORMAL,      Delegate(finish_with_writer),   ends_with_writer,      "PS-66"),
    Row(PendingRead,     SYNCING,     NORMAL,      Delegate(finish_with_catch_up), ends_with_catch_up,    "PS-482"),
    Row(PendingRead,     LIVE,        STAY,        Delegate(catch_up),             is_reading,            "PS-482"),
    Row(CatchUpDue,      LIVE,        STAY,        read_again,                     is_reading,            "PS-482"),
    Row(Polled,          LIVE,        STAY,        Delegate(take_of_writer),       is_known,              "PS-65"),
    Row(FencedRows,      LIVE,        STAY,        Delegate(take_of_writer),       is_known,              "PS-65"),
    Row(Live,            LIVE,        STAY,        Delegate(take_of_writer),       is_known,              "PS-65"),
    Row(LiveMarker,      LIVE,        STAY,        Delegate(take_of_writer),       is_known,              "PS-65"),
    Row(WriterUp,        LIVE,        STAY,        Delegate(take_of_writer),       is_known,              "PS-65"),
    Row(WriterDown,      LIVE,        STAY,        Delegate(take_of_writer),       is_known,              "PS-65"),
    Row(LinkLost,        LIVE,        STAY,        Delegate(take_of_writer),       is_known,              "PS-65"),
    Row(Live,            LIVE,        STAY,        Delegate(add_writer),           None,                  "PS-67"),
    Row(WriterUp,        LIVE,        STAY,        Delegate(add_writer),           None,                  "PS-67"),
    Row(LinkLost,        LIVE,        STAY,        Delegate(add_writer),           None,                  "PS-67"),
    Row(WriterDown,      LIVE,        STAY,        Delegate(add_dead_writer),      None,                  "PS-67"),
    Row(AskAgain,        LIVE,        STAY,        Delegate(take_timer),           is_of_a_flow,          "PS-65"),
    Row(PollDue,         LIVE,        STAY,        Delegate(take_timer),           is_of_a_flow,          "PS-65"),
    Row(MarkerTimeout,   LIVE,        STAY,        Delegate(take_timer),           is_of_a_flow,          "PS-65"),
    Row(Lull,            LIVE,        STAY,        Delegate(read_on_in_lull),      None,                  "PS-286"),
    Row(Puback,          OWNING,      STAY,        Delegate(take_acknowledgement), None,                  "PS-68"),
    Row(Pubrec,          OWNING,      STAY,        Delegate(take_acknowledgement), None,                  "PS-68"),
    Row(Pubcomp,         OWNING,      STAY,        Delegate(take_acknowledgement), None,                  "PS-68"),
    Row(TakeoverEnded,   LIVE,        STAY,        Delegate(take_of_takeover),     is_taking,             "PS-175"),
    Row(RowsConfirmed,   LIVE,        STAY,        Delegate(take_of_takeover),     is_taking,             "PS-176"),
    Row(TakeoverRefused, LIVE,        STAY,        Delegate(take_of_takeover),     is_taking,             "PS-178"),
    Row(EndTimeout,      LIVE,        STAY,        Delegate(take_of_takeover),     is_taking,             "PS-178"),
    Row(SayAgain,        ASKING,      STAY,        Delegate(take_of_takeover),     is_taking,             "PS-171"),
    Row(BeginTakeover,   HAVING,      YIELDING,    yield_session,                  comes_after,           "PS-180"),
    Row(NotOwner,        LIVE,        YIELDING,    yield_unasked,                  None,                  "PS-181"),
    Row(Live,            YIELDING,    STAY,        hold_live,                      has_room,              "PS-182"),
    Row(BeginTakeover,   YIELDING,    STAY,        yield_to_next,                  claims_anew,           "PS-183"),
    Row(BeginTakeover,   YIELDING,    STAY,        answer_begun,                   has_claimed,           "PS-183"),
    Row(EndTakeover,     YIELDING,    STOPPED,     hand_over,                      has_claimed,           "PS-184"),
    Row(OrphanTimeout,   YIELDING,    STOPPED,     stop_orphaned,                  None,                  "PS-185"),
    Row(BeginTakeover,   ANY,         STAY,        refuse,                         None,                  "PS-186"),
    Row(EndTakeover,     ANY,         STAY,        refuse,                         None,                  "PS-186"),
    Row(ResumeTimeout,   RESUMING,    STOPPED,     stop_late,                      None,                  "PS-69"),
    Row(NotOwner,        BEFORE,      STOPPED,     stop_superseded,                None,                  "PS-70"),
    Row(ConnectionLost,  ACTIVE,      STOPPED,     stop_lost,                      None,                  "PS-71"),
    Row(Discarded,       ANY,         STOPPED,     stop_discarded,                 None,                  "PS-71"),
    Ignore((Live, LiveMarker, Polled, FencedRows, WriterUp, WriterDown, LinkLost), BEFORE,                "PS-72"),
    Ignore((LiveMarker, Polled, FencedRows, AskAgain, PollDue, MarkerTimeout), LIVE,                      "PS-72"),
    Ignore((AskAgain, PollDue, MarkerTimeout),             BEFORE,                                        "PS-72"),
    Ignore((StateCommitted, Puback, Pubrec, Pubcomp),      (NEW, LOADING, TAKING),                        "PS-72"),
    Ignore((SessionLoaded, SessionAbsent),                 (NEW, TAKING, *OWNING),                        "PS-72"),
    Ignore((PendingRead,),                                 (NEW, LOADING, TAKING, SUBSCRIBING, *LIVE),    "PS-72"),
    Ignore((SubscribedLive,),                              (NEW, LOADING, TAKING, READING, *LIVE),        "PS-72"),
    Ignore((ResumeTimeout,),                               (NEW, NORMAL),                                 "PS-69"),
    Ignore(OF_TAKEOVER,                                    ACTIVE,                                        "PS-179"),
    Ignore((OrphanTimeout,),                               ACTIVE,                                        "PS-185"),
    Ignore((Lull,),                                        (*BEFORE, YIELDING),                           "PS-286"),
    Ignore((CatchUpDue,),                                  (*ACTIVE, YIELDING),                           "PS-482"),
    Ignore((SessionLoaded, SessionAbsent, PendingRead, SubscribedLive, StateCommitted, Polled, FencedRows, Live,
            LiveMarker, WriterUp, WriterDown, LinkLost, AskAgain, PollDue, MarkerTimeout, Puback, Pubrec, Pubcomp,
            NotOwner, ConnectionLost, ResumeTimeout, *OF_TAKEOVER), YIELDING,                             "PS-182"),
    Refuse((ResumeSession,),                               (LOADING, TAKING, *OWNING, YIELDING),          "PS-60"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def keeps_sound_children(record: ResumeRecord) -> bool:
    """Each writer is kept under its name and keeps its own promises, and so does the session state."""
    delivery = record.delivery
    flows = all(
        name == flow.writer and all(one.holds(flow) for one in WRITER_FLOW.invariants)
        for name, flow in record.flows.items()
    )
    return flows and (delivery is None or all(one.holds(delivery) for one in DELIVERY.invariants))


def keeps_touched_children(record: ResumeRecord, event: Event) -> bool:
    flow = record.flows.get(getattr(event, "writer", "") or getattr(event, "key", ""))
    return flow is None or all(one.holds(flow) for one in WRITER_FLOW.invariants)


def waits_for_a_commit_alone(record: ResumeRecord) -> bool:
    """A writer that is finalizing waits for a commit that is open."""
    open_commit = record.delivery is not None and record.delivery.status.value == "committing"
    return open_commit or all(flow.status is not FINALIZING for flow in record.flows.values())


def starves_without_room_alone(record: ResumeRecord) -> bool:
    """Who waits for room has none, or has rows that wait for older ones."""
    return not has_room_for_page(record) or not any(is_starved(record, flow) for flow in record.flows.values())


def keeps_silent(record: ResumeRecord) -> bool:
    """Whoever yields has nothing left to change or to send, and keeps no more than it may hand over."""
    if record.status is not YIELDING:
        return record.status is STOPPED or not record.claim
    is_silent = record.delivery is None and record.takeover is None and not record.flows
    return is_silent and count_held_rows(record) <= record.times.handover


def completes_what_it_blocks(record: ResumeRecord) -> bool:
    """Of the writer of a blocked row nothing older is missing: the order of the rows alone says which goes first."""
    return all(
        record.flows[writer].complete_ns >= queue.last.queued.stored_ns for writer, queue in record.blocked_rows.items()
    )


def sends_nothing_yet(record: ResumeRecord) -> bool:
    """Until the owner of before has answered, the session state is as it was loaded."""
    takeover = record.takeover
    is_asked = takeover is not None and takeover.status is BEGINNING
    return is_asked == (record.status is TAKING)


RESUME = Fsm(
    "session_resume",
    protocol="persistent_sessions",
    record=ResumeRecord,
    states=ResumeStatus,
    initial=NEW,
    final=(STOPPED,),
    rows=ROWS,
    timers=(
        Timer("resume", ResumeTimeout, RESUMING, lambda record: record.times.resume_ms * MS),
        Timer("lull", Lull, LIVE, on_entry=False),
        Timer("catch_up", CatchUpDue, LIVE, on_entry=False),
        Timer("orphan", OrphanTimeout, (YIELDING,), lambda record: record.times.orphan_ms * MS),
    ),
    children=(WRITER_FLOW, DELIVERY, TAKEOVER),
    invariants=(
        Invariant("keeps-sound-children", "PS-73", keeps_sound_children, keeps_touched_children),
        Invariant("waits-for-a-commit-alone", "PS-74", waits_for_a_commit_alone),
        Invariant("starves-without-room-alone", "PS-196", starves_without_room_alone),
        Invariant("keeps-silent", "PS-188", keeps_silent),
        Invariant("sends-nothing-yet", "PS-189", sends_nothing_yet),
        Invariant("completes-what-it-blocks", "PS-520", completes_what_it_blocks),
    ),
)
