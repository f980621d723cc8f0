"""Writer: the one who stores the messages of a session on a node, and sends them live (source: "Writer processes").

`new -> beginning -> idle -> storing | marking -> idle`.  One step of its serial order is: number, store, send live,
answer the publishers.  All that waits meanwhile is the next step: a range of rows, stored in one transaction, all or
none.  A marker is a step like others and takes no number.  A range is stored under the writer's epoch; if somebody has
raised it, the whole range is numbered and stored anew under the next.
"""

from __future__ import annotations

from statemachines.kernel import ANY, STAY, Fsm, Ignore, Invariant, Refuse, Row
from statemachines.persistent_sessions.message import MarkerWanted
from statemachines.persistent_sessions.request import (
    EpochBegun,
    RowFenced,
    RowRead,
    RowsDuplicate,
    RowStored,
    RowUnclear,
)
from statemachines.persistent_sessions.writer_actions import (
    begin,
    begin_epoch,
    drop_all,
    drop_duplicates,
    end_live,
    go_live,
    is_answered,
    is_found,
    is_found_and_marker_is_next,
    is_found_and_row_is_next,
    is_known_later,
    is_later,
    is_latest,
    is_of_the_owner,
    leaves_rows,
    mark,
    marker_is_next,
    put_again,
    put_under_next_epoch,
    queue,
    queue_marker,
    queue_range,
    read_back,
    row_is_next,
    send_and_go_on,
    show_again,
    show_and_go_on,
    store,
    store_range,
)
from statemachines.persistent_sessions.writer_record import (
    BEGINNING,
    BUSY,
    IDLE,
    MARKING,
    NEW,
    READING,
    STORING,
    Hand,
    HandRange,
    LiveGone,
    LiveKnown,
    Start,
    WriterRecord,
    WriterStatus,
)

KNOWN = (IDLE, *BUSY)
"""It has an epoch."""
WORKING = (NEW, BEGINNING, *BUSY)
"""What comes waits."""

# fmt: off
ROWS = (
    #   on            from                      to         do                    when                         clause
    Row(Start,        NEW,                      BEGINNING, begin,                None,                        "PS-01"),
    Row(EpochBegun,   BEGINNING,                STORING,   begin_epoch,          row_is_next,                 "PS-01"),
    Row(EpochBegun,   BEGINNING,                MARKING,   begin_epoch,          marker_is_next,              "PS-01"),
    Row(EpochBegun,   BEGINNING,                IDLE,      begin_epoch,          None,                        "PS-01"),
    Row(Hand,         IDLE,                     STORING,   store,                None,                        "PS-02"),
    Row(Hand,         WORKING,                  STAY,      queue,                None,                        "PS-03"),
    Row(HandRange,    IDLE,                     STORING,   store_range,          None,                        "PS-491"),
    Row(HandRange,    WORKING,                  STAY,      queue_range,          None,                        "PS-491"),
    Row(RowStored,    STORING,                  STORING,   send_and_go_on,       row_is_next,                 "PS-04"),
    Row(RowStored,    STORING,                  MARKING,   send_and_go_on,       marker_is_next,              "PS-04"),
    Row(RowStored,    STORING,                  IDLE,      send_and_go_on,       None,                        "PS-04"),
    Row(RowsDuplicate, STORING,                 STAY,      drop_duplicates,      leaves_rows,                 "PS-475"),
    Row(RowsDuplicate, STORING,                 STORING,   drop_all,             row_is_next,                 "PS-475"),
    Row(RowsDuplicate, STORING,                 MARKING,   drop_all,             marker_is_next,              "PS-475"),
    Row(RowsDuplicate, STORING,                 IDLE,      drop_all,             None,                        "PS-475"),
    Row(RowUnclear,   STORING,                  READING,   read_back,            None,                        "PS-05"),
    Row(RowRead,      READING,                  STORING,   send_and_go_on,       is_found_and_row_is_next,    "PS-05"),
    Row(RowRead,      READING,                  MARKING,   send_and_go_on,       is_found_and_marker_is_next, "PS-05"),
    Row(RowRead,      READING,                  IDLE,      send_and_go_on,       is_found,                    "PS-05"),
    Row(RowRead,      READING,                  STORING,   put_again,            None,                        "PS-05"),
    Row(RowFenced,    (STORING, MARKING),       STAY,      put_under_next_epoch, None,                        "PS-06"),
    Row(MarkerWanted, KNOWN,                    STAY,      show_again,           is_answered,                 "PS-08"),
    Row(MarkerWanted, IDLE,                     MARKING,   mark,                 is_latest,                   "PS-07"),
    Row(MarkerWanted, WORKING,                  STAY,      queue_marker,         is_later,                    "PS-03"),
    Row(RowStored,    MARKING,                  STORING,   show_and_go_on,       row_is_next,                 "PS-07"),
    Row(RowStored,    MARKING,                  MARKING,   show_and_go_on,       marker_is_next,              "PS-07"),
    Row(RowStored,    MARKING,                  IDLE,      show_and_go_on,       None,                        "PS-07"),
    Row(RowUnclear,   MARKING,                  STAY,      put_again,            None,                        "PS-05"),
    Row(LiveKnown,    ANY,                      STAY,      go_live,              is_known_later,              "PS-09"),
    Row(LiveGone,     ANY,                      STAY,      end_live,             is_of_the_owner,             "PS-09"),
    Ignore((MarkerWanted,),                     ANY,                                                          "PS-10"),
    Ignore((LiveKnown, LiveGone),               ANY,                                                          "PS-09"),
    Ignore((RowStored, RowFenced, RowUnclear),  (NEW, BEGINNING, IDLE, READING),                          "PS-11"),
    Ignore((RowsDuplicate,),                    (NEW, BEGINNING, IDLE, READING, MARKING),                 "PS-11"),
    Ignore((RowRead,),                          (NEW, BEGINNING, IDLE, STORING, MARKING),                 "PS-11"),
    Ignore((EpochBegun,),                       (NEW, IDLE, *BUSY),                                       "PS-11"),
    Refuse((Start,),                            (BEGINNING, IDLE, *BUSY),                                 "PS-01"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def works_at_one_thing(record: WriterRecord) -> bool:
    """A busy writer has a job, and no other has: a range, or a marker."""
    job = record.job
    return (job is not None) == (record.status in BUSY) and (job is None or (job.marker is None) == bool(job.hands))


def is_bounded(record: WriterRecord) -> bool:
    """A range has no more rows than it may."""
    return record.job is None or len(record.job.hands) <= record.range_max


def has_its_places(record: WriterRecord) -> bool:
    """Messages wait one behind the other, and a marker has its turn among them."""
    ends = (record.head, record.end - 1) if record.inbox else ()
    return all(place in record.inbox for place in ends) and (
        record.waiting is None or record.head <= record.place <= record.end
    )


WRITER = Fsm(
    "writer",
    protocol="persistent_sessions",
    record=WriterRecord,
    states=WriterStatus,
    initial=NEW,
    rows=ROWS,
    invariants=(
        Invariant("works-at-one-thing", "PS-12", works_at_one_thing),
        Invariant("range-is-bounded", "PS-400", is_bounded),
        Invariant("inbox-has-its-places", "PS-03", has_its_places),
    ),
)
