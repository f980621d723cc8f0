"""GroupSessions: a group of one stream, the sessions that share it and their clients, as one component.

It stands for what a member asks: the group's leader and store, the rows of sessions, the deliveries that the shipped
`in_flight_message` makes of them, and clients that acknowledge late, connect anew, or end their session.  Which message
is stored, and what goes back, the shipped functions of `shared_group` decide.  It judges what reaches the clients.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Request, Send, name_of
from statemachines.persistent_sessions import group_member_actions
from statemachines.persistent_sessions.group_member_record import (
    GROUPS,
    AcknowledgePiece,
    CountStored,
    DeclareMemberGroup,
    FindWaiter,
    GroupJoined,
    HandedOut,
    JoinGroup,
    LeaveGroup,
    MemberDeclared,
    MessagesCame,
    OfMember,
    PieceRefused,
    PieceStored,
    ReadTime,
    StoredCounted,
    StorePiece,
    TimeRead,
    WaiterFound,
)
from statemachines.persistent_sessions.in_flight import IN_FLIGHT, Resend
from statemachines.persistent_sessions.in_flight_record import DONE, RECEIVED, RELEASED, InFlightRecord
from statemachines.persistent_sessions.message import Puback, Pubcomp, Publish, Pubrec, Queued
from statemachines.persistent_sessions.request import StateCommitted
from statemachines_spec.explorer.actor import Crash, Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.property import View

CLIENT: Final = "client"

NO_GROUP: Final = "no group can be like this"


class GroupFault(Enum):
    """What never happens; the value says it."""

    LOST = "a message is acknowledged to the group, or taken from it, and nobody has it"
    ALONE = "a message is stored for a session while a session has it"
    TWICE = "a message comes to a client twice without the marker"
    OTHERS = "a message comes to a client that another client has, or may have had with QoS 2"
    DECLARED = "a member joins a group that its subscription is to declare, and has not"
    INORDER = "a client has messages of the stream in another order than the stream"


class MessagePlace(Enum):
    """Where a message of the group is."""

    STREAM = "stream"
    ROWS = "rows"
    FLYING = "in flight"
    BACK = "back"
    DONE = "done"
    DROPPED = "dropped"


STREAM, ROWS, FLYING, BACK, FINISHED, DROPPED = MessagePlace


class GroupMessage(msgspec.Struct, frozen=True, gc=False):
    """A message: whose it is (-1: nobody's), how far its client has it, which clients were sent it, and whether a
    session gave it back."""

    qos: int
    place: MessagePlace = STREAM
    session: int = -1
    flight: InFlightRecord | None = None
    had: tuple[int, ...] = ()
    was_back: bool = False


class GivenMessage(msgspec.Struct, frozen=True, gc=False):
    """A message in the hands of a member: from the stream, under a lease that is not over, or given back."""

    offset: int
    is_leased: bool = True
    is_back: bool = False


class MemberSeat(msgspec.Struct, frozen=True, gc=False):
    """What the group knows of a member: `given` and not acknowledged; what it has `asked`, and the name of its type,
    since requests of two types may have the same fields; the `piece` that its node is storing (None: none)."""

    is_in: bool = False
    is_dead: bool = False
    is_declared: bool = False
    given: tuple[GivenMessage, ...] = ()
    asked: Any = None
    kind: str = ""
    piece: tuple[GivenMessage, ...] | None = None


class GroupsLocal(msgspec.Struct, frozen=True, gc=False):
    """`acknowledged` to the group, and `noted` as had by sessions, up to these offsets; `holder` of the lease; of each
    session its highest token, whether it is over, and its rows that were not sent."""

    messages: tuple[GroupMessage, ...]
    seats: tuple[MemberSeat, ...]
    tokens: tuple[int, ...]
    over: tuple[bool, ...]
    rows: tuple[tuple[int, ...], ...]
    acknowledged: int = 0
    noted: int = 0
    holder: int = -1
    faults: tuple[str, ...] = ()


class CarryOutRequest(Event, frozen=True, gc=False):
    """What a member has asked is carried out and answered; or (the second time) its rows are stored."""

    member: int


class DeclineMember(Event, frozen=True, gc=False):
    """What a member has asked of the group is refused; `why`."""

    member: int
    why: str


class GiveLease(Event, frozen=True, gc=False):
    """A member has the stream, and is given what is not acknowledged."""

    member: int


class LeaseLapsed(Event, frozen=True, gc=False):
    """The lease ends, and its member has not heard of it."""


class NodeDied(Event, frozen=True, gc=False):
    """The node of a member is dead: its lease ends, sooner or later."""

    member: int


class DeadLeaseEnds(Event, frozen=True, gc=False):
    """The lease of a member whose node is dead ends."""


class GiveReturned(Event, frozen=True, gc=False):
    """A message that a session gave back is given to a member."""

    member: int
    offset: int


class SendNext(Event, frozen=True, gc=False):
    """A session sends its next message."""

    session: int


class ClientAnswers(Event, frozen=True, gc=False):
    """A client acknowledges a message, one step further."""

    offset: int


class ClientReconnects(Event, frozen=True, gc=False):
    """A client connects anew: what is in flight is sent again."""

    session: int


class SessionEnds(Event, frozen=True, gc=False):
    """The session is over, as its expiry or a clean start has it."""

    session: int


class GroupSessions(Observer):
    """`members`: name of each, its session, and the token that it has; `qos` of the messages; `ends`: sessions that may
    end; `is_declared`: a subscription declares the group before it joins."""

    def __init__(
        self,
        members: tuple[tuple[str, int, int], ...],
        qos: tuple[int, ...],
        ends: tuple[int, ...],
        *,
        is_declared: bool = False,
    ) -> None:
        super().__init__(GROUPS)
        self.members = members
        self.names = tuple(name for name, _, _ in members)
        self.sessions = 1 + max(session for _, session, _ in members)
        self.qos = qos
        self.ends = ends
        self.is_declared = is_declared

    def initial(self) -> GroupsLocal:
        nothing = ((),) * self.sessions
        seats = (MemberSeat(),) * len(self.members)
        tokens, over = (0,) * self.sessions, (False,) * self.sessions
        return GroupsLocal(tuple(map(GroupMessage, self.qos)), seats, tokens, over, nothing)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        return NodeDied(self.names.index(actor)) if isinstance(event, Crash) else None

    # -- what may happen ----------------------------------------------------------------------------------------------

    def inputs(self, local: GroupsLocal) -> tuple[Any, ...]:
        found: list[Event] = []
        if local.holder >= 0:
            found.append(DeadLeaseEnds() if local.seats[local.holder].is_dead else LeaseLapsed())
        for member, seat in enumerate(local.seats):
            if seat.asked is not None or seat.piece is not None:
                found.append(CarryOutRequest(member))
            if seat.kind in OF_GROUP:
                reasons = (
                    (NO_GROUP, group_member_actions.WAIT_FOR_END)
                    if seat.kind == "declare_member_group"
                    else (NO_GROUP,)
                )
                found += [DeclineMember(member, why) for why in reasons]
            if not seat.is_in:
                continue
            if local.holder < 0 and local.acknowledged < len(local.messages):
                found.append(GiveLease(member))
            mine = [one.offset for one in seat.given]
            back = (offset for offset, one in enumerate(local.messages) if one.place is BACK and offset not in mine)
            found += [GiveReturned(member, offset) for offset in back]
        for session in range(self.sessions):
            if local.over[session]:
                continue
            found += [SendNext(session)] if local.rows[session] else []
            its = [one for one in local.messages if one.place is FLYING and one.session == session]
            found += [ClientReconnects(session)] if its else []
            found += [SessionEnds(session)] if session in self.ends else []
        found += [ClientAnswers(offset) for offset, one in enumerate(local.messages) if one.place is FLYING]
        return tuple(found)

    def react(self, local: GroupsLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case OfMember(member) as request:
                return self._hear(local, self.names.index(member), request)
            case CarryOutRequest(member):
                return self._carry(local, member)
            case DeclineMember(member, why):
                refusal = (
                    MemberDeclared(why) if local.seats[member].kind == "declare_member_group" else GroupJoined(why)
                )
                return self._tell(seat_with(local, member, asked=None, kind=""), member, refusal)
            case GiveLease(member):
                fresh = tuple(GivenMessage(offset) for offset in range(local.acknowledged, len(local.messages)))
                local = seat_with(replace(local, holder=member), member, given=local.seats[member].given + fresh)
                return self._tell(local, member, MessagesCame(len(fresh)))
            case NodeDied(member):
                return Reaction(withdraw(seat_with(local, member, is_in=False, is_dead=True), member))
            case LeaseLapsed() | DeadLeaseEnds():
                return Reaction(end_lease(local))
            case GiveReturned(member, offset):
                given = (*local.seats[member].given, GivenMessage(offset, is_back=True))
                return self._tell(seat_with(local, member, given=given), member, MessagesCame(1))
            case SendNext(session):
                return self._send(local, session)
            case ClientAnswers(offset):
                return Reaction(answer(local, offset))
            case ClientReconnects(session):
                return Reaction(reconnect(local, session))
            case SessionEnds(session):
                return Reaction(end_session(local, session))
        return None

    def _tell(self, local: GroupsLocal, member: int, event: Event) -> Reaction:
        return Reaction(local, (), (Envelope(GROUPS, self.names[member], event),))

    # -- what members ask ---------------------------------------------------------------------------------------------

    def _hear(self, local: GroupsLocal, member: int, request: Request) -> Reaction:
        """What needs no answer is done at once, and what is looked at; all else when its turn comes."""
        _, session, token = self.members[member]
        match request:
            case AcknowledgePiece(_, count):
                return Reaction(acknowledge(local, member, count))
            case LeaveGroup():
                local = end_lease(local) if local.holder == member else local
                return Reaction(withdraw(seat_with(local, member, is_in=False, given=()), member))
            case FindWaiter():
                others = (seat for place, seat in enumerate(local.seats) if place != member)
                return self._tell(local, member, WaiterFound(any(one.is_in for one in others)))
        tokens = put(local.tokens, session, max(local.tokens[session], token))
        return Reaction(seat_with(replace(local, tokens=tokens), member, asked=request, kind=name_of(type(request))))

    def _carry(self, local: GroupsLocal, member: int) -> Reaction:
        seat = local.seats[member]
        if seat.piece is not None:
            local = self._store(seat_with(local, member, piece=None), member, seat.piece)
            return self._tell(local, member, PieceStored(len(seat.piece), len(seat.piece)))
        local = seat_with(local, member, asked=None, kind="")
        _, session, token = self.members[member]
        if isinstance(seat.asked, StorePiece):
            if local.over[session] or local.tokens[session] != token:
                return self._tell(local, member, PieceRefused())
            return Reaction(seat_with(local, member, piece=seat.given[: seat.asked.most]))
        if isinstance(seat.asked, JoinGroup):
            local = seat_with(local, member, is_in=True)
            if self.is_declared and not seat.is_declared:
                local = note_fault(local, GroupFault.DECLARED)
        if isinstance(seat.asked, DeclareMemberGroup):
            local = seat_with(local, member, is_declared=True)
        return self._tell(local, member, self._answer(local, session, seat.asked))

    def _answer(self, local: GroupsLocal, session: int, asked: Request) -> Answer:
        match asked:
            case DeclareMemberGroup():
                return MemberDeclared()
            case JoinGroup():
                return GroupJoined()
            case CountStored():
                return StoredCounted(len(local.rows[session]))
        assert isinstance(asked, ReadTime)
        return TimeRead(1)

    def _store(self, local: GroupsLocal, member: int, piece: tuple[GivenMessage, ...]) -> GroupsLocal:
        """The rows of a piece: one transaction.  Whoever has asked for it, the session may be over by now."""
        session = self.members[member][1]
        for one in piece:
            message = local.messages[one.offset]
            if one.is_back:
                is_new = message.place is BACK
            else:
                is_new = group_member_actions.is_first_time(local.noted, one.offset)
                local = replace(local, noted=max(local.noted, one.offset + 1))
            if not is_new:
                continue
            if message.place not in (STREAM, BACK):
                local = note_fault(local, GroupFault.ALONE)
            if local.over[session]:
                message = replace(message, place=BACK, session=-1, was_back=True)
            else:
                message = replace(message, place=ROWS, session=session)
                local = replace(local, rows=put(local.rows, session, (*local.rows[session], one.offset)))
            local = replace(local, messages=put(local.messages, one.offset, message))
        return local

    # -- what clients get ---------------------------------------------------------------------------------------------

    def _send(self, local: GroupsLocal, session: int) -> Reaction:
        """Under the lowest free packet id; every member of the session that is live hears of it."""
        offset, *rest = local.rows[session]
        used = {one.flight.packet for one in local.messages if one.session == session and one.flight is not None}
        packet = next(number for number in range(1, len(used) + 2) if number not in used)
        message = local.messages[offset]
        flight = InFlightRecord(packet, CLIENT, Queued(offset + 1, str(offset), "", message.qos))
        local = replace(local, rows=put(local.rows, session, tuple(rest)))
        local = step_flight(local, offset, replace(message, place=FLYING, flight=flight), StateCommitted())
        live = (name for name, its, token in self.members if its == session and token == local.tokens[session])
        return Reaction(local, (), tuple(Envelope(GROUPS, name, HandedOut()) for name in live))

    def has_found(self, fault: GroupFault) -> View:
        """Whether this fault was found."""
        return View(GROUPS, 2, lambda local: int(fault.name in local.faults or (fault is LOST and has_lost(local))))

    def describe(self, local: GroupsLocal) -> str:
        messages = ", ".join(f"{offset} {one.place.value}" for offset, one in enumerate(local.messages))
        return f"{messages}; acknowledged {local.acknowledged}, noted {local.noted}, holder {local.holder}"


LOST = GroupFault.LOST

OF_GROUP: Final = ("declare_member_group", "join_group")
"""What is asked of the group, and not of the database."""


def put(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    """The values with another one at this place."""
    return (*values[:place], value, *values[place + 1 :])


def seat_with(local: GroupsLocal, member: int, **changes: Any) -> GroupsLocal:
    """With changes of what the group knows of a member."""
    return replace(local, seats=put(local.seats, member, replace(local.seats[member], **changes)))


def withdraw(local: GroupsLocal, member: int) -> GroupsLocal:
    """Nothing is asked of the group any more; what is asked of the database is carried out all the same."""
    return seat_with(local, member, asked=None, kind="") if local.seats[member].kind in OF_GROUP else local


def note_fault(local: GroupsLocal, fault: GroupFault) -> GroupsLocal:
    """With one fault more."""
    return replace(local, faults=tuple(sorted({*local.faults, fault.name})))


def end_lease(local: GroupsLocal) -> GroupsLocal:
    """Nobody has the stream; what its holder acknowledges of it changes nothing from now on."""
    seat = local.seats[local.holder]
    given = tuple(replace(one, is_leased=False) for one in seat.given)
    return seat_with(replace(local, holder=-1), local.holder, given=given)


def acknowledge(local: GroupsLocal, member: int, count: int) -> GroupsLocal:
    """The first of what was given are dealt with."""
    seat = local.seats[member]
    ends = (one.offset + 1 for one in seat.given[:count] if one.is_leased and not one.is_back)
    local = replace(local, acknowledged=max(local.acknowledged, *ends, 0))
    return seat_with(local, member, given=seat.given[count:])


def step_flight(local: GroupsLocal, offset: int, message: GroupMessage, event: Event) -> GroupsLocal:
    """One step of the message in flight, as shipped, and the judgement on what is sent."""
    assert message.flight is not None
    step = IN_FLIGHT.step(message.flight, event, 0)
    for effect in step.effects:
        if isinstance(effect, Send) and isinstance(effect.message, Publish):
            local = judge(local, offset, message, effect.message)
            message = replace(message, had=tuple(sorted({*message.had, message.session})))
    if step.record.status is DONE:
        message = replace(message, place=FINISHED, flight=None)
    else:
        message = replace(message, flight=step.record)
    return replace(local, messages=put(local.messages, offset, message))


def judge(local: GroupsLocal, offset: int, message: GroupMessage, sent: Publish) -> GroupsLocal:
    """With the faults of a PUBLISH."""
    session = message.session
    if session in message.had and not sent.dup:
        local = note_fault(local, GroupFault.TWICE)
    others = (one for one in message.had if one != session)
    if any(message.qos == 2 or not local.over[one] for one in others):
        local = note_fault(local, GroupFault.OTHERS)
    later = (one for one in local.messages[offset + 1 :] if not one.was_back)
    if not (sent.dup or message.was_back) and any(session in one.had for one in later):
        local = note_fault(local, GroupFault.INORDER)
    return local


def answer(local: GroupsLocal, offset: int) -> GroupsLocal:
    """The client says one thing more of a message; what is to be committed is."""
    message = local.messages[offset]
    assert message.flight is not None
    packet = message.flight.packet
    if message.flight.status is RELEASED:
        return step_flight(local, offset, message, Pubcomp(packet))
    local = step_flight(local, offset, message, Pubrec(packet) if message.qos == 2 else Puback(packet))
    after = local.messages[offset]
    is_received = after.flight is not None and after.flight.status is RECEIVED
    return step_flight(local, offset, after, StateCommitted()) if is_received else local


def reconnect(local: GroupsLocal, session: int) -> GroupsLocal:
    """All that the client has not acknowledged in full is sent again."""
    for offset, one in enumerate(local.messages):
        if one.place is FLYING and one.session == session:
            local = step_flight(local, offset, one, Resend())
    return local


def end_session(local: GroupsLocal, session: int) -> GroupsLocal:
    """What was not sent goes back to the group; what was in flight as the shipped function has it."""
    local = replace(local, over=put(local.over, session, True), rows=put(local.rows, session, ()))
    for offset, one in enumerate(local.messages):
        if one.session != session or one.place not in (ROWS, FLYING):
            continue
        is_back = one.flight is None or group_member_actions.goes_back(one.flight.status, one.qos)
        message = replace(one, place=BACK if is_back else DROPPED, session=-1, flight=None, was_back=is_back)
        local = replace(local, messages=put(local.messages, offset, message))
    return local


def has_lost(local: GroupsLocal) -> bool:
    """Whether a message is nobody's that was not acknowledged by its client, nor in flight with QoS 2."""
    return any(
        (one.place is STREAM and offset < max(local.acknowledged, local.noted))
        or (one.place in (ROWS, FLYING) and local.over[one.session])
        or (one.place is DROPPED and one.qos != 2)
        for offset, one in enumerate(local.messages)
    )


GroupSessions.environments = (
    Environment(
        "the group's leader, its store, deliveries and clients",
        "requests are carried out at any moment, leases end, clients acknowledge late, connect anew or end",
        (GroupSessions, put, seat_with, withdraw, end_lease, acknowledge, step_flight, answer, reconnect, end_session),
    ),
)
