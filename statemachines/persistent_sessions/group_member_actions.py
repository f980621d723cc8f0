"""What an event makes of a GroupMember: the guards and actions of its table (`group_member`).

SharedGroup: what is decided about groups whose streams are in the database of sessions (PS-470 to PS-472).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from msgspec.structs import replace

from statemachines.kernel import Ask, Effects, Event, Tell
from statemachines.persistent_sessions.group_member_record import (
    COUNT_AFTER,
    COUNT_AFTER_MAX,
    GROUPS,
    SERVING,
    AcknowledgePiece,
    CountStored,
    DeclareMemberGroup,
    FindWaiter,
    GroupJoined,
    GroupLost,
    GroupMemberRecord,
    GroupsOpened,
    HandedOut,
    JoinGroup,
    LeaveGroup,
    LookDue,
    MemberDeclared,
    MemberJoined,
    MemberOver,
    MemberRefused,
    MessagesCame,
    PieceStored,
    ReadTime,
    RouteStored,
    StoredCounted,
    StorePiece,
    TimeRead,
    WaiterFound,
)
from statemachines.persistent_sessions.in_flight_record import DONE, InFlightStatus
from statemachines.persistent_sessions.times import MS

GROUPS_MAX: Final = 1_000
"""Groups of a store that subscriptions declared."""

SESSION_GROUPS_MAX: Final = 100
"""Filters of groups that one session subscribes."""

IS_ENDING: Final = -1
"""Since when a group is idle that is being destroyed."""

WAIT_FOR_END: Final = "the group is ending"
"""Why a group may not be declared just now."""

AT_BOUND: Final = "may not have more"
"""In every refusal for a bound."""


class PublishWay(Enum):
    """What becomes of a publish that groups may want."""

    STREAM = "it is appended to the stream of its topic"
    MEMBER = "it goes to one session of each group that is connected"
    NONE = "no group wants it"


def choose_way(qos: int, has_groups: bool, is_letter: bool) -> PublishWay:
    """A message of QoS 0 is not stored for a group; a dead letter is stored whether or not a group is there for it."""
    if has_groups and qos == 0:
        return PublishWay.MEMBER
    return PublishWay.STREAM if has_groups or is_letter else PublishWay.NONE


def ends_at(now_ns: int, expiry_ms: int | None) -> int:
    """From when on a message that is published now is over (0: never)."""
    return 0 if expiry_ms is None else now_ns + expiry_ms * MS


def is_first_time(progress: int | None, offset: int) -> bool:
    """Whether no session has had the message: its stream was stored up to `progress` (None: nothing of it)."""
    return progress is None or progress <= offset


def is_stored_now(place: tuple[int, int] | None, epoch: int, first_number: int) -> bool:
    """Whether a range of rows is about to be stored, or its session is gone (None), and neither refused nor there: the
    writer has stored up to `place`, under an epoch and a number."""
    return place is None or (place[0] == epoch and place[1] < first_number)


def goes_back(status: InFlightStatus, qos: int) -> bool:
    """Whether a message in flight goes to another member when its session ends: of QoS 2 the client may have it."""
    return status is not DONE and qos != 2


def refuse_declaration(idle_ns: int | None, is_known: bool, session_groups: int, groups: int) -> str:
    """Why a subscription may not declare a group; "": it may.

    Args:
        idle_ns: of a group that subscriptions declared; None: they did not.
        is_known: the group is declared, by whomever.
        session_groups: filters of other groups that the session subscribes.
        groups: groups of the store that subscriptions declared.
    """
    if session_groups >= SESSION_GROUPS_MAX:
        return f"the session has {SESSION_GROUPS_MAX} filters of groups, and {AT_BOUND}; unsubscribe one"
    if idle_ns == IS_ENDING:
        return WAIT_FOR_END
    if idle_ns is None and not is_known and groups >= GROUPS_MAX:
        return f"the store has {GROUPS_MAX} groups that subscriptions declared, and {AT_BOUND}"
    return ""


def is_kept(idle_ns: int | None, is_known: bool) -> bool:
    """Whether subscriptions have declared the group, and not somebody else."""
    return idle_ns is not None or not is_known


def age_group(idle_ns: int, is_subscribed: bool, now_ns: int, expiry_ms: int) -> int:
    """Since when a group is idle; 0: it is not."""
    if idle_ns == IS_ENDING:
        return IS_ENDING
    if is_subscribed:
        return 0
    is_over = idle_ns > 0 and now_ns - idle_ns >= expiry_ms * MS
    return IS_ENDING if is_over else idle_ns or now_ns


Done = tuple[GroupMemberRecord, Effects]

LOOK_NS: Final = 250 * MS
"""How often a member without room looks whether another waits."""


# -- guards ---------------------------------------------------------------------------------------------------------


def is_bounded(record: GroupMemberRecord, event: GroupsOpened | WaiterFound) -> bool:
    return record.is_bounded


def is_ending(record: GroupMemberRecord, event: MemberDeclared) -> bool:
    return event.refusal == WAIT_FOR_END


def is_refused(record: GroupMemberRecord, event: MemberDeclared | GroupJoined) -> bool:
    return event.refusal != ""


def is_routed(record: GroupMemberRecord, event: GroupJoined) -> bool:
    return record.is_routed


def has_no_time(record: GroupMemberRecord, event: StoredCounted) -> bool:
    return record.since_ns == 0


def has_nothing(record: GroupMemberRecord, event: Event) -> bool:
    """Nothing is to be stored after the event."""
    return note(record, event).given == 0


def has_no_room(record: GroupMemberRecord, event: Event) -> bool:
    """As many messages wait for the client after the event as may."""
    after = note(record, event)
    return after.waiting >= after.most


def is_wanted(record: GroupMemberRecord, event: WaiterFound) -> bool:
    """Another member waits."""
    return event.is_there


def declares_anew(record: GroupMemberRecord, event: WaiterFound) -> bool:
    """Another member waits; the group that the subscription declared is declared again."""
    return event.is_there and record.is_bounded


def counts_now(record: GroupMemberRecord, event: WaiterFound) -> bool:
    """It has looked so often that it is counted."""
    return record.looks >= record.count_at


def has_room(record: GroupMemberRecord) -> bool:
    """Whether its session may be given more, as far as is known."""
    return record.status in SERVING and record.waiting < record.most


# -- what is known --------------------------------------------------------------------------------------------------


def note(record: GroupMemberRecord, event: Event) -> GroupMemberRecord:
    """The record with what the event says of messages."""
    match event:
        case MessagesCame(count):
            return replace(record, given=record.given + count)
        case HandedOut():
            return replace(record, waiting=max(0, record.waiting - 1))
        case PieceStored(count, stored):
            return replace(record, given=record.given - count, waiting=record.waiting + stored)
        case StoredCounted(count):
            return replace(record, waiting=min(count, record.most))
        case TimeRead(time_ns):
            return replace(record, since_ns=time_ns)
    return record


def keep(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    return note(record, event), ()


def note_route(record: GroupMemberRecord, event: RouteStored, now_ns: int) -> Done:
    return replace(record, is_routed=True), ()


# -- joining --------------------------------------------------------------------------------------------------------


def declare(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    return record, (Ask(GROUPS, DeclareMemberGroup(record.id)),)


def join(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    return record, (Ask(GROUPS, JoinGroup(record.id)),)


def refuse(record: GroupMemberRecord, event: MemberDeclared | GroupJoined, now_ns: int) -> Done:
    lost = (Tell(GroupLost(event.refusal)),) if record.is_routed else ()
    return record, (*lost, Tell(MemberRefused(event.refusal)))


def tell_joined(record: GroupMemberRecord, event: GroupJoined, now_ns: int) -> Done:
    return record, (Tell(MemberJoined()),)


def tell_and_count(record: GroupMemberRecord, event: GroupJoined, now_ns: int) -> Done:
    return record, (Tell(MemberJoined()), *count(record))


def count_first(record: GroupMemberRecord, event: RouteStored, now_ns: int) -> Done:
    return replace(record, is_routed=True), count(record)


def count(record: GroupMemberRecord) -> Effects:
    return (Ask(GROUPS, CountStored(record.id)),)


def read_time(record: GroupMemberRecord, event: StoredCounted, now_ns: int) -> Done:
    return note(record, event), (Ask(GROUPS, ReadTime(record.id)),)


# -- storing --------------------------------------------------------------------------------------------------------


def rest(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    return note(record, event), acknowledge(record, event)


def store_next(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    after = replace(note(record, event), looks=0, count_at=COUNT_AFTER)
    piece = StorePiece(record.id, record.token, after.since_ns, after.most - after.waiting)
    return after, (*acknowledge(record, event), Ask(GROUPS, piece))


def acknowledge(record: GroupMemberRecord, event: Event) -> Effects:
    """What was stored is acknowledged, and nothing else."""
    return (Ask(GROUPS, AcknowledgePiece(record.id, event.count)),) if isinstance(event, PieceStored) else ()


# -- without room ---------------------------------------------------------------------------------------------------


def look(record: GroupMemberRecord, event: LookDue, now_ns: int) -> Done:
    return replace(record, looks=record.looks + 1), (Ask(GROUPS, FindWaiter(record.id)),)


def count_again(record: GroupMemberRecord, event: WaiterFound, now_ns: int) -> Done:
    later = record.count_at + min(record.count_at, COUNT_AFTER_MAX)
    return replace(record, count_at=later), count(record)


def leave_and_join(record: GroupMemberRecord, event: WaiterFound, now_ns: int) -> Done:
    return step_back(record), (Ask(GROUPS, LeaveGroup(record.id)), Ask(GROUPS, JoinGroup(record.id)))


def leave_and_declare(record: GroupMemberRecord, event: WaiterFound, now_ns: int) -> Done:
    return step_back(record), (Ask(GROUPS, LeaveGroup(record.id)), Ask(GROUPS, DeclareMemberGroup(record.id)))


def step_back(record: GroupMemberRecord) -> GroupMemberRecord:
    """It has nothing of the group any more, and begins anew."""
    return replace(record, given=0, since_ns=0, looks=0, count_at=COUNT_AFTER)


# -- the end --------------------------------------------------------------------------------------------------------


def tell_over(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    return record, (Tell(MemberOver()),)


def leave_unheard(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    return record, (*leave(record), Tell(MemberOver()))


def leave_group(record: GroupMemberRecord, event: Event, now_ns: int) -> Done:
    return record, leave(record)


def acknowledge_last(record: GroupMemberRecord, event: PieceStored, now_ns: int) -> Done:
    return note(record, event), (*acknowledge(record, event), *leave(record))


def leave(record: GroupMemberRecord) -> Effects:
    return (Ask(GROUPS, LeaveGroup(record.id)),)
