"""What an event makes of a GroupMember: the guards and actions of its table (`group_member`)."""

from __future__ import annotations

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
from statemachines.persistent_sessions.shared_group import WAIT_FOR_END
from statemachines.persistent_sessions.times import MS

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
