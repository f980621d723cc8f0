"""GroupMember: brings messages of one group into one session (page: "A session serves private and shared streams").

`opening -> joining -> joined -> counting -> timing -> idle -> storing -> idle`.  What the group gives is stored as rows
of the session, in its order and one piece at a time, and only then acknowledged to the group.  From there on it is the
session's: it gets its packet id as if it had been published for the session alone.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Fsm, Ignore, Invariant, Row, Timer
from statemachines.persistent_sessions.group_member_actions import (
    LOOK_NS,
    acknowledge_and_leave,
    count_again,
    count_first,
    counts_now,
    declare,
    has_no_room,
    has_no_time,
    has_nothing,
    is_bounded,
    is_group_ending,
    is_refused,
    is_routed,
    is_wanted,
    is_wanted_and_bounded,
    join,
    keep,
    leave_and_declare,
    leave_and_join,
    leave_group,
    leave_refused,
    leave_unheard,
    look,
    note_route,
    read_time,
    refuse,
    rest,
    store_next,
    tell_and_count,
    tell_joined,
    tell_over,
)
from statemachines.persistent_sessions.group_member_record import (
    COUNTING,
    DECLARING,
    ENDING,
    FULL,
    GONE,
    IDLE,
    JOINED,
    JOINING,
    LAST,
    OPENING,
    SERVING,
    STORING,
    TIMING,
    AbandonMember,
    DeclareDue,
    EndMember,
    GroupJoined,
    GroupMemberRecord,
    GroupMemberStatus,
    GroupsOpened,
    HandedOut,
    LookDue,
    MemberDeclared,
    MessagesCame,
    PieceRefused,
    PieceStored,
    RouteStored,
    StoredCounted,
    TimeRead,
    WaiterFound,
)

OUTSIDE_GROUP = (OPENING, DECLARING, ENDING)
ALL = (*OUTSIDE_GROUP, JOINING, JOINED, *SERVING, LAST)


def but(*states: GroupMemberStatus) -> tuple[GroupMemberStatus, ...]:
    """All states but these and the last one."""
    return tuple(state for state in ALL if state not in states)


# fmt: off
ROWS = (
    #   on             from                      to         do                     when                   clause
    Row(GroupsOpened,  OPENING,                  DECLARING, declare,               is_bounded,            "PS-472"),
    Row(GroupsOpened,  OPENING,                  JOINING,   join,                  None,                  "PS-260"),
    Row(MemberDeclared, DECLARING,               ENDING,    None,                  is_group_ending,       "PS-472"),
    Row(MemberDeclared, DECLARING,               GONE,      refuse,                is_refused,            "PS-472"),
    Row(MemberDeclared, DECLARING,               JOINING,   join,                  None,                  "PS-472"),
    Row(DeclareDue,    ENDING,                   DECLARING, declare,               None,                  "PS-472"),
    Row(GroupJoined,   JOINING,                  GONE,      refuse,                is_refused,            "PS-267"),
    Row(GroupJoined,   JOINING,                  COUNTING,  tell_and_count,        is_routed,             "PS-260"),
    Row(GroupJoined,   JOINING,                  JOINED,    tell_joined,           None,                  "PS-260"),
    Row(RouteStored,   (*OUTSIDE_GROUP, JOINING), STAY,     note_route,            None,                  "PS-260"),
    Row(RouteStored,   JOINED,                   COUNTING,  count_first,           None,                  "PS-263"),
    Row(StoredCounted, COUNTING,                 TIMING,    read_time,             has_no_time,           "PS-287"),
    Row(StoredCounted, COUNTING,                 IDLE,      rest,                  has_nothing,           "PS-263"),
    Row(StoredCounted, COUNTING,                 FULL,      rest,                  has_no_room,           "PS-263"),
    Row(StoredCounted, COUNTING,                 STORING,   store_next,            None,                  "PS-263"),
    Row(TimeRead,      TIMING,                   IDLE,      rest,                  has_nothing,           "PS-287"),
    Row(TimeRead,      TIMING,                   FULL,      rest,                  has_no_room,           "PS-263"),
    Row(TimeRead,      TIMING,                   STORING,   store_next,            None,                  "PS-287"),
    Row(MessagesCame,  IDLE,                     FULL,      rest,                  has_no_room,           "PS-263"),
    Row(MessagesCame,  IDLE,                     STORING,   store_next,            None,                  "PS-262"),
    Row(MessagesCame,  but(IDLE, LAST),          STAY,      keep,                  None,                  "PS-262"),
    Row(PieceStored,   STORING,                  IDLE,      rest,                  has_nothing,           "PS-261"),
    Row(PieceStored,   STORING,                  FULL,      rest,                  has_no_room,           "PS-261"),
    Row(PieceStored,   STORING,                  STORING,   store_next,            None,                  "PS-261"),
    Row(PieceStored,   LAST,                     GONE,      acknowledge_and_leave, None,                  "PS-641"),
    Row(PieceRefused,  (STORING, LAST),          GONE,      leave_refused,         None,                  "PS-642"),
    Row(HandedOut,     FULL,                     STORING,   store_next,            None,                  "PS-263"),
    Row(HandedOut,     (JOINED, COUNTING, TIMING, IDLE, STORING), STAY, keep,      None,                  "PS-263"),
    Row(LookDue,       FULL,                     STAY,      look,                  None,                  "PS-269"),
    Row(WaiterFound,   FULL,                     DECLARING, leave_and_declare,     is_wanted_and_bounded, "PS-269"),
    Row(WaiterFound,   FULL,                     JOINING,   leave_and_join,        is_wanted,             "PS-269"),
    Row(WaiterFound,   FULL,                     COUNTING,  count_again,           counts_now,            "PS-263"),
    Row(WaiterFound,   FULL,                     STAY,      None,                  None,                  "PS-263"),
    Row(EndMember,     OUTSIDE_GROUP,            GONE,      tell_over,             None,                  "PS-265"),
    Row(EndMember,     JOINING,                  GONE,      leave_unheard,         None,                  "PS-265"),
    Row(EndMember,     (JOINED, COUNTING, TIMING, IDLE, FULL), GONE, leave_group,  None,                  "PS-265"),
    Row(EndMember,     STORING,                  LAST,      None,                  None,                  "PS-641"),
    Row(AbandonMember, OUTSIDE_GROUP,            GONE,      tell_over,             None,                  "PS-332"),
    Row(AbandonMember, JOINING,                  GONE,      leave_unheard,         None,                  "PS-332"),
    Row(AbandonMember, (JOINED, *SERVING, LAST), GONE,      leave_group,           None,                  "PS-332"),
    Ignore((EndMember, MessagesCame),            LAST,                                                    "PS-641"),
    Ignore((HandedOut,),                         (*OUTSIDE_GROUP, JOINING, LAST),                         "PS-640"),
    Ignore((GroupsOpened,),                      but(OPENING),                                            "PS-640"),
    Ignore((MemberDeclared,),                    but(DECLARING),                                          "PS-640"),
    Ignore((GroupJoined,),                       but(JOINING),                                            "PS-640"),
    Ignore((StoredCounted,),                     but(COUNTING),                                           "PS-640"),
    Ignore((TimeRead,),                          but(TIMING),                                             "PS-640"),
    Ignore((PieceStored, PieceRefused),          but(STORING, LAST),                                      "PS-640"),
    Ignore((WaiterFound, LookDue),               but(FULL),                                               "PS-640"),
    Ignore((DeclareDue,),                        but(ENDING),                                             "PS-640"),
    Ignore((RouteStored,),                       (*SERVING, LAST),                                        "PS-640"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def counts_what_it_has(record: GroupMemberRecord) -> bool:
    """It stores only what it has, where there is room, and knows by then what comes before it."""
    if record.status in (OPENING, DECLARING, ENDING, JOINING, JOINED, GONE):
        return record.given >= 0
    is_storing = record.status in (STORING, LAST)
    is_ready = record.since_ns > 0 or record.status in (COUNTING, TIMING)
    return is_ready and record.given >= int(is_storing or record.status is FULL)


GROUP_MEMBER = Fsm(
    "group_member",
    protocol="persistent_sessions",
    record=GroupMemberRecord,
    states=GroupMemberStatus,
    initial=OPENING,
    final=(GONE,),
    rows=ROWS,
    timers=(
        Timer("declare", DeclareDue, (ENDING,), lambda record: LOOK_NS),
        Timer("look", LookDue, (FULL,), lambda record: LOOK_NS),
    ),
    invariants=(Invariant("stores-what-it-has", "PS-643", counts_what_it_has),),
)
