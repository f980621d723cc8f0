"""A system of whole nodes with a group: the shipped process `SESSION_HOST`, and a shipped `group_member` at each node.

A client goes from node a to node b and back.  It subscribes the group at b, and has a member there and then at a.  What
a member stores goes through the writer of its node, as the driver does it.  The group (`GroupStream`) has one stream of
two messages, and admits one member at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, node_of
from statemachines.persistent_sessions import group_member_record as member
from statemachines.persistent_sessions.group_member import GROUP_MEMBER
from statemachines.persistent_sessions.life_record import Accepted, SessionClosed
from statemachines.persistent_sessions.message import Publish, Written
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_parties import owner_of
from statemachines.persistent_sessions.session_host_record import RoutedMessage
from statemachines.persistent_sessions.writer_record import Hand, HandRange
from statemachines_spec.explorer.actor import Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.process_actor import ProcessActorLocal
from statemachines_spec.explorer.property import Always, Eventually, Sometimes, View
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.client import CLIENT
from statemachines_spec.persistent_sessions.node_database import NodeDatabase
from statemachines_spec.persistent_sessions.node_systems import (
    MovingClient,
    NodeSetting,
    SessionNodeActor,
    build,
)

MESSAGES: Final = ("m1", "m2")
MEMBERS: Final = ("", "member-b", "member-a")
"""Of each connection of the client, in turn; the first one has none."""
SYSTEMS: dict[str, tuple[str, NodeSetting]] = {
    "node-group-moves": (
        "a client goes from one node to another and back, and each stores for it what its group gives",
        NodeSetting(at=("a", "b", "a"), messages=(1, 0)),
    ),
}
"""Name -> (about, bounds)."""


class LookAtToken(Event, frozen=True, gc=False):
    """The database says whether the token of this member is exceeded, before its piece is stored."""

    member: int


class HandPiece(Event, frozen=True, gc=False):
    """The driver of this member hands its piece to the writer of its node."""

    member: int


class GiveStream(Event, frozen=True, gc=False):
    """A member is given what is not acknowledged."""

    member: int


class CommitsSeen(Event, frozen=True, gc=False):
    """So many rows were committed."""

    commits: int


class StreamLocal(msgspec.Struct, frozen=True, gc=False):
    """Messages up to `given`, `acknowledged` and `handed` to a writer; how many are `stored` and `sent`; `owners` of
    the session, in turn; the member that is `inside` the group, and one that `waits` for that (-1: nobody); what a
    member has `asked` to store, under a token that `is_current`; the `piece` that it stores; `commits` of rows; `lost`:
    a message was acknowledged before it was stored."""

    given: int = 0
    acknowledged: int = 0
    handed: int = 0
    stored: int = 0
    sent: int = 0
    owners: tuple[str, ...] = ()
    inside: int = -1
    waits: int = -1
    asked: member.StorePiece | None = None
    is_current: bool = False
    piece: int = 0
    commits: int = 0
    lost: bool = False


class GroupStream(Observer):
    """The group, its stream, and the drivers of its members."""

    def __init__(self) -> None:
        super().__init__(member.GROUPS)

    def initial(self) -> StreamLocal:
        return StreamLocal()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        return CommitsSeen(after.commits) if actor == DATABASE and before.commits != after.commits else None

    def inputs(self, local: StreamLocal) -> tuple[Any, ...]:
        found: list[Event] = []
        if local.asked is not None:
            asks = MEMBERS.index(local.asked.member)
            found.append(HandPiece(asks) if local.is_current else LookAtToken(asks))
        if local.inside >= 0 and local.given == local.acknowledged < len(MESSAGES):
            found.append(GiveStream(local.inside))
        return tuple(found)

    def react(self, local: StreamLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case CommitsSeen(commits):
                return Reaction(replace(local, commits=commits))
            case Accepted():
                local = replace(local, owners=(*local.owners, owner_of(envelope.sender)))
                begin = (member.GroupsOpened(), member.RouteStored()) if len(local.owners) > 1 else ()
                return tell(local, len(local.owners) - 1, *begin)
            case SessionClosed() if owner_of(envelope.sender) in local.owners[1:]:
                return tell(local, local.owners.index(owner_of(envelope.sender)), member.EndMember())
            case SessionClosed():
                return Reaction(local)
            case Publish(message=message) if message in MESSAGES:
                local = replace(local, sent=local.sent + 1)
                return tell(local, len(local.owners) - 1, member.HandedOut())
            case Publish():
                return Reaction(local)
            case Written(message) if message not in MESSAGES:
                return Reaction(local)
            case Written():
                return self._note_stored(replace(local, stored=local.stored + 1))
            case GiveStream(one):
                return tell(replace(local, given=local.given + 1), one, member.MessagesCame(1))
            case LookAtToken(one) if one < len(local.owners) - 1:
                return tell(replace(local, asked=None), one, member.PieceRefused())
            case LookAtToken():
                return Reaction(replace(local, is_current=True))
            case HandPiece(one):
                return self._hand(local, one)
        assert isinstance(envelope.event, member.OfMember)
        return self._hear(local, MEMBERS.index(envelope.event.member), envelope.event)

    def _hear(self, local: StreamLocal, one: int, request: member.OfMember) -> Reaction:
        """Only what is stored waits for its turn."""
        match request:
            case member.JoinGroup() if local.inside >= 0:
                return Reaction(replace(local, waits=one))
            case member.JoinGroup():
                return tell(replace(local, inside=one), one, member.GroupJoined())
            case member.CountStored():
                return tell(local, one, member.StoredCounted(local.stored - local.sent))
            case member.ReadTime():
                return tell(local, one, member.TimeRead(local.commits + 1))
            case member.AcknowledgePiece(_, count):
                acknowledged = local.acknowledged + count
                is_lost = local.lost or acknowledged > local.stored
                return Reaction(replace(local, acknowledged=acknowledged, lost=is_lost))
            case member.LeaveGroup():
                next_one = local.waits if local.inside == one else local.inside
                left = replace(local, inside=next_one, waits=-1, given=local.acknowledged)
                if local.inside == one and next_one >= 0:
                    return tell(left, next_one, member.GroupJoined())
                return Reaction(left)
        assert isinstance(request, member.StorePiece)
        return Reaction(replace(local, asked=request))

    def _hand(self, local: StreamLocal, one: int) -> Reaction:
        """What is stored already is dealt with at once."""
        assert local.asked is not None
        asked, local = local.asked, replace(local, asked=None, is_current=False)
        piece = min(asked.most, local.given - local.acknowledged)
        last = local.acknowledged + piece
        names = MESSAGES[max(local.handed, local.acknowledged) : last]
        local = replace(local, handed=max(local.handed, last), piece=piece)
        if not names:
            return self._note_stored(local)
        hands = tuple(Hand(name, "t", since_ns=asked.since_ns) for name in names)
        call = Envelope(member.GROUPS, node_of(local.owners[one]), HandRange(hands) if len(hands) > 1 else hands[0])
        return Reaction(local, (), (call,))

    @staticmethod
    def _note_stored(local: StreamLocal) -> Reaction:
        """The member is answered when its whole piece is stored."""
        if not local.piece or local.stored < local.acknowledged + local.piece:
            return Reaction(local)
        return tell(replace(local, piece=0), local.inside, member.PieceStored(local.piece, local.piece))


def tell(local: StreamLocal, one: int, *events: Event) -> Reaction:
    """The member at this node is told so."""
    return Reaction(local, (), tuple(Envelope(member.GROUPS, MEMBERS[one], event) for event in events))


GroupStream.environments = (
    Environment(
        "the group's leader and its store",
        "one member at a time is given the stream of two messages, which its driver hands over piece by piece",
        (GroupStream, tell),
    ),
)


class GroupNode(SessionNodeActor):
    """A node whose driver has members of groups."""

    def react(self, local: ProcessActorLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        reaction = super().react(local, envelope, watch)
        if reaction is None:
            return None
        heard = (Accepted, SessionClosed, Written, Publish)
        calls = (one for one in reaction.calls if one.to == CLIENT and isinstance(one.event, heard))
        also = tuple(replace(one, to=member.GROUPS) for one in calls if not getattr(one.event, "dup", False))
        return replace(reaction, calls=(*reaction.calls, *also))

    def _routed(self, hand: Hand) -> RoutedMessage:
        return replace(super()._routed(hand), since_ns=hand.since_ns)


def count_view(of: Callable[[StreamLocal], bool]) -> View:
    """Whether it holds of the group."""
    return View(member.GROUPS, 2, lambda local: int(of(local)))


def system(name: str) -> System:
    """The system called so."""
    made = build(name, *SYSTEMS[name], node=GroupNode)
    members = tuple(
        FsmActor(called, GROUP_MEMBER, member.GroupMemberRecord(called, token, most=2), silent=("look",))
        for token, called in enumerate(MEMBERS, 1)
        if called
    )
    (client,) = (one for one in made.actors if isinstance(one, MovingClient))
    lost = count_view(lambda local: local.lost)
    text = "a message is acknowledged to the group when it is stored for the session"
    return replace(
        made,
        actors=(*map(replace_actor, made.actors), *members, GroupStream()),
        properties=(
            *made.properties,
            Always("LOST", text, (lost,), lambda is_lost: not is_lost),
            Sometimes("everything of the group is delivered", "", (client.has_got(len(MESSAGES)),), bool),
            Sometimes(
                "each member stores a message", "",
                (count_view(lambda local: local.inside == 2 and local.acknowledged == 1),), bool,
            ),
        ),
        obligations=(
            *made.obligations,
            Eventually(
                "BROUGHT",
                "while a session is connected, every message of its group is acknowledged",
                (count_view(lambda local: local.acknowledged < len(MESSAGES)), client.is_accepted()),
                lambda is_open, is_accepted: bool(is_open and is_accepted),
            ),
        ),
    )  # fmt: skip


def replace_actor(one: Any) -> Any:
    """With a database whose rows have times, and a client that judges the order of the stream."""
    if isinstance(one, NodeDatabase):
        return NodeDatabase(one.writers, one.owners, lag=0, slow=one.slow, hides=True, stamps=True)
    if isinstance(one, MovingClient):
        return MovingClient(one.at, later=one.later, window=one.window, course=MESSAGES)
    return one
