"""Resume: a session that comes back from the database (source: "Resuming a persistent session from DB").

`new -> loading -> reading -> subscribing -> syncing -> normal -> stopped`.  It reads what is pending, then
subscribes, then asks every writer for a marker; a WriterFlow a writer brings the two flows together, and a Delivery
takes what they give into the session state.  It stays for as long as the client is connected: a writer that has a
gap, is new, or has died is synchronised again.

A session that is live at another owner is taken over (`loading -> taking -> subscribing`): that one yields before
anything is sent here, and hands over what it had (`takeover`).  Whoever is asked to yield, or finds out that it is
superseded, keeps what it has (`yielding`), until the one that comes after ends it, or for `orphan_ms`.
"""

from __future__ import annotations

from statemachines.kernel import ANY, STAY, Delegate, Event, Fsm, Ignore, Invariant, Refuse, Row, Timer
from statemachines.persistent_sessions.delivery import DELIVERY
from statemachines.persistent_sessions.message import Live, LiveMarker, Puback, Pubcomp, Pubrec
from statemachines.persistent_sessions.request import (
    FencedRows,
    NotOwner,
    PendingRead,
    Polled,
    RowsConfirmed,
    SessionAbsent,
    SessionLoaded,
    StateCommitted,
    SubscribedLive,
)
from statemachines.persistent_sessions.resume_actions import (
    add_dead_writer,
    add_writer,
    begin_flows,
    catch_up,
    ends_with_catch_up,
    ends_with_commit,
    ends_with_writer,
    finish_with_catch_up,
    finish_with_commit,
    finish_with_writer,
    has_room_for_page,
    is_known,
    is_of_a_flow,
    is_reading,
    is_starved,
    load,
    needs_no_writer,
    read_again,
    read_on_in_lull,
    restore,
    stop_absent,
    stop_discarded,
    stop_late,
    stop_lost,
    stop_superseded,
    subscribe,
    take_acknowledgement,
    take_commit,
    take_of_writer,
    take_timer,
    tell_resumed,
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
    Discarded,
    Lull,
    OrphanTimeout,
    ResumeRecord,
    ResumeSession,
    ResumeStatus,
    ResumeTimeout,
)
from statemachines.persistent_sessions.resume_takeover import (
    begin_flows_and_end,
    fall_back,
    has_begun,
    has_no_writers,
    is_answered,
    is_live_elsewhere,
    is_taking,
    start_takeover,
    subscribe_over,
    take_of_takeover,
    tell_resumed_and_end,
)
from statemachines.persistent_sessions.takeover import TAKEOVER
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines.persistent_sessions.takeover_record import BEGINNING, BeginTimeout, EndTimeout, SayAgain
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer_flow import WRITER_FLOW
from statemachines.persistent_sessions.writer_flow_record import (
    FINALIZING,
    AskAgain,
    LinkLost,
    MarkerTimeout,
    PollDue,
    WriterDown,
    WriterUp,
)
from statemachines.persistent_sessions.yield_actions import (
    answer_begun,
    claims_anew,
    comes_after,
    count_held_rows,
    hand_over,
    has_claimed,
    has_room,
    hold_live,
    refuse,
    stop_orphaned,
    yield_session,
    yield_to_next,
    yield_unasked,
)

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
