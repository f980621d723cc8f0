"""WriterFlow: one writer of a resuming session (source: "Resuming a persistent session from DB", its picture
"init-fsm").

`new -> waiting -> syncing -> finalizing -> done`.  While the marker is awaited, what comes live is dropped: the
database has it.  Behind the marker it is kept, and the database is read until every number below the marker was
taken; then what was kept follows.  The cut is by the writer's numbers, never by ids or clocks.  A writer that is
dead, or silent for too long, is fenced: nothing can be stored under its epoch any more, so what is read then is all.

However much is stored, a page of it is read at a time, when there is room for it: between two of them a flow is
`behind`, or `draining` where the writer is fenced.  A flow whose client cannot keep up falls behind as well, whatever
it was about: what comes live is in the database before it comes.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Fsm, Ignore, Invariant, Refuse, Row, Timer
from statemachines.persistent_sessions.message import Live, LiveMarker
from statemachines.persistent_sessions.request import FencedRows, Polled
from statemachines.persistent_sessions.times import MS
from statemachines.persistent_sessions.writer_flow_actions import (
    ask_again,
    ask_fresh,
    ask_marker,
    ask_marker_later,
    brings,
    catch_up,
    completes,
    drop_live,
    fall_behind,
    fence_newer,
    fence_older,
    fence_silent,
    follows,
    has_more,
    is_ahead,
    is_mine,
    is_mine_and_fresh,
    is_next,
    is_of_newer_epoch,
    is_of_the_epoch,
    is_of_this_fence,
    is_still_to_take,
    keep_live,
    leaves_a_gap,
    next_live,
    note_heard,
    poll,
    poll_as_many,
    read_on,
    remember,
    shows_marker,
    shows_newer_epoch,
    start_sync,
    stays_gone,
    take_and_poll,
    take_below,
    take_buffer,
    take_fenced,
    take_fenced_and_ask,
    take_handed,
    take_live,
    take_page,
)
from statemachines.persistent_sessions.writer_flow_record import (
    BEHIND,
    DONE,
    DRAINING,
    FENCING,
    FINALIZING,
    NEW,
    SYNCING,
    WAITING,
    AskAgain,
    Begin,
    CatchUp,
    FlowStatus,
    Handed,
    LinkLost,
    MarkerTimeout,
    PollDue,
    Room,
    Settled,
    Starve,
    WriterDown,
    WriterFlowRecord,
    WriterUp,
)

READING = (BEHIND, SYNCING)
KEEPING = (*READING, FINALIZING)
FOLLOWING = (WAITING, *KEEPING, DONE)
FENCED = (FENCING, DRAINING)
AT_MARKER = (WAITING, DONE)

# fmt: off
ROWS = (
    #   on             from                        to          do                   when                     clause
    Row(Begin,         NEW,                        WAITING,    ask_marker,          None,                    "PS-20"),
    Row(AskAgain,      WAITING,                    STAY,       ask_again,           None,                    "PS-20"),
    Row(LiveMarker,    FOLLOWING,                  FENCING,    fence_older,         is_of_newer_epoch,       "PS-31"),
    Row(LiveMarker,    WAITING,                    SYNCING,    start_sync,          is_mine_and_fresh,       "PS-22"),
    Row(LiveMarker,    WAITING,                    STAY,       ask_fresh,           is_mine,                 "PS-23"),
    Row(Live,          FOLLOWING,                  FENCING,    fence_older,         is_of_newer_epoch,       "PS-31"),
    Row(Live,          WAITING,                    STAY,       drop_live,           is_of_the_epoch,         "PS-21"),
    Row(Live,          KEEPING,                    STAY,       keep_live,           follows,                 "PS-24"),
    Row(Live,          KEEPING,                    WAITING,    ask_fresh,           leaves_a_gap,            "PS-28"),
    Row(Live,          DONE,                       STAY,       take_live,           is_next,                 "PS-27"),
    Row(Live,          DONE,                       WAITING,    ask_fresh,           is_ahead,                "PS-28"),
    Row(CatchUp,       AT_MARKER,                  FENCING,    fence_newer,         shows_newer_epoch,       "PS-483"),
    Row(CatchUp,       AT_MARKER,                  STAY,       catch_up,            None,                    "PS-482"),
    Row(Polled,        WAITING,                    STAY,       remember,            shows_marker,            "PS-22"),
    Row(Room,          BEHIND,                     SYNCING,    poll_as_many,        None,                    "PS-193"),
    Row(Polled,        SYNCING,                    FINALIZING, take_below,          completes,               "PS-25"),
    Row(Polled,        SYNCING,                    BEHIND,     take_below,          brings,                  "PS-193"),
    Row(Polled,        SYNCING,                    STAY,       take_and_poll,       None,                    "PS-25"),
    Row(Handed,        (WAITING, *READING),        STAY,       take_handed,         None,                    "PS-177"),
    Row(PollDue,       SYNCING,                    STAY,       poll,                None,                    "PS-25"),
    Row(Settled,       FINALIZING,                 DONE,       take_buffer,         None,                    "PS-26"),
    Row(Starve,        (*KEEPING, DONE),           BEHIND,     fall_behind,         is_still_to_take,        "PS-199"),
    Row(LinkLost,      WAITING,                    STAY,       ask_marker,          None,                    "PS-330"),
    Row(LinkLost,      (*KEEPING, DONE),           WAITING,    ask_fresh,           None,                    "PS-28"),
    Row(MarkerTimeout, (WAITING, SYNCING),         FENCING,    fence_silent,        None,                    "PS-30"),
    Row(WriterDown,    FOLLOWING,                  FENCING,    fence_silent,        None,                    "PS-30"),
    Row(FencedRows,    FENCING,                    DRAINING,   take_page,           has_more,                "PS-194"),
    Row(Room,          DRAINING,                   FENCING,    read_on,             None,                    "PS-194"),
    Row(FencedRows,    FENCING,                    DONE,       take_fenced,         stays_gone,              "PS-32"),
    Row(FencedRows,    FENCING,                    WAITING,    take_fenced_and_ask, is_of_this_fence,        "PS-32"),
    Row(WriterDown,    FENCED,                     FENCING,    fence_silent,        None,                    "PS-33"),
    Row(LinkLost,      FENCED,                     STAY,       ask_marker_later,    None,                    "PS-33"),
    Row(Live,          FENCED,                     STAY,       note_heard,          is_of_newer_epoch,       "PS-33"),
    Row(LiveMarker,    FENCED,                     STAY,       note_heard,          is_of_newer_epoch,       "PS-33"),
    Row(WriterUp,      FENCED,                     STAY,       ask_marker_later,    None,                    "PS-33"),
    Row(WriterUp,      DONE,                       WAITING,    ask_fresh,           None,                    "PS-28"),
    Ignore((Live, LiveMarker),      (*FOLLOWING, *FENCED),                                                   "PS-29"),
    Ignore((Polled,),               (WAITING, BEHIND, FINALIZING, *FENCED, DONE),                            "PS-34"),
    Ignore((FencedRows,),           (*FOLLOWING, *FENCED),                                                   "PS-34"),
    Ignore((Handed,),               (FINALIZING, *FENCED, DONE),                                             "PS-177"),
    Ignore((Settled,),              (WAITING, *READING, *FENCED, DONE),                                      "PS-26"),
    Ignore((Room,),                 (WAITING, SYNCING, FINALIZING, FENCING, DONE),                           "PS-193"),
    Ignore((AskAgain,),             (*KEEPING, *FENCED, DONE),                                               "PS-35"),
    Ignore((PollDue,),              (WAITING, BEHIND, FINALIZING, *FENCED, DONE),                            "PS-35"),
    Ignore((MarkerTimeout,),        (BEHIND, FINALIZING, *FENCED, DONE),                                     "PS-35"),
    Ignore((WriterUp,),             (WAITING, *KEEPING),                                                     "PS-28"),
    Refuse((Begin,),                (*FOLLOWING, *FENCED),                                                   "PS-20"),
    Refuse((Starve,),               (*FOLLOWING, *FENCED),                                                   "PS-199"),
    Ignore((CatchUp,),              (*KEEPING, *FENCED),                                                     "PS-482"),
    Refuse((Live, LiveMarker, Polled, FencedRows, Handed, Settled, Room, Starve, CatchUp, AskAgain, PollDue,
            MarkerTimeout, LinkLost, WriterDown, WriterUp), NEW,                                             "PS-20"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def keeps_only_behind_the_marker(record: WriterFlowRecord) -> bool:
    """P5: awaiting nothing is buffered; afterwards from the marker on and without a hole; and when done nothing."""
    if record.status not in KEEPING:
        return not record.buffer
    numbers = tuple(one.number for one in record.buffer)
    is_bounded = len(numbers) <= record.times.resume_buffer
    return is_bounded and record.k > 0 and numbers == tuple(range(record.k, next_live(record)))


def is_done_below_the_marker(record: WriterFlowRecord) -> bool:
    """P4: while the database is read nothing from the marker on is taken; before the buffer is, all below it."""
    if record.status in READING:
        return record.taken < record.k
    return record.status is not FINALIZING or (record.taken == record.k - 1 and record.seen)


WRITER_FLOW = Fsm(
    "writer_flow",
    protocol="persistent_sessions",
    record=WriterFlowRecord,
    states=FlowStatus,
    initial=NEW,
    rows=ROWS,
    timers=(
        Timer("repeat", AskAgain, (WAITING,), lambda record: record.times.repeat_ms * MS),
        Timer("marker", MarkerTimeout, (WAITING, SYNCING), lambda record: record.times.marker_ms * MS),
        Timer("poll", PollDue, (SYNCING,), lambda record: record.times.poll_ms * MS, on_entry=False),
    ),
    key=lambda record: record.writer,
    invariants=(
        Invariant("keeps-only-behind-the-marker", "PS-36", keeps_only_behind_the_marker),
        Invariant("is-done-below-the-marker", "PS-37", is_done_below_the_marker),
    ),
)
