"""What a leader host owes to those who ask it for a leader, to its follower, and to its own host: SS-220 to SS-224,
SS-256, SS-275 and SS-281."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Arrived, Map, Message, Request
from statemachines.kernel.process import PROCESS
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines.shared_subscriptions.group_store import Claim, Commit, GroupStore, Read, ReadDone, StoredRecord
from statemachines.shared_subscriptions.leader import Resigned
from statemachines.shared_subscriptions.message import (
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
)
from statemachines.shared_subscriptions.registry import (
    LEADERS,
    REGISTRY,
    Close,
    DetourEnd,
    HaltAll,
    LetGoEnd,
    RegistryRecord,
)
from statemachines.shared_subscriptions.stream_store import StreamsListed, StreamStore
from statemachines_spec.contract import Rule
from statemachines_spec.explorer.actor import Move, Stamp, Timing
from statemachines_spec.explorer.party import PartyInput
from statemachines_spec.explorer.process_steps import ProcessParts
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.process_contract import (
    ProcessCounterpart,
    RefusedCall,
    Said,
    WholeProcess,
    find_said,
    process_contract,
)
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.leader_host import STORE_TIMERS
from statemachines_spec.shared_subscriptions.stores import make_declared_store
from statemachines_spec.shared_subscriptions.succession import TICK_NS, TIMES, of_leader

HOST: Final = "leader-1"
LIFE: Final = f"{HOST}~1"
FOLLOWER: Final = "leader-3~1"
NEAR, FAR = "consumer-1~1/1", "consumer-2~1/1"
"""A borrower that reaches the host, and one that asks through the follower."""
LEADERS_STARTED_MAX: Final = 2
RELAYED_MAX: Final = 2
SILENT: Final = (
    *(one for one in STORE_TIMERS if one != "idle"), "retry", "grace", "expiry", "hand_over", "resend",
    "grant_timeout", "revoke_timeout",
)  # fmt: skip
GROUPS: Final = GroupStore()
STREAMS: Final = StreamStore(1)
Open = tuple[str, str, Request]
Member = tuple[str, int, int]
"""A borrower, and the numbers that it goes by: epoch and registration."""


class HostFacts(msgspec.Struct, frozen=True, gc=False):
    """`leader` of the moment, as a running number, and how many there `were`; it `serves`, or is `releasing`, or has
    asked to take the claim (`taking`); its `members`; what is `open` at stores, and what the group store has; whether
    the host remembers the way `around` of the far borrower; its leader is not to take the claim (`held`), nor are those
    that come (`holds`); the host is `closing`; messages that were `relayed`."""

    leader: int = 0
    were: int = 0
    serves: bool = False
    releasing: bool = False
    taking: bool = False
    members: tuple[Member, ...] = ()
    open: tuple[Open, ...] = ()
    tables: Map[str, StoredRecord] = Map()
    around: bool = False
    held: bool = False
    holds: bool = False
    closing: bool = False
    relayed: int = 0

    @property
    def party(self) -> str:
        """The leader of the moment."""
        return LEADERS.id_of(LIFE, self.leader)


def apply(known: HostFacts, one: Open) -> tuple[Map[str, StoredRecord], Any]:
    """What a store makes of a request: what the group store has then, and the answer."""
    _, service, request = one
    if service == GROUP_STORE:
        tables, answers = GROUPS.apply(known.tables, request, known.were + 1)
        return tables, answers[0]
    return known.tables, STREAMS.apply(STREAMS.initial(), request, 0)[1][0]


class HostCallers(ProcessCounterpart):
    """two borrowers, one of which asks through a follower, the stores, which answer at any time, and the host"""

    owes = "S19"

    def __init__(self, rules: tuple[Rule, ...], ours: Configuration) -> None:
        super().__init__(rules)
        self.ours = ours

    def begins(self) -> HostFacts:
        return HostFacts(tables=make_declared_store(self.ours))

    def says(self, known: HostFacts) -> Iterator[Any]:
        yield WANTED
        yield from STRAY
        if known.leader and known.relayed < RELAYED_MAX:
            yield relay(known.party, LeaderWanted(FAR, GROUP, FILTER))
        for member in known.members:
            if member[0] == FAR:
                yield Arrived(FAR, known.party, ping(member))
                if known.relayed < RELAYED_MAX:
                    yield relay(known.party, ping(member))
        yield HaltAll()
        if not known.closing:
            yield Close()
        if (
            known.were < LEADERS_STARTED_MAX or not known.taking
        ):  # of the last one it is seen whether it takes the claim
            yield from (PartyInput(one[0], apply(known, one)[1]) for one in known.open)

    def learns(self, known: HostFacts, event: Any, said: Said) -> HostFacts:
        match event:
            case Arrived(sender, _, LeaderWanted()) if sender == NEAR and starts(known, event):
                known = replace(known, leader=known.were + 1, were=known.were + 1, held=known.holds)
            case Arrived(_, to, RelayedToLeader()) if known.leader and to == known.party:
                known = replace(known, around=True, relayed=known.relayed + 1)
            case PartyInput(_, DetourEnd()):
                known = replace(known, around=False)
            case PartyInput(_, LetGoEnd()):
                known = replace(known, holds=False)
            case Close():
                known = replace(known, closing=True)
            case PartyInput(party, answer):
                known = learn_answer(known, party, answer)
        return learn_said(known, said)


def starts(known: HostFacts, event: Arrived) -> bool:
    """A leader is wanted, and may be started."""
    return event == WANTED and not known.leader and not known.closing


def learn_answer(known: HostFacts, party: str, answer: Any) -> HostFacts:
    """A store has answered a leader."""
    one = next((one for one in known.open if one[0] == party and apply(known, one)[1] == answer), None)
    if one is None:
        return known
    serves = known.serves or (isinstance(answer, StreamsListed) and not known.releasing)
    rest = tuple(other for other in known.open if other != one)
    return replace(known, tables=apply(known, one)[0], open=rest, serves=serves)


def learn_said(known: HostFacts, said: Said) -> HostFacts:
    """What the leader asks, who is a member, and that it is gone."""
    asked = tuple((one.sender, one.to, one.event) for one in said if isinstance(one.event, Request))
    answers = (one for one in flatten(said) if isinstance(one, LeaderConnectResponse))
    joined = {(one.borrower, one.epoch, one.registration) for one in answers}
    known = replace(known, open=(*known.open, *asked), members=tuple(sorted({*known.members, *joined})))
    known = replace(known, taking=known.taking or any(isinstance(one, Commit) for _, _, one in asked))
    of_leader = tuple(one for one in said if one.sender == known.party)
    if any(isinstance(one, Invalidate) for one in flatten(of_leader)) or is_release(asked):
        known = replace(known, serves=False, releasing=bool(known.leader), members=())
    for gone in find_said(said, Resigned):
        rest = tuple(one for one in known.open if one[0] != gone.leader)
        known = replace(
            known, leader=0, serves=False, releasing=False, members=(), open=rest, held=False, taking=False,
            holds=known.holds or gone.unfit,
        )  # fmt: skip
    return known


def is_release(asked: tuple[Open, ...]) -> bool:
    """A leader gives its claim up."""
    puts = (value for _, _, one in asked if isinstance(one, Commit) for _, value in one.put)
    return any(isinstance(value, Claim) and not value.leader for value in puts)


def flatten(said: Said) -> list[Any]:
    """Every message that is said, out of what relays it."""
    return [getattr(one.event, "message", one.event) for one in said if isinstance(one.event, Message)]


def ping(member: Member) -> Ping:
    """The first ping of a member."""
    return Ping(*member, 1)


def relay(leader: str, message: Any) -> Arrived:
    """What a borrower says through the follower."""
    return Arrived(FOLLOWER, leader, RelayedToLeader(leader, FOLLOWER, message))


WANTED: Final = Arrived(NEAR, HOST, LeaderWanted(NEAR, GROUP, FILTER))
MALFORMED: Final = Arrived(NEAR, HOST, LeaderWanted(NEAR, GROUP, "a#"))
GONE: Final = LEADERS.id_of(LIFE, 9)
LOST: Final = Arrived(NEAR, GONE, Ping(NEAR, 1, 1, 1))
LOST_AROUND: Final = relay(GONE, Ping(FAR, 1, 1, 1))
MISLED: Final = (Arrived(NEAR, GONE, LeaderWanted(NEAR, GROUP, FILTER)), relay(GONE, LeaderWanted(FAR, GROUP, FILTER)))
STRAY: Final = (MALFORMED, LOST, LOST_AROUND, *MISLED)


def said_out(said: Said) -> list[tuple[str, str, str]]:
    """What is said to nodes: to whom, what, and what that relays ("": nothing), sorted."""
    found = ((one.to, one.event) for one in said if isinstance(one.event, Message))
    return sorted((to, type(one).__name__, relayed_name(one)) for to, one in found)


def relayed_name(one: Any) -> str:
    """What is relayed in it ("": nothing)."""
    return type(one.message).__name__ if isinstance(one, RelayedToBorrower) else ""


def directly(to: str, kind: type[Any]) -> tuple[str, str, str]:
    """It is said to the borrower itself."""
    return (to, kind.__name__, "")


def around(kind: type[Any]) -> tuple[str, str, str]:
    """It is said to the far borrower through the follower."""
    return (FOLLOWER, RelayedToBorrower.__name__, kind.__name__)


def is_relayed_here(known: HostFacts, event: Any) -> bool:
    """The follower relays something to the leader, which leads."""
    return (
        known.serves
        and isinstance(event, Arrived)
        and isinstance(event.message, RelayedToLeader)
        and event.to == known.party
    )


def answer_to(message: Any) -> type[Any]:
    """What a leader answers a question with."""
    return PingResponse if isinstance(message, Ping) else LeaderConnectResponse


def is_end(event: Any) -> bool:
    """The host halts its leaders."""
    return isinstance(event, Close | HaltAll)


def farewells(known: HostFacts) -> list[tuple[str, str, str]]:
    """What the members of a leader that leads no more are told."""
    told = [directly(name, Invalidate) for name, _, _ in known.members]
    is_far = any(name == FAR for name, _, _ in known.members)
    return sorted([*told, *([around(Invalidate)] if is_far and known.around else [])])


def is_answer(known: HostFacts, event: Any, kind: type[Any]) -> bool:
    """A store answers so the leader of the moment."""
    return isinstance(event, PartyInput) and event.party == known.party and isinstance(event.event, kind)


def is_look(known: HostFacts, event: Any) -> bool:
    """The leader of the moment reads the claim, the first thing that it reads."""
    if known.taking or not is_answer(known, event, ReadDone):
        return False
    return any(isinstance(one, Read) and one.n == event.event.n for _, _, one in known.open)


LATER: Final = [(name, LeaderConnectResponse.__name__, "") for name in (NEAR, FAR)]


RULES: Final = (
    Rule("starts", "SS-220, SS-224", "whoever asks for a leader that is not there has one started",
         lambda known, event: starts(known, event),
         lambda known, event, said: [(one.sender, type(one.event)) for one in said]
         == [(LEADERS.id_of(LIFE, known.were + 1), Read)]),
    Rule("asks the same", "SS-220", "as long as a leader is there it is the one that is asked",
         lambda known, event: event == WANTED and known.serves,
         lambda known, event, said: [type(one.event) for one in said] == [LeaderConnectResponse]),
    Rule("starts no other", "SS-220, SS-224", "while a leader does not lead yet or any more no other is started, and "
         "none by a host that ends",
         lambda known, event: event == WANTED and not known.serves and not starts(known, event),
         lambda known, event, said: said == ()),
    Rule("refuses names", "SS-223", "a malformed filter is refused, and starts nothing",
         lambda known, event: event == MALFORMED and not known.closing,
         lambda known, event, said: find_said(said, RefusedCall) == (RefusedCall("RemoteProtocolError"),)),
    Rule("gone", "SS-221", "whoever pings a leader that is gone is told so",
         lambda known, event: event == LOST,
         lambda known, event, said: said_out(said) == [directly(NEAR, Invalidate)]),
    Rule("gone around", "SS-221, SS-274", "whoever does it through the follower is told so through the follower",
         lambda known, event: event == LOST_AROUND,
         lambda known, event, said: said_out(said) == [around(Invalidate)]),
    Rule("misled", "SS-256", "whoever asks a leader that is gone for a leader is not answered",
         lambda known, event: event in MISLED,
         lambda known, event, said: said == ()),
    Rule("answers around", "SS-275", "what is asked through the follower is answered through it alone",
         is_relayed_here,
         lambda known, event, said: said_out(said) == [around(answer_to(event.message.message))]),
    Rule("answers directly", "SS-275", "what a borrower asks itself is answered to itself alone",
         lambda known, event: isinstance(event, Arrived) and event.sender == FAR,
         lambda known, event, said: said_out(said) == [directly(FAR, PingResponse)]),
    Rule("answers later", "SS-275", "a connect response that comes later than its question goes to the borrower itself",
         lambda known, event: is_answer(known, event, StreamsListed),
         lambda known, event, said: all(one in LATER for one in said_out(said))),
    Rule("halts", "SS-224, SS-275", "members are told when their leader is halted, one that has spoken through the "
         "follower by both ways",
         lambda known, event: is_end(event) and known.serves,
         lambda known, event, said: said_out(said) == farewells(known)),
    Rule("takes", "SS-220", "a leader that finds the claim free takes it",
         lambda known, event: is_look(known, event) and not known.held,
         lambda known, event, said: [type(one.event) for one in said] == [Commit]),
    Rule("is held back", "SS-281", "a host whose leader could not serve takes no claim of the group for a time",
         lambda known, event: is_look(known, event) and known.held,
         lambda known, event, said: said == ()),
    Rule("forgets", "SS-275", "when a validity has passed the host says nothing through the follower any more",
         lambda known, event: isinstance(event, PartyInput) and isinstance(event.event, DetourEnd),
         lambda known, event, said: said == ()),
    Rule("lets go", "SS-281", "when that time has passed the host may lead the group again",
         lambda known, event: isinstance(event, PartyInput) and isinstance(event.event, LetGoEnd),
         lambda known, event, said: said == ()),
)  # fmt: skip


def is_within(parts: ProcessParts) -> bool:
    """few leaders, and messages that are relayed"""
    record = parts.own.record
    return bool(record.number <= LEADERS_STARTED_MAX and record.detours.turn <= RELAYED_MAX)


def begin_host(life: str = LIFE) -> RegistryRecord:
    """What the process begins with."""
    return RegistryRecord(life, TIMES.check())


def build_asked(name: str) -> System:
    """It leads nothing yet."""
    whole = WholeProcess(REGISTRY, lambda steps: steps.begin(begin_host()), (Resigned,), silent=SILENT, bound=is_within)
    return process_contract(name, ABOUT[name], whole, HostCallers(RULES, TIMES))


# -- on time --------------------------------------------------------------------------------------------------------


class ClockedFacts(msgspec.Struct, frozen=True, gc=False):
    """What is known, and how many ticks ago the far borrower has spoken through the follower (`spoken`), and a leader
    that could not serve was gone (`gone`)."""

    known: HostFacts
    spoken: int = 0
    gone: int = 0


VALIDITY: Final = TIMES.validity_ms * MS // TICK_NS
HOLDS: Final = (TIMES.claim_ttl_ms + TIMES.find_leader_ms) * MS // TICK_NS
LONG: Final = max(VALIDITY, HOLDS) + 1


class OnTime(HostCallers):
    """a borrower that asks through the follower, whose leader cannot serve, the stores, and time"""

    def __init__(self, ours: Configuration) -> None:
        super().__init__(DUE, ours)

    def begins(self) -> Any:
        return ClockedFacts(super().begins())

    def says(self, since: Any) -> Iterator[Any]:
        known: HostFacts = since.known
        if not known.were:
            yield WANTED
        if known.serves and not known.relayed:
            yield relay(known.party, LeaderWanted(FAR, GROUP, FILTER))
        yield from (PartyInput(one[0], apply(known, one)[1]) for one in known.open)

    def learns(self, since: Any, event: Any, said: Said) -> Any:
        before: HostFacts = since.known
        known = super().learns(before, event, said)
        spoken = 0 if known.relayed > before.relayed else since.spoken
        return ClockedFacts(known, spoken, 0 if known.holds and not before.holds else since.gone)

    def ages(self, since: Any, ticks: int) -> Any:
        known: HostFacts = since.known
        if not known.around and not known.holds:
            return since
        spoken, gone = (min(LONG, one + ticks) for one in (since.spoken, since.gone))
        return replace(since, spoken=spoken if known.around else 0, gone=gone if known.holds else 0)

    def is_late(self, since: Any) -> int:
        late = (since.known.around and since.spoken > VALIDITY, since.known.holds and since.gone > HOLDS)
        return next((number for number, is_over in enumerate(late, 1) if is_over), 0)


DUE: Final = (
    Rule("forgets on time", "SS-275", "a way through a follower is remembered for a validity",
         lambda since, event: isinstance(event, PartyInput) and isinstance(event.event, DetourEnd),
         lambda since, event, said: since.spoken == VALIDITY),
    Rule("lets go on time", "SS-281", "a host whose leader could not serve takes no claim of the group for claim_ttl "
         "and find_leader",
         lambda since, event: isinstance(event, PartyInput) and isinstance(event.event, LetGoEnd),
         lambda since, event, said: since.gone == HOLDS),
)  # fmt: skip


def move_let_go(record: RegistryRecord, live: Move, dead: Move) -> RegistryRecord:
    """The times before which no claim is taken."""
    return replace(record, let_go=Map({place: live(until_ns) for place, until_ns in record.let_go.items()}))


def build_timed(name: str) -> System:
    """It leads nothing yet; of its timers time is counted."""
    let_go = Stamp("let_go", HOLDS * TICK_NS, move_let_go)
    timings = {
        PROCESS: Timing(TICK_NS, ("detour_end", "let_go_end"), (let_go,)),
        LEADERS.name: of_leader(TIMES, ()),
    }
    whole = WholeProcess(REGISTRY, lambda steps: steps.begin(begin_host()), (Resigned,), silent=SILENT, timings=timings)
    return process_contract(name, ABOUT[name], whole, OnTime(TIMES), TickClock(TICK_NS))


ABOUT: Final = {
    "registry-asked": "a leader host whose leaders come and go, and two borrowers, one of them behind a follower",
    "timed-registry": "a leader host forgets ways through followers, and leads again what it could not serve, on time",
}
BUILDS: Final[dict[str, Callable[[str], System]]] = {"registry-asked": build_asked, "timed-registry": build_timed}


def build(name: str) -> System:
    """The contract called so."""
    return BUILDS[name](name)
