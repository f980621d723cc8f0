"""GroupMember: brings messages of one group into one session (page: "A session serves private and shared streams").

`opening -> joining -> joined -> counting -> timing -> idle -> storing -> idle`.  What the group gives is stored as rows
of the session, in its order and one piece at a time, and only then acknowledged to the group.  From there on it is the
session's: it gets its packet id as if it had been published for the session alone.
"""

from __future__ import annotations

from statemachines.kernel import STAY, Fsm, Ignore, Invariant, Row, Timer
from statemachines.persistent_sessions import group_member_actions as actions
from statemachines.persistent_sessions import group_member_record as member
from statemachines.persistent_sessions.group_member_record import GroupMemberRecord, GroupMemberStatus

OPENING, DECLARING, ENDING, JOINING, JOINED, COUNTING, TIMING, IDLE, STORING, FULL, LAST, GONE = GroupMemberStatus


def but(*states: GroupMemberStatus) -> tuple[GroupMemberStatus, ...]:
    """All states but these and the last one."""
    return tuple(state for state in GroupMemberStatus if state not in (*states, GONE))


OUTSIDE = (OPENING, DECLARING, ENDING)
NOT_JOINED = (*OUTSIDE, JOINING)
IN_GROUP = but(*NOT_JOINED)
NOT_FULL = but(*NOT_JOINED, FULL, LAST)
NOT_STORING = but(*NOT_JOINED, STORING, LAST)


# fmt: off
ROWS = (
    #   on                     from             to         do                         when                   clause
    Row(member.GroupsOpened,   OPENING,         DECLARING, actions.declare,           actions.is_bounded,    "PS-472"),
    Row(member.GroupsOpened,   OPENING,         JOINING,   actions.join,              None,                  "PS-260"),
    Row(member.MemberDeclared, DECLARING,       ENDING,    None,                      actions.is_ending,"PS-472"),
    Row(member.MemberDeclared, DECLARING,       GONE,      actions.refuse,            actions.is_refused,    "PS-472"),
    Row(member.MemberDeclared, DECLARING,       JOINING,   actions.join,              None,                  "PS-472"),
    Row(member.DeclareDue,     ENDING,          DECLARING, actions.declare,           None,                  "PS-472"),
    Row(member.GroupJoined,    JOINING,         GONE,      actions.refuse,            actions.is_refused,    "PS-267"),
    Row(member.GroupJoined,    JOINING,         COUNTING,  actions.tell_and_count,    actions.is_routed,     "PS-260"),
    Row(member.GroupJoined,    JOINING,         JOINED,    actions.tell_joined,       None,                  "PS-260"),
    Row(member.RouteStored,    NOT_JOINED,      STAY,      actions.note_route,        None,                  "PS-260"),
    Row(member.RouteStored,    JOINED,          COUNTING,  actions.count_first,       None,                  "PS-263"),
    Row(member.StoredCounted,  COUNTING,        TIMING,    actions.read_time,         actions.has_no_time,   "PS-287"),
    Row(member.StoredCounted,  COUNTING,        FULL,      actions.rest,              actions.has_no_room,   "PS-263"),
    Row(member.StoredCounted,  COUNTING,        STORING,   actions.store_next,        None,                  "PS-263"),
    Row(member.TimeRead,       TIMING,          IDLE,      actions.rest,              actions.has_nothing,   "PS-287"),
    Row(member.TimeRead,       TIMING,          FULL,      actions.rest,              actions.has_no_room,   "PS-263"),
    Row(member.TimeRead,       TIMING,          STORING,   actions.store_next,        None,                  "PS-287"),
    Row(member.MessagesCame,   IDLE,            FULL,      actions.rest,              actions.has_no_room,   "PS-263"),
    Row(member.MessagesCame,   IDLE,            STORING,   actions.store_next,        None,                  "PS-262"),
    Row(member.MessagesCame,   but(IDLE, LAST), STAY,      actions.keep,              None,                  "PS-262"),
    Row(member.PieceStored,    STORING,         IDLE,      actions.rest,              actions.has_nothing,   "PS-261"),
    Row(member.PieceStored,    STORING,         FULL,      actions.rest,              actions.has_no_room,   "PS-261"),
    Row(member.PieceStored,    STORING,         STORING,   actions.store_next,        None,                  "PS-261"),
    Row(member.PieceStored,    LAST,            GONE,      actions.acknowledge_last,  None,                  "PS-641"),
    Row(member.PieceRefused,   (STORING, LAST), GONE,      actions.leave_group,       None,                  "PS-642"),
    Row(member.HandedOut,      FULL,            STORING,   actions.store_next,        None,                  "PS-263"),
    Row(member.HandedOut,      NOT_FULL,        STAY,      actions.keep,              None,                  "PS-263"),
    Row(member.LookDue,        FULL,            FULL,      actions.look,              None,                  "PS-650"),
    Row(member.WaiterFound,    FULL,            DECLARING, actions.leave_and_declare, actions.declares_anew, "PS-269"),
    Row(member.WaiterFound,    FULL,            JOINING,   actions.leave_and_join,    actions.is_wanted,     "PS-269"),
    Row(member.WaiterFound,    FULL,            COUNTING,  actions.count_again,       actions.counts_now,    "PS-650"),
    Row(member.WaiterFound,    FULL,            STAY,      None,                      None,                  "PS-650"),
    Row(member.EndMember,      OUTSIDE,         GONE,      actions.tell_over,         None,                  "PS-265"),
    Row(member.EndMember,      JOINING,         GONE,      actions.leave_unheard,     None,                  "PS-265"),
    Row(member.EndMember,      NOT_STORING,     GONE,      actions.leave_group,       None,                  "PS-265"),
    Row(member.EndMember,      STORING,         LAST,      None,                      None,                  "PS-641"),
    Row(member.AbandonMember,  OUTSIDE,         GONE,      actions.tell_over,         None,                  "PS-332"),
    Row(member.AbandonMember,  JOINING,         GONE,      actions.leave_unheard,     None,                  "PS-332"),
    Row(member.AbandonMember,  IN_GROUP,        GONE,      actions.leave_group,       None,                  "PS-332"),
    Ignore((member.EndMember, member.MessagesCame),       LAST,                       "PS-641"),
    Ignore((member.HandedOut,),                           (*NOT_JOINED, LAST),        "PS-640"),
    Ignore((member.GroupsOpened,),                        but(OPENING),               "PS-640"),
    Ignore((member.MemberDeclared,),                      but(DECLARING),             "PS-640"),
    Ignore((member.GroupJoined,),                         but(JOINING),               "PS-640"),
    Ignore((member.StoredCounted,),                       but(COUNTING),              "PS-640"),
    Ignore((member.TimeRead,),                            but(TIMING),                "PS-640"),
    Ignore((member.PieceStored, member.PieceRefused),     but(STORING, LAST),         "PS-640"),
    Ignore((member.WaiterFound, member.LookDue),          but(FULL),                  "PS-640"),
    Ignore((member.DeclareDue,),                          but(ENDING),                "PS-640"),
    Ignore((member.RouteStored,),                         (*member.SERVING, LAST),   "PS-640"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def counts_what_it_has(record: GroupMemberRecord) -> bool:
    """It stores only what it has, where there is room, and knows by then what comes before it."""
    if record.status in (OPENING, DECLARING, ENDING, JOINING, JOINED, GONE):
        return record.given >= 0
    if record.status is TIMING or (record.status is COUNTING and not record.since_ns):
        return record.given >= 0
    return record.since_ns > 0 and record.given >= int(record.status is not IDLE)


GROUP_MEMBER = Fsm(
    "group_member",
    protocol="persistent_sessions",
    record=GroupMemberRecord,
    states=GroupMemberStatus,
    initial=OPENING,
    final=(GONE,),
    rows=ROWS,
    timers=(
        Timer("declare", member.DeclareDue, (ENDING,), lambda record: actions.LOOK_NS),
        Timer("look", member.LookDue, (FULL,), lambda record: actions.LOOK_NS),
    ),
    invariants=(Invariant("stores-what-it-has", "PS-643", counts_what_it_has),),
)
