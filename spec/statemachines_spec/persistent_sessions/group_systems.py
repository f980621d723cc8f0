"""Systems of a group inside sessions: shipped members, and an environment in place of all else (`group_sessions`)."""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import Event
from statemachines.persistent_sessions.group_member import GROUP_MEMBER
from statemachines.persistent_sessions.group_member_record import (
    COUNTING,
    DECLARING,
    ENDING,
    JOINING,
    LAST,
    OPENING,
    STORING,
    TIMING,
    AbandonMember,
    EndMember,
    GroupMemberRecord,
    GroupsOpened,
    RouteStored,
)
from statemachines_spec.explorer.actor import Crash
from statemachines_spec.explorer.fsm_actor import FsmActor
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.group_sessions import (
    BACK,
    DROPPED,
    FINISHED,
    ClientReconnects,
    DeclineMember,
    GroupFault,
    GroupSessions,
    GroupsLocal,
    LeaseLapsed,
    MessagePlace,
    SessionEnds,
)


class GroupBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds such a system: of each member its session and token; the QoS of the messages; how many members
    `leave`, are `abandoned`, `refused` and `crash`; leases that `lapse`; clients that connect anew (`reconnects`);
    sessions that `end`; `is_declared`: the subscriptions declare their group; `shows`: places where a message must
    be."""

    members: tuple[tuple[int, int], ...]
    qos: tuple[int, ...]
    leaves: int = 0
    abandoned: int = 0
    refused: int = 0
    crashes: int = 0
    lapses: int = 0
    reconnects: int = 0
    ends: tuple[int, ...] = ()
    is_declared: bool = False
    shows: tuple[MessagePlace, ...] = ()


SYSTEMS: dict[str, tuple[str, GroupBounds]] = {
    "group-ends": (
        "two sessions share a group, and one of them ends at any moment, with messages of QoS 1 and 2 in flight",
        GroupBounds(members=((0, 1), (1, 1)), qos=(1, 2), reconnects=1, ends=(0,), shows=(BACK, DROPPED)),
    ),
    "group-moves": (
        "a session moves to another node; the first one dies or goes on, and its lease lapses or does not",
        GroupBounds(members=((0, 1), (0, 2)), qos=(1, 2), crashes=1, lapses=1),
    ),
    "group-leaves": (
        "a member leaves, or does not wait for its store, and another session has what it did not store",
        GroupBounds(members=((0, 1), (1, 1)), qos=(1, 2), leaves=1, abandoned=1),
    ),
    "group-refused": (
        "a group is ending, or refuses its member, while the session ends",
        GroupBounds(members=((0, 1),), qos=(1,), refused=2, leaves=1, ends=(0,), is_declared=True),
    ),
}
"""Name -> (about, bounds)."""


def system(name: str) -> System:
    """The system called so."""
    about, bounds = SYSTEMS[name]
    members = tuple((f"member-{number}", *one) for number, one in enumerate(bounds.members, 1))
    groups = GroupSessions(members, bounds.qos, bounds.ends, is_declared=bounds.is_declared)
    parties = tuple(member_of(one, token, bounds) for one, _, token in members)
    text = "while a member is there, every message of the group comes to a client that acknowledges it"
    views = (count_view(groups, has_open),)
    waits = tuple(one.is_in(DECLARING, ENDING, JOINING, COUNTING, TIMING, STORING, LAST) for one in parties)
    return System(
        name,
        about,
        (*parties, groups),
        Network(1, lossy=False, duplicating=False),
        properties=tuple(list_properties(groups, bounds)),
        budgets=(
            at_most("members whose session leaves", bounds.leaves, EndMember),
            at_most("members that are abandoned", bounds.abandoned, AbandonMember),
            at_most("members that are refused", bounds.refused, DeclineMember),
            at_most("nodes that die", bounds.crashes, Crash),
            at_most("leases that lapse unheard", bounds.lapses, LeaseLapsed),
            at_most("clients that connect anew", bounds.reconnects, ClientReconnects),
            at_most("sessions that end", len(bounds.ends), SessionEnds),
        ),
        obligations=(
            Eventually("BROUGHT", text, views, bool),
            Eventually("SETTLES", "what a member waits for comes, or it ends", waits, lambda *each: any(each)),
        ),
    )


def has_open(local: GroupsLocal) -> bool:
    """Whether a message is neither acknowledged nor dropped, while the group has a member."""
    is_joined = any(seat.is_in for seat in local.seats)
    return is_joined and any(one.place not in (FINISHED, DROPPED) for one in local.messages)


def member_of(name: str, token: int, bounds: GroupBounds) -> FsmActor:
    """A member that ends at any moment, as its session does."""

    ends = (EndMember(),) * min(1, bounds.leaves) + (AbandonMember(),) * min(1, bounds.abandoned)

    def calls(record: GroupMemberRecord) -> tuple[Event, ...]:
        begins = (GroupsOpened(),) if record.status is OPENING else ()
        routes = () if record.is_routed else (RouteStored(),)
        return (*begins, *routes, *ends)

    def looks_twice(record: GroupMemberRecord) -> bool:
        """a member without room looks twice"""
        return record.looks <= 2

    return FsmActor(
        name,
        GROUP_MEMBER,
        GroupMemberRecord(name, token, is_bounded=bounds.is_declared, most=1, count_at=1),
        faults=(Crash,) if bounds.crashes and token == 1 else (),
        calls=calls,
        bound=looks_twice,
    )


def list_properties(groups: GroupSessions, bounds: GroupBounds) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    found: list[Property] = [
        Always(fault.name, f"never: {fault.value}", (groups.has_found(fault),), lambda is_found: not is_found)
        for fault in GroupFault
    ]
    for session in range(groups.sessions):
        view = count_view(groups, lambda local, its=session: has_finished(local, its))
        found.append(Sometimes(f"session {session} acknowledges everything", "", (view,), bool))
    for place in bounds.shows:
        view = count_view(groups, lambda local, its=place: any(one.place is its for one in local.messages))
        found.append(Sometimes(f"a message is {place.value}", "", (view,), bool))
    return found


def count_view(groups: GroupSessions, of: Any) -> View:
    """Whether it holds of the groups."""
    return View(groups.name, 2, lambda local: int(of(local)))


def has_finished(local: GroupsLocal, session: int) -> bool:
    """Whether all messages are acknowledged, by this session."""
    return all(one.place is FINISHED and one.session == session for one in local.messages)
