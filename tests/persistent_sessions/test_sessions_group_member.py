"""GroupMember: whom a session joins, what it stores, and when it acknowledges to the group."""

from __future__ import annotations

import pytest
from msgspec import structs

from statemachines.kernel import Ask, Node
from statemachines.persistent_sessions.group_member import GROUP_MEMBER
from statemachines.persistent_sessions.group_member_actions import LOOK_NS
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
    STORING,
    AbandonMember,
    AcknowledgePiece,
    CountStored,
    DeclareMemberGroup,
    EndMember,
    FindWaiter,
    GroupJoined,
    GroupLost,
    GroupMemberRecord,
    GroupsOpened,
    HandedOut,
    JoinGroup,
    LeaveGroup,
    MemberDeclared,
    MemberJoined,
    MemberOver,
    MemberRefused,
    MessagesCame,
    PieceRefused,
    PieceStored,
    ReadTime,
    RouteStored,
    StoredCounted,
    StorePiece,
    TimeRead,
    WaiterFound,
)
from statemachines.persistent_sessions.shared_group import WAIT_FOR_END

ME = "1 $share/g/jobs/#"
MOST = 3
TO_ROUTE = (GroupsOpened(), GroupJoined())
TO_IDLE = (*TO_ROUTE, RouteStored(), StoredCounted(0), TimeRead(7))
LATE = (GroupJoined(), MemberDeclared(), StoredCounted(1), TimeRead(9), PieceStored(1, 1), PieceRefused(),
        WaiterFound(True))  # fmt: skip


def member(*events, **given):
    """A member that has taken these events."""
    record = GroupMemberRecord(ME, 2, **{"most": MOST, **given})
    node = Node(GROUP_MEMBER, record, name=ME, now_ns=0, check=True)
    for event in events:
        node.feed(event, 0)
    return node


def take(node, event, now_ns=0):
    """What it asks and tells on this event."""
    return [one.request if isinstance(one, Ask) else one.event for one in node.feed(event, now_ns)]


def status(node):
    return node.record.status


def test_PS_260_a_member_joins_when_its_node_takes_part_and_stores_when_its_session_subscribes():
    node = member()
    assert take(node, GroupsOpened()) == [JoinGroup(ME)]
    assert take(node, GroupJoined()) == [MemberJoined()]
    assert status(node) is JOINED
    assert take(node, MessagesCame(1)) == []
    assert take(node, RouteStored()) == [CountStored(ME)]
    early = member(RouteStored(), GroupsOpened())
    assert take(early, GroupJoined()) == [MemberJoined(), CountStored(ME)]


def test_PS_287_the_store_time_is_read_before_the_first_message_is_stored():
    node = member(*TO_ROUTE, RouteStored(), MessagesCame(5))
    assert take(node, StoredCounted(1)) == [ReadTime(ME)]
    assert take(node, TimeRead(7)) == [StorePiece(ME, 2, 7, 2)]
    assert status(member(*TO_IDLE)) is IDLE
    full = member(*TO_ROUTE, RouteStored(), MessagesCame(1), StoredCounted(MOST))
    assert take(full, TimeRead(7)) == []
    assert status(full) is FULL


def test_PS_261_PS_262_a_piece_is_acknowledged_when_it_is_stored_and_the_next_one_follows():
    node = member(*TO_IDLE)
    assert take(node, MessagesCame(2)) == [StorePiece(ME, 2, 7, 3)]
    assert take(node, MessagesCame(2)) == []
    assert take(node, PieceStored(2, 2)) == [AcknowledgePiece(ME, 2), StorePiece(ME, 2, 7, 1)]
    assert take(node, PieceStored(1, 1)) == [AcknowledgePiece(ME, 1)]
    assert status(node) is FULL
    assert take(node, HandedOut()) == [StorePiece(ME, 2, 7, 1)]
    assert take(node, PieceStored(1, 0)) == [AcknowledgePiece(ME, 1)]
    assert (status(node), node.record.given, node.record.waiting) == (IDLE, 0, 2)


def test_PS_263_without_room_nothing_is_stored():
    node = member(*TO_IDLE, MessagesCame(4), PieceStored(3, 3), count_at=2)
    assert (status(node), node.record.given, node.record.waiting) == (FULL, 1, 3)
    node = member(*TO_IDLE, *(HandedOut(),) * 2, count_at=2)
    assert node.record.waiting == 0


def test_PS_650_a_member_without_room_looks_every_250_ms_and_counts_ever_more_rarely():
    full = member(*TO_IDLE, MessagesCame(MOST + 1), PieceStored(MOST, MOST))
    now_ns, counted = 0, []
    for look in range(1, 17):
        now_ns = full.deadline()
        assert [one.request for one in full.fire(now_ns)] == [FindWaiter(ME)]
        if take(full, WaiterFound(False), now_ns):
            assert status(full) is COUNTING
            assert take(full, StoredCounted(MOST), now_ns) == []
            counted.append(look)
    assert counted == [4, 8, 16]
    assert now_ns == 16 * LOOK_NS
    node = member(*TO_ROUTE, RouteStored(), MessagesCame(1), StoredCounted(MOST), TimeRead(7), count_at=1)
    node.fire(LOOK_NS)
    assert take(node, WaiterFound(False), LOOK_NS) == [CountStored(ME)]
    assert take(node, StoredCounted(0), LOOK_NS) == [StorePiece(ME, 2, 7, 3)]


@pytest.mark.parametrize("is_bounded", [False, True])
def test_PS_269_a_member_without_room_leaves_what_another_waits_for_and_joins_anew(is_bounded):
    joining = (GroupsOpened(), *((MemberDeclared(),) if is_bounded else ()), GroupJoined())
    events = (*joining, RouteStored(), MessagesCame(2), StoredCounted(MOST), TimeRead(7))
    node = member(*events, is_bounded=is_bounded)
    assert [one.request for one in node.fire(LOOK_NS)] == [FindWaiter(ME)]
    asked = DeclareMemberGroup(ME) if is_bounded else JoinGroup(ME)
    assert take(node, WaiterFound(True), LOOK_NS) == [LeaveGroup(ME), asked]
    assert status(node) is (DECLARING if is_bounded else JOINING)
    assert (node.record.given, node.record.since_ns) == (0, 0)


def test_PS_472_a_group_that_its_subscription_declares_is_waited_for_while_it_ends():
    node = member(is_bounded=True)
    assert take(node, GroupsOpened()) == [DeclareMemberGroup(ME)]
    assert take(node, MemberDeclared(WAIT_FOR_END)) == []
    assert status(node) is ENDING
    assert [one.request for one in node.fire(LOOK_NS)] == [DeclareMemberGroup(ME)]
    assert take(node, MemberDeclared()) == [JoinGroup(ME)]
    refused = member(GroupsOpened(), is_bounded=True)
    assert take(refused, MemberDeclared("may not have more")) == [MemberRefused("may not have more")]
    assert status(refused) is GONE


def test_PS_267_PS_285_a_member_that_is_refused_says_why_and_its_client_is_told_of_what_it_subscribes():
    assert take(member(GroupsOpened()), GroupJoined("no")) == [MemberRefused("no")]
    subscribed = member(RouteStored(), GroupsOpened())
    assert take(subscribed, GroupJoined("no")) == [GroupLost("no"), MemberRefused("no")]


@pytest.mark.parametrize("before", [(), (GroupsOpened(),), TO_ROUTE, TO_IDLE, (*TO_ROUTE, RouteStored())])
@pytest.mark.parametrize("end", [EndMember(), AbandonMember()])
def test_PS_265_PS_332_a_member_leaves_at_once_when_it_stores_nothing(before, end):
    """One that has not joined says so to whoever waits for that."""
    node = member(*before)
    told = take(node, end)
    assert status(node) is GONE
    assert (LeaveGroup(ME) in told) == (len(before) > 0)
    assert (MemberOver() in told) == (len(before) < 2)


def test_PS_641_a_member_that_ends_while_it_stores_waits_for_the_answer():
    node = member(*TO_IDLE, MessagesCame(2))
    assert take(node, EndMember()) == []
    assert status(node) is LAST
    assert take(node, MessagesCame(1)) == take(node, EndMember()) == []
    assert take(node, PieceStored(2, 2)) == [AcknowledgePiece(ME, 2), LeaveGroup(ME)]
    assert status(node) is GONE


def test_PS_332_a_member_waits_for_nothing_when_the_store_does_not_answer():
    for events in ((), (EndMember(),)):
        node = member(*TO_IDLE, MessagesCame(2), *events)
        assert take(node, AbandonMember()) == [LeaveGroup(ME)]
        assert status(node) is GONE


def test_PS_266_PS_642_a_member_whose_piece_is_refused_leaves_and_acknowledges_nothing():
    for events in ((), (EndMember(),)):
        node = member(*TO_IDLE, MessagesCame(2), *events)
        assert take(node, PieceRefused()) == [LeaveGroup(ME)]
        assert status(node) is GONE


@pytest.mark.parametrize("event", LATE)
def test_PS_640_an_answer_that_nobody_waits_for_changes_nothing(event):
    node = member(*TO_IDLE)
    before = node.record
    assert node.feed(event, 0) == []
    assert node.record == before


def test_PS_643_a_member_that_stores_more_than_it_has_is_found():
    (invariant,) = GROUP_MEMBER.invariants
    record = member(*TO_IDLE, MessagesCame(2)).record
    assert record.status is STORING
    assert invariant.holds(record)
    for wrong in ({"given": 0}, {"since_ns": 0}):
        assert not invariant.holds(structs.replace(record, **wrong))
