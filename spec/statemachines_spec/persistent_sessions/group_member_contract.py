"""What a member of a group owes its node, its group and the store, whatever it is told (PS-260 to PS-650)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Request, Stop, Tell, name_of
from statemachines.persistent_sessions import group_member_record as member
from statemachines.persistent_sessions.group_member import GROUP_MEMBER
from statemachines.persistent_sessions.group_member_actions import LOOK_NS
from statemachines.persistent_sessions.shared_group import WAIT_FOR_END
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing

ID: Final = "1 $share/g/jobs"
TOKEN: Final = 2
SINCE_NS: Final = 7
MOST: Final = 2
"""Messages that may be stored and not handed out, and messages that the group gives before some are acknowledged."""
LOOK: Final = 2
"""Ticks between two looks, and between two declarations of a group that is ending."""
TICK_NS: Final = LOOK_NS // LOOK
LOOKS_MAX: Final = member.COUNT_AFTER + 1
NO_GROUP: Final = "no group can be like this"
Said = tuple[Any, ...]


class MemberFacts(msgspec.Struct, frozen=True, gc=False):
    """The member has `begun`; its session is `routed`.  It has `asked` something, and waits for the answer.  It has
    `joined` the group, has the time (`timed`), was `given` messages, and stores a `piece` of them.  `waiting`: for the
    client.  It `looks` without room, and counts at look `count_at`; it has `rested` for ticks.  It ends after its
    `last` piece, or has `ended`."""

    begun: bool = False
    routed: bool = False
    asked: str = ""
    joined: bool = False
    timed: bool = False
    given: int = 0
    piece: int = 0
    waiting: int = 0
    looks: int = 0
    count_at: int = member.COUNT_AFTER
    rested: int = 0
    last: bool = False
    ended: bool = False

    @property
    def is_ending(self) -> bool:
        """Its group is ending, and is declared again in a while."""
        return self.begun and not (self.asked or self.joined or self.ended)

    @property
    def is_full(self) -> bool:
        """It was given messages, and has no room for them."""
        return self.joined and self.routed and not self.asked and self.given > 0

    @property
    def is_idle(self) -> bool:
        """It may store, and has nothing."""
        return self.joined and self.routed and not self.asked and not self.given


class GroupOutside(Counterpart):
    """a node, a group and a store that say anything at any time, also answers that nobody waits for, and a client"""

    owes, ends = "OWES", "OWES an end"

    def __init__(self, is_bounded: bool) -> None:
        super().__init__(list_rules(is_bounded), () if is_bounded else ("declares",))

    def begins(self) -> MemberFacts:
        return MemberFacts()

    def says(self, known: MemberFacts) -> Iterator[Any]:
        if known.ended:
            return
        yield from (member.GroupsOpened(), member.RouteStored(), member.EndMember(), member.AbandonMember())
        yield from (member.MemberDeclared(why) for why in ("", WAIT_FOR_END, NO_GROUP))
        yield from (member.GroupJoined(why) for why in ("", NO_GROUP))
        yield from (member.StoredCounted(count) for count in range(MOST + 2))
        yield from (member.TimeRead(SINCE_NS), member.PieceRefused())
        yield from (member.WaiterFound(is_there) for is_there in (False, True))
        for count in range(1, 1 + max(1, known.piece)):
            yield from (member.PieceStored(count, stored) for stored in {0, count})
        if known.given < MOST and (known.joined or known.asked == JOIN):
            yield member.MessagesCame(1)
        if known.waiting or not known.joined:
            yield member.HandedOut()
        if not known.is_ending:
            yield member.DeclareDue()
        if not known.is_full:
            yield member.LookDue()

    def learns(self, known: MemberFacts, event: Any, said: Said) -> MemberFacts:
        then = hear(known, event)
        for effect in said:
            match effect:
                case Ask(_, member.AcknowledgePiece(_, count)):
                    then = replace(then, given=then.given - count)
                case Ask(_, member.LeaveGroup()):
                    then = MemberFacts(begun=True, routed=then.routed, waiting=then.waiting)
                case Ask(_, member.FindWaiter()):
                    then = replace(then, looks=then.looks + 1)
                case Ask(_, member.StorePiece(most=most)):
                    piece = min(most, then.given)
                    then = replace(then, asked=STORE, piece=piece, looks=0, count_at=member.COUNT_AFTER)
                case Ask(_, request):
                    then = replace(then, asked=name_of(type(request)))
                case Stop():
                    return MemberFacts(ended=True)
        if known.is_full and isinstance(event, member.WaiterFound) and then.asked == COUNT:
            then = replace(then, count_at=known.count_at + min(known.count_at, member.COUNT_AFTER_MAX))
        rests = (known.is_full and then.is_full) or (known.is_ending and then.is_ending)
        begins = isinstance(event, member.LookDue) and known.is_full
        return replace(then, rested=known.rested if rests and not begins else 0)

    def ages(self, known: MemberFacts, ticks: int) -> MemberFacts:
        rests = known.is_full or known.is_ending
        return replace(known, rested=min(LOOK + 1, known.rested + ticks)) if rests else known

    def is_late(self, known: MemberFacts) -> int:
        return NAMES.index("looks" if known.is_full else "declares") + 1 if known.rested > LOOK else 0


DECLARE, JOIN, COUNT, READ, STORE = map(
    name_of, (member.DeclareMemberGroup, member.JoinGroup, member.CountStored, member.ReadTime, member.StorePiece)
)
ANSWERS: Final[dict[type[Any], str]] = {
    member.MemberDeclared: DECLARE,
    member.GroupJoined: JOIN,
    member.StoredCounted: COUNT,
    member.TimeRead: READ,
    member.PieceStored: STORE,
    member.PieceRefused: STORE,
}
"""Answer -> what it answers."""


def is_wanted(known: MemberFacts, event: Any) -> bool:
    """Whether the member waits for this answer, timer or call."""
    match event:
        case member.GroupsOpened():
            return not known.begun
        case member.RouteStored():
            return known.joined and not known.routed
        case member.MessagesCame():
            return known.is_idle
        case member.HandedOut() | member.LookDue() | member.WaiterFound():
            return known.is_full
        case member.DeclareDue():
            return known.is_ending
        case member.EndMember() | member.AbandonMember():
            return True
    return known.asked == ANSWERS[type(event)]


def hear(known: MemberFacts, event: Any) -> MemberFacts:
    """What is known with the event, before anything is said."""
    match event:
        case member.GroupsOpened():
            return replace(known, begun=True)
        case member.RouteStored():
            return replace(known, routed=True)
        case member.MessagesCame(count):
            return replace(known, given=known.given + count)
        case member.HandedOut() if known.joined and not known.last:
            return replace(known, waiting=max(0, known.waiting - 1))
        case member.EndMember():
            return replace(known, last=known.asked == STORE)
    if type(event) not in ANSWERS or not is_wanted(known, event):
        return known
    known = replace(known, asked="", piece=0)
    match event:
        case member.GroupJoined():
            return replace(known, joined=True)
        case member.StoredCounted(count):
            return replace(known, waiting=min(count, MOST))
        case member.TimeRead():
            return replace(known, timed=True)
        case member.PieceStored(_, stored):
            return replace(known, waiting=known.waiting + stored)
    return known


# -- what it must say -----------------------------------------------------------------------------------------------


def ask(*requests: Request) -> Said:
    return tuple(Ask(member.GROUPS, one) for one in requests)


def store_what_fits(known: MemberFacts) -> Said:
    """The next piece, if messages were given and there is room."""
    room = MOST - known.waiting
    return ask(member.StorePiece(ID, TOKEN, SINCE_NS, room)) if known.given > 0 and room > 0 else ()


def refuse(known: MemberFacts, why: str) -> Said:
    """The node is told, and the client of a session that subscribes the filter all the same."""
    lost = (Tell(member.GroupLost(why)),) if known.routed else ()
    return (*lost, Tell(member.MemberRefused(why)), Stop())


def declares(known: MemberFacts, event: Any, said: Said) -> bool:
    """Again and again while the group is ending."""
    match event:
        case member.DeclareDue():
            return said == ask(member.DeclareMemberGroup(ID)) and known.rested == LOOK
        case member.MemberDeclared(""):
            return said == ask(member.JoinGroup(ID))
    return said == (() if event.refusal == WAIT_FOR_END else refuse(known, event.refusal))


def joins(known: MemberFacts, event: member.GroupJoined, said: Said) -> bool:
    if event.refusal:
        return said == refuse(known, event.refusal)
    return said == (Tell(member.MemberJoined()), *(ask(member.CountStored(ID)) if known.routed else ()))


def counts(known: MemberFacts, event: member.StoredCounted, said: Said) -> bool:
    return said == (store_what_fits(hear(known, event)) if known.timed else ask(member.ReadTime(ID)))


def stores(known: MemberFacts, event: Any, said: Said) -> bool:
    return said == store_what_fits(hear(known, event))


def acknowledges(known: MemberFacts, event: member.PieceStored, said: Said) -> bool:
    done = ask(member.AcknowledgePiece(ID, event.count))
    if known.last:
        return said == (*done, *leave())
    then = hear(known, event)
    return said == (*done, *store_what_fits(replace(then, given=then.given - event.count)))


def leave() -> Said:
    return (*ask(member.LeaveGroup(ID)), Stop())


def looks(known: MemberFacts, event: member.LookDue, said: Said) -> bool:
    return said == ask(member.FindWaiter(ID)) and known.rested == LOOK


def ends(known: MemberFacts, event: Any, said: Said) -> bool:
    if known.asked == STORE and isinstance(event, member.EndMember):
        return said == ()
    if known.joined:
        return said == leave()
    left = ask(member.LeaveGroup(ID)) if known.asked == JOIN else ()
    return said == (*left, Tell(member.MemberOver()), Stop())


def list_rules(is_bounded: bool) -> tuple[Rule, ...]:
    """The rules of a member whose subscription declares the group, or does not."""
    enter = ask(member.DeclareMemberGroup(ID) if is_bounded else member.JoinGroup(ID))

    def begins(known: MemberFacts, event: member.GroupsOpened, said: Said) -> bool:
        return said == enter

    def finds(known: MemberFacts, event: member.WaiterFound, said: Said) -> bool:
        if event.is_there:
            return said == (*ask(member.LeaveGroup(ID)), *enter)
        return said == (ask(member.CountStored(ID)) if known.looks >= known.count_at else ())

    return (
        rule("begins", "PS-260, PS-472", "it joins when its node takes part, or declares its group",
             begins, member.GroupsOpened),
        rule("declares", "PS-472", "it declares a group that is ending every 250 ms, and joins when it is declared",
             declares, member.MemberDeclared, member.DeclareDue),
        rule("joins", "PS-260, PS-267", "it says that it has joined, or why not",
             joins, member.GroupJoined),
        rule("follows", "PS-260, PS-263", "it counts what waits when its session subscribes the filter",
             lambda known, event, said: said == ask(member.CountStored(ID)), member.RouteStored),
        rule("counts", "PS-263, PS-287", "it reads the time before it stores for the first time",
             counts, member.StoredCounted),
        rule("stores", "PS-262, PS-263, PS-643", "it stores what it was given, a piece at a time, while it has room",
             stores, member.TimeRead, member.MessagesCame, member.HandedOut),
        rule("acknowledges", "PS-261, PS-641", "it acknowledges what was stored, and nothing else",
             acknowledges, member.PieceStored),
        rule("yields", "PS-642", "it leaves when its piece is refused, and acknowledges nothing",
             lambda known, event, said: said == leave(), member.PieceRefused),
        rule("looks", "PS-650", "it looks every 250 ms without room whether another member waits",
             looks, member.LookDue),
        rule("finds", "PS-269, PS-650", "it leaves for another member, and joins anew; it counts at some looks",
             finds, member.WaiterFound),
        rule("ends", "PS-265, PS-332, PS-641", "it leaves when it ends, and waits for its piece unless it is abandoned",
             ends, member.EndMember, member.AbandonMember),
        Rule("ignores", "PS-640", "it does nothing for what it does not wait for",
             lambda known, event: not is_wanted(known, event), lambda known, event, said: said == ()),
    )  # fmt: skip


def rule(name: str, clause: str, text: str, keeps: Any, *kinds: type[Any]) -> Rule:
    """The rule that binds the member when it waits for an event of these kinds."""
    return Rule(name, clause, text, lambda known, event: isinstance(event, kinds) and is_wanted(known, event), keeps)


NAMES: Final = tuple(one.name for one in list_rules(False))

SYSTEMS: Final[dict[str, tuple[str, bool]]] = {
    "group-member-told": ("what a member of a group owes its node, its group and the store", False),
    "group-member-declares": ("the same, of a member whose subscription declares the group", True),
}
"""Name -> (about, whether the subscription declares the group)."""


def system(name: str) -> System:
    """The system called so."""
    about, is_bounded = SYSTEMS[name]
    machine = Machine(
        GROUP_MEMBER,
        member.GroupMemberRecord(ID, TOKEN, is_bounded=is_bounded, most=MOST),
        timing=Timing(TICK_NS, ("look", "declare")),
        bound=lambda record: record.looks <= LOOKS_MAX,
        says_so=False,
    )
    return contract(name, about, machine, GroupOutside(is_bounded), TickClock(TICK_NS))
