"""Delivery: takes messages into the session state, commits it, and only then sends them (page: rule 8).

`ready <-> committing`.  What comes while a commit is open waits for the next one, which covers all of it.  Messages
go out in the order in which they were taken, as far as the client's receive maximum lets them; from the commit on the
state answers for them, so their rows are marked.  A message whose time was over when it was to be committed is passed
over: it is done, and is not sent.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Delegate, Fsm, Ignore, Invariant, Row
from statemachines.persistent_sessions.delivery_actions import (
    acknowledge,
    acknowledge_and_commit,
    commit_received,
    commit_take,
    has_more,
    has_over,
    has_over_and_more,
    is_first_receipt,
    is_held,
    makes_room,
    may_send_more,
    pass_over,
    pass_over_and_commit,
    queue_received,
    queue_take,
    resend,
    resend_and_commit,
    send_and_commit,
    send_committed,
    waits_already,
)
from statemachines.persistent_sessions.delivery_record import COMMITTING, READY, DeliveryRecord, DeliveryStatus
from statemachines.persistent_sessions.in_flight import IN_FLIGHT, Resend
from statemachines.persistent_sessions.in_flight_record import TAKEN
from statemachines.persistent_sessions.message import Puback, Pubcomp, Pubrec
from statemachines.persistent_sessions.request import StateCommitted
from statemachines.persistent_sessions.writer_flow_record import BlockRows, Take

ALWAYS = (READY, COMMITTING)

# fmt: off
ROWS = (
    #   on              from        to          do                                when              clause
    Row(Resend,         READY,      COMMITTING, Delegate(resend_and_commit),      may_send_more,     "PS-41"),
    Row(Resend,         READY,      STAY,       Delegate(resend),                 None,              "PS-41"),
    Row(Take,           READY,      COMMITTING, Delegate(commit_take),            None,              "PS-42"),
    Row(Take,           COMMITTING, STAY,       queue_take,                       None,              "PS-43"),
    Row(BlockRows,      ALWAYS,     STAY,       None,                             None,              "PS-480"),
    Row(StateCommitted, COMMITTING, COMMITTING, Delegate(pass_over_and_commit),   has_over_and_more, "PS-208"),
    Row(StateCommitted, COMMITTING, READY,      Delegate(pass_over),              has_over,          "PS-208"),
    Row(StateCommitted, COMMITTING, COMMITTING, Delegate(send_and_commit),        has_more,          "PS-44"),
    Row(StateCommitted, COMMITTING, READY,      Delegate(send_committed),         None,              "PS-44"),
    Row(Pubrec,         READY,      COMMITTING, Delegate(commit_received),        is_first_receipt,  "PS-45"),
    Row(Pubrec,         COMMITTING, STAY,       None,                             waits_already,     "PS-45"),
    Row(Pubrec,         COMMITTING, STAY,       queue_received,                   is_first_receipt,  "PS-45"),
    Row(Puback,         READY,      COMMITTING, Delegate(acknowledge_and_commit), makes_room,        "PS-46"),
    Row(Pubcomp,        READY,      COMMITTING, Delegate(acknowledge_and_commit), makes_room,        "PS-46"),
    Row(Puback,         ALWAYS,     STAY,       Delegate(acknowledge),            is_held,           "PS-46"),
    Row(Pubrec,         ALWAYS,     STAY,       Delegate(acknowledge),            is_held,           "PS-45"),
    Row(Pubcomp,        ALWAYS,     STAY,       Delegate(acknowledge),            is_held,           "PS-46"),
    Ignore((Puback, Pubrec, Pubcomp), ALWAYS,                                                        "PS-47"),
    Ignore((StateCommitted,), READY,                                                                 "PS-48"),
    Ignore((Resend,),         COMMITTING,                                                            "PS-41"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def holds_what_it_may(record: DeliveryRecord) -> bool:
    """No more is in flight than the client receives, and each packet is kept under its id."""
    packets = record.state.packets
    return len(packets) <= record.receive_maximum and all(packets[key].packet == key for key in packets)


def waits_for_one_commit(record: DeliveryRecord) -> bool:
    """Only an open commit has something to send; what is taken and not sent belongs to it."""
    if record.status is READY:
        return not (record.outgoing or record.received or record.marks or record.inbox)
    open_packets = {one.packet for one in record.outgoing}
    packets = record.state.packets
    return all(packets[key].status is not TAKEN or key in open_packets for key in packets)


DELIVERY = Fsm(
    "delivery",
    protocol="persistent_sessions",
    record=DeliveryRecord,
    states=DeliveryStatus,
    initial=READY,
    rows=ROWS,
    children=(IN_FLIGHT,),
    key=lambda record: record.session,
    invariants=(
        Invariant("holds-what-it-may", "PS-49", holds_what_it_may),
        Invariant("waits-for-one-commit", "PS-40", waits_for_one_commit),
    ),
)
