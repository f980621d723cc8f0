"""Resume: a session that comes back from the database (source: "Resuming a persistent session from DB").

`new -> loading -> reading -> subscribing -> syncing -> normal -> stopped`.  It reads what is pending, then
subscribes, then asks every writer for a marker; a WriterFlow a writer brings the two flows together, and a Delivery
takes what they give into the session state.  It stays for as long as the client is connected: a writer that has a
gap, is new, or has died is synchronised again.
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
    SessionAbsent,
    SessionLoaded,
    StateCommitted,
    SubscribedLive,
)
from statemachines.persistent_sessions.resume_actions import (
    add_dead_writer,
    add_writer,
    begin_flows,
    ends_with_commit,
    ends_with_writer,
    finish_with_commit,
    finish_with_writer,
    is_known,
    is_of_a_flow,
    load,
    needs_no_writer,
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
    ConnectionLost,
    Discarded,
    ResumeRecord,
    ResumeSession,
    ResumeStatus,
    ResumeTimeout,
)
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

RESUMING = (LOADING, READING, SUBSCRIBING, SYNCING)
BEFORE = (NEW, LOADING, READING, SUBSCRIBING)
OWNING = (READING, SUBSCRIBING, SYNCING, NORMAL)
LIVE = (SYNCING, NORMAL)

# fmt: off
ROWS = (
    #   on              from         to           do                              when              clause
    Row(ResumeSession,  NEW,         LOADING,     load,                           None,             "PS-60"),
    Row(SessionAbsent,  LOADING,     STOPPED,     stop_absent,                    None,             "PS-61"),
    Row(SessionLoaded,  LOADING,     READING,     Delegate(restore),              None,             "PS-62"),
    Row(PendingRead,    READING,     SUBSCRIBING, subscribe,                      None,             "PS-63"),
    Row(SubscribedLive, SUBSCRIBING, NORMAL,      tell_resumed,                   needs_no_writer,  "PS-64"),
    Row(SubscribedLive, SUBSCRIBING, SYNCING,     Delegate(begin_flows),          None,             "PS-64"),
    Row(StateCommitted, SYNCING,     NORMAL,      Delegate(finish_with_commit),   ends_with_commit, "PS-66"),
    Row(StateCommitted, OWNING,      STAY,        Delegate(take_commit),          None,             "PS-65"),
    Row(Polled,         SYNCING,     NORMAL,      Delegate(finish_with_writer),   ends_with_writer, "PS-66"),
    Row(FencedRows,     SYNCING,     NORMAL,      Delegate(finish_with_writer),   ends_with_writer, "PS-66"),
    Row(Polled,         LIVE,        STAY,        Delegate(take_of_writer),       is_known,         "PS-65"),
    Row(FencedRows,     LIVE,        STAY,        Delegate(take_of_writer),       is_known,         "PS-65"),
    Row(Live,           LIVE,        STAY,        Delegate(take_of_writer),       is_known,         "PS-65"),
    Row(LiveMarker,     LIVE,        STAY,        Delegate(take_of_writer),       is_known,         "PS-65"),
    Row(WriterUp,       LIVE,        STAY,        Delegate(take_of_writer),       is_known,         "PS-65"),
    Row(WriterDown,     LIVE,        STAY,        Delegate(take_of_writer),       is_known,         "PS-65"),
    Row(LinkLost,       LIVE,        STAY,        Delegate(take_of_writer),       is_known,         "PS-65"),
    Row(Live,           LIVE,        STAY,        Delegate(add_writer),           None,             "PS-67"),
    Row(WriterUp,       LIVE,        STAY,        Delegate(add_writer),           None,             "PS-67"),
    Row(LinkLost,       LIVE,        STAY,        Delegate(add_writer),           None,             "PS-67"),
    Row(WriterDown,     LIVE,        STAY,        Delegate(add_dead_writer),      None,             "PS-67"),
    Row(AskAgain,       LIVE,        STAY,        Delegate(take_timer),           is_of_a_flow,     "PS-65"),
    Row(PollDue,        LIVE,        STAY,        Delegate(take_timer),           is_of_a_flow,     "PS-65"),
    Row(MarkerTimeout,  LIVE,        STAY,        Delegate(take_timer),           is_of_a_flow,     "PS-65"),
    Row(Puback,         OWNING,      STAY,        Delegate(take_acknowledgement), None,             "PS-68"),
    Row(Pubrec,         OWNING,      STAY,        Delegate(take_acknowledgement), None,             "PS-68"),
    Row(Pubcomp,        OWNING,      STAY,        Delegate(take_acknowledgement), None,             "PS-68"),
    Row(ResumeTimeout,  RESUMING,    STOPPED,     stop_late,                      None,             "PS-69"),
    Row(NotOwner,       ANY,         STOPPED,     stop_superseded,                None,             "PS-70"),
    Row(ConnectionLost, ANY,         STOPPED,     stop_lost,                      None,             "PS-71"),
    Row(Discarded,      ANY,         STOPPED,     stop_discarded,                 None,             "PS-71"),
    Ignore((Live, LiveMarker, Polled, FencedRows, WriterUp, WriterDown, LinkLost), BEFORE,          "PS-72"),
    Ignore((LiveMarker, Polled, FencedRows, AskAgain, PollDue, MarkerTimeout), LIVE,      "PS-72"),
    Ignore((AskAgain, PollDue, MarkerTimeout),             BEFORE,                                  "PS-72"),
    Ignore((StateCommitted, Puback, Pubrec, Pubcomp),      (NEW, LOADING),                          "PS-72"),
    Ignore((SessionLoaded, SessionAbsent),                 (NEW, *OWNING),                          "PS-72"),
    Ignore((PendingRead,),                                 (NEW, LOADING, SUBSCRIBING, *LIVE),      "PS-72"),
    Ignore((SubscribedLive,),                              (NEW, LOADING, READING, *LIVE),          "PS-72"),
    Ignore((ResumeTimeout,),                               (NEW, NORMAL),                           "PS-69"),
    Refuse((ResumeSession,),                               (LOADING, *OWNING),                      "PS-60"),
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


RESUME = Fsm(
    "session_resume",
    protocol="persistent_sessions",
    record=ResumeRecord,
    states=ResumeStatus,
    initial=NEW,
    final=(STOPPED,),
    rows=ROWS,
    timers=(Timer("resume", ResumeTimeout, RESUMING, lambda record: record.times.resume_ms * MS),),
    children=(WRITER_FLOW, DELIVERY),
    invariants=(
        Invariant("keeps-sound-children", "PS-73", keeps_sound_children, keeps_touched_children),
        Invariant("waits-for-a-commit-alone", "PS-74", waits_for_a_commit_alone),
    ),
)
