"""GroupMemberRecord: what a session is to one group whose filter it subscribes, while it is live at a node."""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from statemachines.kernel import Answer, Call, Event, Request, Status, TimerFired, TraceColumns

GROUPS: Final = "groups"
"""As the service of a member: the groups, and the rows of sessions."""

STORED_MAX: Final = 100
"""Messages of one filter that are stored for a session and were not handed to its client."""

COUNT_AFTER: Final = 4
"""Looks without room before it is counted for the first time; then twice as many, ..."""

COUNT_AFTER_MAX: Final = 240
"""... and in the end so many more each time."""


# -- what a member is told ------------------------------------------------------------------------------------------


class GroupsOpened(Call, frozen=True, gc=False):
    """The node takes part in groups from now on."""


class RouteStored(Call, frozen=True, gc=False):
    """The session subscribes the filter, as far as the database knows."""


class MessagesCame(Call, frozen=True, gc=False):
    """The group has given this member so many messages more."""

    columns: ClassVar = TraceColumns(first="count")

    count: int


class HandedOut(Call, frozen=True, gc=False):
    """A message of the filter went to the client of the session."""


class EndMember(Call, frozen=True, gc=False):
    """The session is not live here any more, or does not subscribe the filter any more."""


class AbandonMember(Call, frozen=True, gc=False):
    """The store does not answer: whatever is being stored is not waited for."""


class DeclareDue(TimerFired, frozen=True, gc=False):
    """Time to declare the group again, which was ending."""


class LookDue(TimerFired, frozen=True, gc=False):
    """Time to look whether another member waits for what there is no room for."""


# -- what it asks, and what it is answered --------------------------------------------------------------------------


class OfMember(Request, frozen=True, gc=False):
    """A request of this member."""

    member: str


class DeclareMemberGroup(OfMember, frozen=True, gc=False):
    """Keep the group, which ends when nobody subscribes it for long."""


class JoinGroup(OfMember, frozen=True, gc=False):
    """Take part in the group as this member."""


class CountStored(OfMember, frozen=True, gc=False):
    """How many messages of the filter wait for the client, whoever has stored them?"""


class ReadTime(OfMember, frozen=True, gc=False):
    """What is the store time?"""


class StorePiece(OfMember, frozen=True, gc=False):
    """Store for the session the first of what the group has given, at most so many, in their order.  Nothing is stored
    if another token is higher, or the session does not subscribe the filter."""

    columns: ClassVar = TraceColumns(term="token", first="most")

    token: int
    since_ns: int
    most: int


class AcknowledgePiece(OfMember, frozen=True, gc=False):
    """Acknowledge to the group the first `count` of what it has given; it needs no answer."""

    columns: ClassVar = TraceColumns(first="count")

    count: int


class FindWaiter(OfMember, frozen=True, gc=False):
    """Does another member wait for what this one was given?"""


class LeaveGroup(OfMember, frozen=True, gc=False):
    """Be no member any more: what was given and not acknowledged goes to others.  It needs no answer."""


class MemberDeclared(Answer, frozen=True, gc=False):
    """To `DeclareMemberGroup`: `refusal` says why not ("": it is declared)."""

    refusal: str = ""


class GroupJoined(Answer, frozen=True, gc=False):
    """To `JoinGroup`: `refusal` says why not ("": it is a member)."""

    refusal: str = ""


class StoredCounted(Answer, frozen=True, gc=False):
    """To `CountStored`."""

    columns: ClassVar = TraceColumns(first="count")

    count: int


class TimeRead(Answer, frozen=True, gc=False):
    """To `ReadTime`: nanoseconds of the store, not 0."""

    time_ns: int


class PieceStored(Answer, frozen=True, gc=False):
    """To `StorePiece`: so many of the messages are dealt with; of these `stored` wait for the client."""

    columns: ClassVar = TraceColumns(first="count", last="stored")

    count: int
    stored: int


class PieceRefused(Answer, frozen=True, gc=False):
    """To `StorePiece`: nothing is stored."""


class WaiterFound(Answer, frozen=True, gc=False):
    """To `FindWaiter`."""

    is_there: bool


# -- what it tells --------------------------------------------------------------------------------------------------


class MemberJoined(Event, frozen=True, gc=False):
    """To the node: the session is a member of the group."""


class MemberRefused(Event, frozen=True, gc=False):
    """To the node: the session is no member, and why."""

    why: str


class MemberOver(Event, frozen=True, gc=False):
    """To the node: the member ended before it had joined."""


class GroupLost(Event, frozen=True, gc=False):
    """To the node: the session subscribes the filter, and nothing of it comes while it is live here."""

    why: str


class GroupMemberStatus(Status):
    """`opening` waits for the node, `declaring` and `joining` for the group; a `joined` one waits until its session
    subscribes the filter.  `counting`, `timing` and `storing` wait for the database, `full` for the client, and `last`
    for what is being stored when it ends."""

    OPENING = "opening"
    DECLARING = "declaring"
    ENDING = "group ending"
    JOINING = "joining"
    JOINED = "joined"
    COUNTING = "counting"
    TIMING = "timing"
    IDLE = "idle"
    STORING = "storing"
    FULL = "full"
    LAST = "last"
    GONE = "gone"


OPENING, DECLARING, ENDING, JOINING, JOINED, COUNTING, TIMING, IDLE, STORING, FULL, LAST, GONE = GroupMemberStatus


SERVING: Final = (COUNTING, TIMING, IDLE, STORING, FULL)
"""It is a member, and its session subscribes the filter."""


class GroupMemberRecord(msgspec.Struct, frozen=True, gc=False):
    """The member `id`, of a session that is live here under `token`."""

    id: str
    token: int
    status: GroupMemberStatus = OPENING
    is_bounded: bool = False
    """The group is declared by the subscription, and ends."""
    is_routed: bool = False
    """The session subscribes the filter, as far as the database knows."""
    given: int = 0
    """Messages that the group gave, and that are not acknowledged to it."""
    waiting: int = 0
    """Messages that are stored, and were not handed to the client, as far as is known."""
    most: int = STORED_MAX
    """Of these there may be so many."""
    since_ns: int = 0
    """What other nodes had stored for the session by then comes before what is stored here (0: not read yet)."""
    looks: int = 0
    """Looks since there was room."""
    count_at: int = COUNT_AFTER
    """It is counted at this one."""
