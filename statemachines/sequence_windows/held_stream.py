"""HeldStream: what a receiver that recovers keeps of one publisher and subject while something of it is missing.

A stream has runs, one for each frame.  A run is a source of missed samples: it asks, and says what came and what will
not.  What a run says is handed over when all runs before it are settled.  Whether another run has a place, and whether
the stream ends, is for its process (`held_streams`).
"""

from __future__ import annotations

from statemachines.kernel import STAY, Delegate, Fsm, Ignore, Invariant, Row
from statemachines.missed_samples.message import QueryEnded
from statemachines.missed_samples.source import SOURCE
from statemachines.missed_samples.source_record import QueryTimeout, Rested, RetentionOver
from statemachines.sequence_windows.held_stream_actions import (
    append,
    begin_after_tail,
    begin_apart,
    begin_next,
    drop,
    end_query,
    fill,
    fills_hole,
    fire_run,
    follows,
    give_up,
    is_about_run,
    is_known,
    is_of_newest_run,
    is_of_run,
    is_still_missed,
    is_timer_of_run,
    put_query,
    refuse_run,
    release_next,
    shows_tail,
    tell_repeated,
    tell_reply_repeated,
    tell_reply_unexpected,
    want_run,
)
from statemachines.sequence_windows.held_stream_record import (
    HOLDING,
    BeginRun,
    DropStream,
    HeldStreamRecord,
    HeldStreamStatus,
    NextRun,
    NoRoom,
    PutQuery,
    RecoveredMessage,
    RefuseRun,
    StreamMessage,
)

# fmt: off
ROWS = (
    #   on                from     to    do                          when              clause
    Row(StreamMessage,    HOLDING, STAY, Delegate(fill),             fills_hole,       "SW-90"),
    Row(StreamMessage,    HOLDING, STAY, tell_repeated,              is_known,         "SW-91"),
    Row(StreamMessage,    HOLDING, STAY, Delegate(append),           is_of_newest_run, "SW-92"),
    Row(StreamMessage,    HOLDING, STAY, want_run,                   None,             "SW-93"),
    Row(BeginRun,         HOLDING, STAY, Delegate(begin_after_tail), shows_tail,       "SW-73"),
    Row(BeginRun,         HOLDING, STAY, Delegate(begin_next),       follows,          "SW-93"),
    Row(BeginRun,         HOLDING, STAY, Delegate(begin_apart),      None,             "SW-94"),
    Row(RefuseRun,        HOLDING, STAY, refuse_run,                 None,             "SW-74"),
    Row(NextRun,          HOLDING, STAY, release_next,               None,             "SW-95"),
    Row(RecoveredMessage, HOLDING, STAY, Delegate(fill),             fills_hole,       "SW-77"),
    Row(RecoveredMessage, HOLDING, STAY, tell_reply_repeated,        is_of_run,        "SW-77"),
    Row(RecoveredMessage, HOLDING, STAY, tell_reply_unexpected,      None,             "SW-77"),
    Row(PutQuery,         HOLDING, STAY, put_query,                  is_still_missed,  "SW-96"),
    Ignore((PutQuery,),   HOLDING,                                                     "SW-96"),
    Row(QueryEnded,       HOLDING, STAY, Delegate(end_query),        is_about_run,     "SW-97"),
    Ignore((QueryEnded,), HOLDING,                                                     "SW-97"),
    Row(QueryTimeout,     HOLDING, STAY, Delegate(fire_run),         is_timer_of_run,  "SW-97"),
    Row(Rested,           HOLDING, STAY, Delegate(fire_run),         is_timer_of_run,  "SW-97"),
    Ignore((RetentionOver,), HOLDING,                                                  "SW-97"),
    Row(NoRoom,           HOLDING, STAY, give_up,                    None,             "SW-74"),
    Row(DropStream,       HOLDING, STAY, drop,                       None,             "SW-75"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def keeps_runs_in_order(record: HeldStreamRecord) -> bool:
    """A run begins above everything that is known of the run before it, and has one frame."""
    numbers = [number for run in record.runs for number in (run.first, run.high)]
    starts = [run.first for run in record.runs]
    return starts == sorted(set(starts)) and all(
        one <= other for one, other in zip(numbers[1::2], starts[1:], strict=False)
    )


HELD_STREAM = Fsm(
    "held_stream",
    protocol="sequence_windows",
    record=HeldStreamRecord,
    states=HeldStreamStatus,
    initial=HOLDING,
    rows=ROWS,
    children=(SOURCE,),
    key=lambda record: record.stream,
    invariants=(Invariant("keeps-runs-in-order", "SW-93", keeps_runs_in_order),),
)
