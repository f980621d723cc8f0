"""Collector: deletes what no session needs any more (source: "Garbage collection of persistent data").

`idle -> finding <-> forgetting -> reading <-> deleting -> scanning <-> removing -> idle`: first clients that have not
come back before their sessions expired, then rows, page by page, then messages.  What is to go of a page is one
transaction, and each page stands by itself: a collector may stop after any, and begin anywhere.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Fsm, Ignore, Invariant, Row, Timer
from statemachines.persistent_sessions.collector_actions import (
    begin_round,
    break_off,
    count_and_find,
    count_and_forget,
    count_and_read,
    count_and_scan,
    delete_rows,
    end_round,
    find_on,
    forget_clients,
    has_clients_over,
    has_garbage,
    has_more,
    has_more_clients,
    has_more_messages,
    has_more_to_do,
    has_unneeded,
    read_first,
    read_on,
    remove_messages,
    scan,
    scan_on,
)
from statemachines.persistent_sessions.collector_record import (
    BUSY,
    DELETING,
    FINDING,
    FORGETTING,
    IDLE,
    READING,
    REMOVING,
    SCANNING,
    Collect,
    CollectorRecord,
    CollectorStatus,
    RoundDue,
)
from statemachines.persistent_sessions.collector_request import (
    ClientForgotten,
    ClientsRead,
    CollectFailed,
    MessagesRead,
    PageDeleted,
    RowsRead,
)
from statemachines.persistent_sessions.times import MS

# fmt: off
ROWS = (
    #   on             from      to        do                when               clause
    Row(RoundDue,      IDLE,     FINDING,  begin_round,      None,              "PS-80"),
    Row(Collect,       IDLE,     FINDING,  begin_round,      None,              "PS-80"),
    Row(ClientsRead,   FINDING,  FORGETTING, forget_clients, has_clients_over,  "PS-120"),
    Row(ClientsRead,   FINDING,  STAY,     find_on,          has_more_clients,  "PS-82"),
    Row(ClientsRead,   FINDING,  READING,  read_first,       None,              "PS-82"),
    Row(ClientForgotten, FORGETTING, STAY, count_and_forget, has_more_to_do,    "PS-121"),
    Row(ClientForgotten, FORGETTING, FINDING, count_and_find, None,             "PS-121"),
    Row(RowsRead,      READING,  DELETING, delete_rows,      has_garbage,       "PS-81"),
    Row(RowsRead,      READING,  STAY,     read_on,          has_more,          "PS-82"),
    Row(RowsRead,      READING,  SCANNING, scan,             None,              "PS-82"),
    Row(PageDeleted,   DELETING, READING,  count_and_read,   None,              "PS-83"),
    Row(MessagesRead,  SCANNING, REMOVING, remove_messages,  has_unneeded,      "PS-84"),
    Row(MessagesRead,  SCANNING, STAY,     scan_on,          has_more_messages, "PS-82"),
    Row(MessagesRead,  SCANNING, IDLE,     end_round,        None,              "PS-82"),
    Row(PageDeleted,   REMOVING, SCANNING, count_and_scan,   None,              "PS-85"),
    Row(CollectFailed, BUSY,     IDLE,     break_off,        None,              "PS-86"),
    Ignore((RoundDue, Collect),   BUSY,                                         "PS-80"),
    Ignore((CollectFailed,),      IDLE,                                         "PS-86"),
    Ignore((ClientsRead,), (IDLE, FORGETTING, READING, DELETING, SCANNING, REMOVING), "PS-87"),
    Ignore((RowsRead,), (IDLE, FINDING, FORGETTING, DELETING, SCANNING, REMOVING), "PS-87"),
    Ignore((MessagesRead,), (IDLE, FINDING, FORGETTING, READING, DELETING, REMOVING), "PS-87"),
    Ignore((PageDeleted,), (IDLE, FINDING, FORGETTING, READING, SCANNING),      "PS-87"),
    Ignore((ClientForgotten,), (IDLE, FINDING, READING, DELETING, SCANNING, REMOVING), "PS-87"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def has_one_page_to_do(record: CollectorRecord) -> bool:
    """It has clients to forget while it forgets, and never more than were read at once."""
    return bool(record.todo) == (record.status is FORGETTING) and len(record.todo) <= record.graces.page


COLLECTOR = Fsm(
    "collector",
    protocol="persistent_sessions",
    record=CollectorRecord,
    states=CollectorStatus,
    initial=IDLE,
    rows=ROWS,
    timers=(Timer("round", RoundDue, (IDLE,), lambda record: record.graces.round_ms * MS),),
    invariants=(Invariant("has-one-page-to-do", "PS-88", has_one_page_to_do),),
)
