"""What a member of a group owes its node, its group and the store, whatever it is told (PS-260 to PS-650)."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Ask, Request, Stop, Tell
from statemachines.persistent_sessions import group_member_record as member
from statemachines.persistent_sessions.group_member import GROUP_MEMBER
from statemachines.persistent_sessions.group_member_actions import LOOK_NS, WAIT_FOR_END
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.table_contract import Duty, PhaseClock, TableContract, TableFacts

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


class MemberFacts(TableFacts, frozen=True, gc=False):
    """Its subscription declares the group (`is_bounded`); its session is `routed`.  It has the time (`timed`), was
    `given` messages, and stores a `piece` of them.  `waiting`: for the client.  It `looks` without room, and counts at
    look `count_at`.  It ends after its `last` piece."""

    is_bounded: bool = False
    routed: bool = False
    timed: bool = False
    given: int = 0
    piece: int = 0
    waiting: int = 0
    looks: int = 0
    count_at: int = member.COUNT_AFTER
    last: bool = False


class GroupOutside(TableContract):
    """a node, a group and a store that say anything at any time, also answers that nobody waits for, and a client"""

    def can_say(self, known: MemberFacts, word: Any) -> bool:
        """Messages come while there may be more, and the client is handed what waits."""
        match word:
            case member.MessagesCame():
                return known.given < MOST and known.phase in JOINING.split()
            case member.HandedOut():
                return known.waiting > 0 or known.phase not in JOINED.split()
            case member.PieceStored(count):
                return count <= max(1, known.piece)
        return super().can_say(known, word)


JOINED: Final = "joined count read store idle full"
JOINING: Final = f"join {JOINED}"


def enter(known: MemberFacts, event: Any) -> MemberFacts:
    """It declares its group first, if its subscription does."""
    return replace(known, phase="declare" if known.is_bounded else "join")


def store(known: MemberFacts) -> MemberFacts:
    """It stores the next piece, if messages were given and there is room."""
    room = MOST - known.waiting
    if not known.given or room <= 0:
        return replace(known, phase="full" if known.given else "idle", piece=0)
    piece = min(room, known.given)
    return replace(known, phase="store", piece=piece, looks=0, count_at=member.COUNT_AFTER)


def count(known: MemberFacts, event: member.StoredCounted) -> MemberFacts:
    """It reads the time before it stores for the first time."""
    known = replace(known, waiting=min(event.count, MOST))
    return store(known) if known.timed else replace(known, phase="read")


def hand_out(known: MemberFacts, event: Any) -> MemberFacts:
    return replace(known, waiting=max(0, known.waiting - 1))


def give(known: MemberFacts, event: member.MessagesCame) -> MemberFacts:
    return replace(known, given=known.given + event.count)


def acknowledge(known: MemberFacts, event: member.PieceStored) -> MemberFacts:
    return store(replace(known, waiting=known.waiting + event.stored, given=known.given - event.count))


def find(known: MemberFacts, event: member.WaiterFound) -> MemberFacts:
    """It leaves for another member, and joins anew; it counts at some looks."""
    if event.is_there:
        return enter(MemberFacts("join", known.passed, known.is_bounded, known.routed, waiting=known.waiting), event)
    if known.looks < known.count_at:
        return known
    later = known.count_at + min(known.count_at, member.COUNT_AFTER_MAX)
    return replace(known, phase="count", count_at=later)


def ask(*requests: Request) -> Said:
    return tuple(Ask(member.GROUPS, one) for one in requests)


def say_next(known: MemberFacts, event: Any = None) -> Said:
    """What it asks when it comes to its phase."""
    match known.phase:
        case "declare":
            return ask(member.DeclareMemberGroup(ID))
        case "join":
            return ask(member.JoinGroup(ID))
        case "count":
            return ask(member.CountStored(ID))
        case "read":
            return ask(member.ReadTime(ID))
        case "store":
            return ask(member.StorePiece(ID, TOKEN, SINCE_NS, MOST - known.waiting))
    return ()


def refuse(known: MemberFacts, event: Any) -> Said:
    """The node is told, and the client of a session that subscribes the filter all the same."""
    lost = (Tell(member.GroupLost(event.refusal)),) if known.routed else ()
    return (*lost, Tell(member.MemberRefused(event.refusal)), Stop())


def leave(known: MemberFacts, event: Any) -> Said:
    return (*ask(member.LeaveGroup(ID)), Stop())


OVER: Final = (Tell(member.MemberOver()), Stop())
ENDS: Final = member.EndMember | member.AbandonMember
# fmt: off
ROWS: Final = (
    Duty("begins", "PS-260, PS-472", "it joins when its node takes part, or declares its group",
         member.GroupsOpened, "new", say_next, then=enter),
    Duty("declares", "PS-472", "it declares a group that is ending every 250 ms, and joins when it is declared",
         member.DeclareDue, "ending", say_next, "declare"),
    Duty("declares", "", "", member.MemberDeclared, "declare", say_next, "join",
         lambda known, event: not event.refusal),
    Duty("declares", "", "", member.MemberDeclared, "declare", to="ending",
         when=lambda known, event: event.refusal == WAIT_FOR_END),
    Duty("declares", "", "", member.MemberDeclared, "declare", refuse),
    Duty("joins", "PS-260, PS-267", "it says that it has joined, or why not",
         member.GroupJoined, "join", refuse, when=lambda known, event: event.refusal),
    Duty("joins", "", "", member.GroupJoined, "join",
         lambda known, event: (Tell(member.MemberJoined()), *say_next(known)),
         then=lambda known, event: replace(known, phase="count" if known.routed else "joined")),
    Duty("follows", "PS-260, PS-263", "it counts what waits when its session subscribes the filter",
         member.RouteStored, "joined", say_next, "count", then=lambda known, event: replace(known, routed=True)),
    Duty("counts", "PS-263, PS-287", "it reads the time before it stores for the first time",
         member.StoredCounted, "count", say_next, then=count),
    Duty("stores", "PS-262, PS-263, PS-643", "it stores what it was given, a piece at a time, while it has room",
         member.TimeRead, "read", say_next, then=lambda known, event: store(replace(known, timed=True))),
    Duty("stores", "", "", member.MessagesCame, "idle", say_next,
         then=lambda known, event: store(give(known, event))),
    Duty("stores", "", "", member.HandedOut, "full", say_next,
         then=lambda known, event: store(hand_out(known, event))),
    Duty("acknowledges", "PS-261, PS-641", "it acknowledges what was stored, and nothing else",
         member.PieceStored, "store",
         lambda known, event: (*ask(member.AcknowledgePiece(ID, event.count)), *leave(known, event)),
         when=lambda known, event: known.last),
    Duty("acknowledges", "", "", member.PieceStored, "store",
         lambda known, event: (*ask(member.AcknowledgePiece(ID, event.count)), *say_next(known)), then=acknowledge),
    Duty("yields", "PS-642", "it leaves when its piece is refused, and acknowledges nothing",
         member.PieceRefused, "store", leave),
    Duty("looks", "PS-650", "it looks every 250 ms without room whether another member waits",
         member.LookDue, "full", lambda known, event: ask(member.FindWaiter(ID)),
         then=lambda known, event: replace(known, looks=known.looks + 1)),
    Duty("finds", "PS-269, PS-650", "it leaves for another member, and joins anew; it counts at some looks",
         member.WaiterFound, "full", lambda known, event: (*ask(member.LeaveGroup(ID)), *say_next(known)),
         when=lambda known, event: event.is_there, then=find),
    Duty("finds", "", "", member.WaiterFound, "full", say_next, then=find),
    Duty("ends", "PS-265, PS-332, PS-641", "it leaves when it ends, and waits for its piece unless it is abandoned",
         member.EndMember, "store", then=lambda known, event: replace(known, last=True)),
    Duty("ends", "", "", ENDS, JOINED, leave),
    Duty("ends", "", "", ENDS, "join", lambda known, event: (*ask(member.LeaveGroup(ID)), *OVER)),
    Duty("ends", "", "", ENDS, "new declare ending", lambda known, event: OVER),
    Duty("ignores", "PS-640", "it does nothing for what it does not wait for",
         member.RouteStored, then=lambda known, event: replace(known, routed=True)),
    Duty("ignores", "", "", member.MessagesCame, JOINING, then=give),
    Duty("ignores", "", "", member.HandedOut, JOINED, then=hand_out, when=lambda known, event: not known.last),
    Duty("ignores", "", "", member.GroupsOpened),
    Duty("ignores", "", "", object),
)
WORDS: Final = (
    member.GroupsOpened(), member.RouteStored(), member.EndMember(), member.AbandonMember(), member.MessagesCame(1),
    *(member.MemberDeclared(why) for why in ("", WAIT_FOR_END, NO_GROUP)),
    *(member.GroupJoined(why) for why in ("", NO_GROUP)), *(member.StoredCounted(count) for count in range(MOST + 2)),
    member.TimeRead(SINCE_NS), member.PieceRefused(), member.WaiterFound(False), member.WaiterFound(True),
    *(member.PieceStored(count, stored) for count in range(1, MOST + 1) for stored in (0, count)),
    member.HandedOut(), member.DeclareDue(), member.LookDue(),
)
# fmt: on
CLOCKS: Final = (
    PhaseClock(member.LookDue, "full", LOOK, "looks"),
    PhaseClock(member.DeclareDue, "ending", LOOK, "declares"),
)

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
    idle = () if is_bounded else ("declares",)
    counterpart = GroupOutside(ROWS, CLOCKS, WORDS, MemberFacts(is_bounded=is_bounded), idle=idle)
    return contract(name, about, machine, counterpart, TickClock(TICK_NS))
