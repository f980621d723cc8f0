"""What the process of a session owes to its application, to the group store and to whoever speaks to it as a leader:
SS-170 to SS-177, SS-244, SS-245 and SS-276.  `AGENT` and `HANDLER` owe the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Arrived, Map, Message, Process
from statemachines.shared_subscriptions.agent_process import AGENT, BORROWERS, DECLARERS, WITNESSES
from statemachines.shared_subscriptions.borrower import Destroyed, PingTimer
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group import DeclarationRefused
from statemachines.shared_subscriptions.group_store import Claim, Properties, Read, ReadDone, StoredRecord
from statemachines.shared_subscriptions.handler_process import HANDLER, PRIVATES
from statemachines.shared_subscriptions.listing import DeliveriesRevoked, Resumed, Suspended
from statemachines.shared_subscriptions.message import (
    Disconnect,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
    Undeclared,
)
from statemachines.shared_subscriptions.private_subscription import (
    SUBSCRIPTIONS_MAX,
    AgentRecord,
    EndSubscription,
    LeaveAll,
    LeaveSubscription,
    Private,
    ServedSubscription,
    SharedFilter,
    SubscribeAlone,
    SubscribeShared,
)
from statemachines.shared_subscriptions.session_record import (
    AcknowledgementLate,
    ApplicationReturned,
    Ended,
    ReadsFailed,
    ReadsSucceed,
)
from statemachines.shared_subscriptions.stream_store import ListStreams
from statemachines_spec.contract import Rule
from statemachines_spec.explorer.party import PartyInput
from statemachines_spec.explorer.process_steps import ProcessParts
from statemachines_spec.explorer.system import System
from statemachines_spec.process_contract import (
    ProcessCounterpart,
    RefusedCall,
    Said,
    WholeProcess,
    find_said,
    process_contract,
)
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP, subscribe

LIFE: Final = "consumer-1~1"
REGISTRY: Final = "leader-3"
OURS: Final = Configuration(count_deliveries=False)
TOLD: Final = (Destroyed, DeclarationRefused, Ended, Suspended, Resumed, DeliveriesRevoked)
SILENT: Final = ("find_leader", "ping_timeout", "lease", "unsubscribe", "again", "poll")
NOBODY: Final = ("", 0)
CLAIMS: Final = (("leader-1~1/1", 1), ("leader-2~1/1", 2))
"""Whom the claim may name, under which epoch."""
FOLLOWER: Final = "leader-3~1"
WITNESS: Final = f"{LIFE}/witness-1"
BORROWERS_MAX: Final = 2
READS_MAX: Final = 2
WAITS_MAX: Final = 1
PINGS_MAX: Final = 2
Named = tuple[str, int]


def id_of(number: int) -> str:
    """The id of the borrower with this running number."""
    return f"{LIFE}/{number}"


def make_record(life: str = LIFE) -> AgentRecord:
    """What the process begins with."""
    return AgentRecord(life, (REGISTRY,), OURS.check(), buffer=1)


# -- whom it believes ----------------------------------------------------------------------------------------------


class BelievedFacts(msgspec.Struct, frozen=True, gc=False):
    """`number` of the borrower of the moment; whom the claim `named` when it was read last; the read that is `open`
    (0: none); what `waits` for it, as (leader and epoch, whether it was relayed); whom the borrower `follows`, the
    highest epoch that it has `seen`, the `ping` that is open (0: none), how many it has sent; whether its connect
    response was `relayed`, and it was not answered directly since; the subscription has `ended`."""

    number: int = 1
    named: Named = NOBODY
    open: int = 0
    waits: tuple[tuple[Named, bool], ...] = ()
    follows: Named = NOBODY
    seen: int = 0
    ping: bool = False
    pings: int = 0
    relayed: bool = False
    ended: bool = False


class Leaders(ProcessCounterpart):
    """two leaders, one of an older epoch, a follower between them and the process, and the claim"""

    owes = "S19"

    def __init__(self) -> None:
        super().__init__(BELIEVES)

    def begins(self) -> BelievedFacts:
        return BelievedFacts()

    def says(self, known: BelievedFacts) -> Iterator[Any]:
        living = id_of(known.number)
        for leader, epoch in () if known.ended or len(known.waits) == WAITS_MAX else CLAIMS:
            if known.follows != (leader, epoch):
                yield from two_ways(leader, LeaderConnectResponse(living, leader, epoch, 1))
        if known.open:
            for leader, epoch in (NOBODY, *CLAIMS):
                claim = StoredRecord(Claim(leader, epoch), epoch) if leader else None
                yield PartyInput(WITNESS, ReadDone(known.open, (claim,), 0))
        if known.ping:
            leader, epoch = known.follows
            yield from two_ways(leader, PingResponse(living, epoch, 1, known.pings))
        if known.ended or known.number > 1:
            leader, gone, other = CLAIMS[0][0], id_of(1), "consumer-1~2/1"
            yield from two_ways(leader, PingResponse(gone, 1, 1, 1))
            yield Arrived(leader, gone, Undeclared(gone))
            yield Arrived(leader, other, PingResponse(other, 1, 1, 1))
        if not known.ended:
            yield EndSubscription(id_of(1))

    def learns(self, known: BelievedFacts, event: Any, said: Said) -> BelievedFacts:
        reads = find_said(said, Read)
        if isinstance(event, EndSubscription):
            return BelievedFacts(known.number, known.named, ended=True)
        if isinstance(event, PartyInput) and isinstance(event.event, ReadDone):
            known = learn_claim(replace(known, open=0), event.event)
        elif isinstance(event, PartyInput) and isinstance(event.event, PingTimer):
            known = replace(known, ping=True, pings=known.pings + 1)
        elif is_to_living(known, event):
            known = learn_message(known, event)
        return replace(known, open=reads[-1].n) if reads else known


def two_ways(leader: str, message: Any) -> Iterator[Arrived]:
    """What a leader says, directly and through the follower."""
    yield Arrived(leader, message.borrower, message)
    yield Arrived(FOLLOWER, message.borrower, RelayedToBorrower(leader, FOLLOWER, message))


def named_in(event: ReadDone) -> Named:
    """Whom the claim names, as it is read."""
    found = event.records[0]
    return NOBODY if found is None else (found.value.leader, found.value.epoch)  # type: ignore[union-attr]


def learn_claim(known: BelievedFacts, event: ReadDone) -> BelievedFacts:
    """The claim was read: the borrower is followed by another, hears what waited, or goes on."""
    named = named_in(event)
    if is_misled(known, named):
        return BelievedFacts(known.number + 1, named, seen=named[1])
    heard = find_heard(known, named)
    known = replace(known, named=named, waits=())
    return known if heard is None else connect(known, named, heard)


def is_misled(known: BelievedFacts, named: Named) -> bool:
    """It follows somebody whom the claim does not name, or waits for an epoch above that of the claim."""
    return known.follows != named if known.follows != NOBODY else known.seen > named[1]


def find_heard(known: BelievedFacts, named: Named) -> bool | None:
    """Whether some of what is heard when the claim names this leader was relayed (None: nothing is heard)."""
    if known.follows != NOBODY:
        return None
    heard = [relayed for leader, relayed in known.waits if leader == named]
    return any(heard) if heard else None


def learn_message(known: BelievedFacts, event: Arrived) -> BelievedFacts:
    """A leader has spoken to the borrower."""
    relayed, said = is_relayed(event), message_of(event)
    if isinstance(said, PingResponse):
        return replace(known, ping=False, relayed=known.relayed and relayed)
    named = (said.leader, said.epoch)
    return connect(known, named, relayed) if is_named(known, event) else replace(
        known, waits=(*known.waits, (named, relayed)))  # fmt: skip


def connect(known: BelievedFacts, named: Named, relayed: bool) -> BelievedFacts:
    """The borrower follows this leader from now on, and has sent its first ping."""
    return replace(known, follows=named, ping=True, pings=1, relayed=relayed)


def is_relayed(event: Arrived) -> bool:
    """The follower passes it on."""
    return isinstance(event.message, RelayedToBorrower)


def message_of(event: Arrived) -> Any:
    """What a leader says, whoever relays it."""
    return event.message.message if is_relayed(event) else event.message


def is_to_living(known: BelievedFacts, event: Any) -> bool:
    """It is said to the borrower of the moment."""
    return isinstance(event, Arrived) and not known.ended and event.to == id_of(known.number)


def is_named(known: BelievedFacts, event: Arrived) -> bool:
    """The claim names who says it."""
    said = message_of(event)
    leader = event.message.leader if is_relayed(event) else event.sender
    return known.named == (leader, said.epoch)


def is_claim(event: Any) -> bool:
    """The claim is read."""
    return isinstance(event, PartyInput) and event.party == WITNESS and isinstance(event.event, ReadDone)


def outward(said: Said) -> list[tuple[str, str]]:
    """What is said to nodes, and to whom: (to, kind), sorted."""
    return sorted((one.to, type(one.event).__name__) for one in said if isinstance(one.event, Message))


def ways_to(named: Named, kind: type[Any], *, relayed: bool) -> list[tuple[str, str]]:
    """It is said to that leader; if the leader is reached through the follower, to that one as well."""
    return [(named[0], kind.__name__), *([(FOLLOWER, RelayedToLeader.__name__)] if relayed else [])]


def hears_claim(known: BelievedFacts, event: Any, said: Said) -> bool:
    named = named_in(event.event)
    if is_misled(known, named):
        wanted = [(one.to, one.sender) for one in said if isinstance(one.event, LeaderWanted)]
        return wanted == [(REGISTRY, id_of(known.number + 1))] and len(outward(said)) == 1
    relayed = find_heard(known, named)
    return outward(said) == ([] if relayed is None else ways_to(named, Ping, relayed=relayed))


def says_farewell(event: Arrived, said: Said) -> bool:
    """The borrower that is gone says so to the leader, by the way on which it was spoken to."""
    last = [(one.to, one.event) for one in said]
    farewell = Disconnect(event.to, 1, 1)
    if not is_relayed(event):
        return last == [(event.sender, farewell)]
    return last == [(FOLLOWER, RelayedToLeader(event.message.leader, FOLLOWER, farewell))]


def count_ends(said: Said) -> int:
    """How many subscriptions have ended, as the application is told."""
    return len([one for one in find_said(said, Destroyed) if not one.recreate]) + len(find_said(said, Ended))


def is_told_of_end(event: Any) -> bool:
    """It says to whom it talks that a borrower is gone."""
    return isinstance(message_of(event), PingResponse) and event.to.startswith(f"{LIFE}/")


BELIEVES: Final = (
    Rule("hears", "SS-244, SS-276", "a borrower hears whom the claim names at once, and answers by the same way",
         lambda known, event: is_to_living(known, event) and is_named(known, event) and known.follows == NOBODY,
         lambda known, event, said: outward(said) == ways_to(known.named, Ping, relayed=is_relayed(event))),
    Rule("waits", "SS-244", "what anybody else says is not heard before the claim was read",
         lambda known, event: is_to_living(known, event) and not is_named(known, event),
         lambda known, event, said: outward(said) == []),
    Rule("reads", "SS-244, SS-245", "when the claim was read a borrower begins anew that follows another, and what "
         "waited is heard if the claim names who said it",
         lambda known, event: is_claim(event) and not known.ended, hears_claim),
    Rule("answered", "SS-276", "an answer to a ping is not answered",
         lambda known, event: is_to_living(known, event) and isinstance(message_of(event), PingResponse),
         lambda known, event, said: outward(said) == []),
    Rule("pings", "SS-276", "a borrower whose connect response was relayed says everything twice, until its leader "
         "itself has answered",
         lambda known, event: isinstance(event, PartyInput) and isinstance(event.event, PingTimer),
         lambda known, event, said: outward(said) == ways_to(known.follows, Ping, relayed=known.relayed)),
    Rule("farewell", "SS-175", "a leader that talks to a borrower that is gone is told so",
         lambda known, event: isinstance(event, Arrived) and not is_to_living(known, event) and is_told_of_end(event),
         lambda known, event, said: says_farewell(event, said)),
    Rule("deaf", "SS-177", "of borrowers of other lives, and that nobody leads, nothing is said",
         lambda known, event: isinstance(event, Arrived) and not is_to_living(known, event)
         and not is_told_of_end(event),
         lambda known, event, said: said == ()),
    Rule("ends", "SS-171, SS-173", "whoever has ended for good is followed by nobody, and says so to its leader",
         lambda known, event: isinstance(event, EndSubscription),
         lambda known, event, said: count_ends(said) == 1 and outward(said) == (
             [] if known.follows == NOBODY else ways_to(known.follows, Disconnect, relayed=known.relayed))),
)  # fmt: skip


def is_believed_within(parts: ProcessParts) -> bool:
    """few borrowers, pings and reads of the claim"""
    witness, borrower = parts.of_kind(WITNESSES.name), parts.of_kind(BORROWERS.name)
    return (
        parts.own.record.number <= BORROWERS_MAX
        and (witness is None or witness.record.n <= READS_MAX)
        and (borrower is None or borrower.record.ping_n <= PINGS_MAX)
    )


def build_believed(name: str, process: Process[Any]) -> System:
    """One subscription whose group is declared."""
    whole = WholeProcess(
        process, lambda steps: subscribe(steps, make_record()), TOLD, silent=SILENT, bound=is_believed_within
    )
    return process_contract(name, ABOUT[name], whole, Leaders())


# -- what it is asked -----------------------------------------------------------------------------------------------


class AskedFacts(msgspec.Struct, frozen=True, gc=False):
    """`subscriptions` begun so far, by their order: the read of the group store that its declarer waits for (0: none),
    and whether it `is_open`; the application, or the group, has ended the others."""

    subscriptions: tuple[tuple[int, bool], ...] = ()

    def open(self, *, declared: bool) -> list[int]:
        """Those that have not ended, and whose group is declared, or is not."""
        return [at for at, (n, is_open) in enumerate(self.subscriptions, 1) if is_open and (n == 0) is declared]

    def change(self, at: int, n: int, *, is_open: bool) -> AskedFacts:
        """With another state of one."""
        return AskedFacts((*self.subscriptions[: at - 1], (n, is_open), *self.subscriptions[at:]))


GOOD: Final = SubscribeShared(SharedFilter(GROUP, FILTER))
BAD: Final = (SubscribeShared(SharedFilter("g/h", FILTER)), SubscribeShared(SharedFilter(GROUP, "a#")))
ENDS: Final = (EndSubscription, LeaveSubscription)
SUBSCRIPTIONS: Final = 2


class Askers(ProcessCounterpart):
    """an application that subscribes and unsubscribes, and the store, where the group is declared so or otherwise"""

    owes = "S19"

    def __init__(self) -> None:
        super().__init__(ASKED)

    def begins(self) -> AskedFacts:
        return AskedFacts()

    def says(self, known: AskedFacts) -> Iterator[Any]:
        begun = known.subscriptions
        yield from BAD
        if len(begun) < SUBSCRIPTIONS:
            yield GOOD
        for at in range(1, SUBSCRIPTIONS + 1):
            yield from (end(id_of(at)) for end in ENDS)
        yield LeaveAll()
        for at, (n, _) in enumerate(begun, 1):
            yield from declared_answers(at, n) if n else ()

    def learns(self, known: AskedFacts, event: Any, said: Said) -> AskedFacts:
        reads = find_said(said, Read)
        if event == GOOD:
            return AskedFacts((*known.subscriptions, (reads[-1].n, True)))
        if isinstance(event, LeaveAll):
            return AskedFacts(tuple((n, False) for n, _ in known.subscriptions))
        at = subscription_of(event)
        if at and at <= len(known.subscriptions):
            n, is_open = known.subscriptions[at - 1]
            if isinstance(event, PartyInput):
                return known.change(at, 0, is_open=is_open and is_declared_so(event))
            return known.change(at, n, is_open=False)
        return known


def declared_answers(at: int, n: int) -> Iterator[PartyInput]:
    """What the store says to the declarer of this subscription: the group lives by our times, or by others."""
    for interval_ms in (OURS.ping_interval_ms, OURS.ping_interval_ms + 1):
        found = Properties(0, interval_ms, OURS.ping_timeout_ms, OURS.claim_ttl_ms)
        yield PartyInput(DECLARERS.id_of(LIFE, at), ReadDone(n, (StoredRecord(found, 1), None), 0))


def is_declared_so(event: PartyInput) -> bool:
    """The group lives by our times."""
    return bool(event.event.records[0].value.ping_interval_ms == OURS.ping_interval_ms)


def subscription_of(event: Any) -> int:
    """The subscription that a call, or an answer to a declarer, is about (0: none)."""
    match event:
        case EndSubscription(subscription) | LeaveSubscription(subscription):
            return int(BORROWERS.number_of(subscription))
        case PartyInput(party, ReadDone()):
            return int(DECLARERS.number_of(party))
    return 0


def is_end(event: Any) -> bool:
    """The application ends one subscription."""
    return isinstance(event, ENDS)


def is_answer(event: Any) -> bool:
    """The store answers a declarer."""
    return isinstance(event, PartyInput) and isinstance(event.event, ReadDone)


def wanted_by(said: Said) -> list[str]:
    """Who asks the registry for a leader, where nobody else says anything to a node."""
    return [one.sender if one.to == REGISTRY else "" for one in said if isinstance(one.event, Message)]


def ended_in(said: Said) -> list[str]:
    """Subscriptions, or their borrowers, that have ended for good, as the application is told."""
    ended = [one.borrower for one in find_said(said, Destroyed) if not one.recreate]
    return sorted([*ended, *(one.subscription for one in find_said(said, Ended))])


ASKED: Final = (
    Rule("declares", "SS-170", "a subscribe declares the group, and says nothing to anybody before",
         lambda known, event: event == GOOD,
         lambda known, event, said: [type(one.event) for one in said] == [Read]),
    Rule("refuses names", "SS-170", "a malformed group or filter is refused",
         lambda known, event: event in BAD,
         lambda known, event, said: find_said(said, RefusedCall) == (RefusedCall("ConfigurationError"),)),
    Rule("begins", "SS-170", "where the group is declared a borrower with the id of the subscription looks for a "
         "leader",
         lambda known, event: is_answer(event) and is_declared_so(event)
         and subscription_of(event) in known.open(declared=False),
         lambda known, event, said: wanted_by(said) == [id_of(subscription_of(event))]),
    Rule("undeclared", "SS-170", "where the group lives by other times there is no subscription, as the application is "
         "told",
         lambda known, event: is_answer(event) and not is_declared_so(event)
         and subscription_of(event) in known.open(declared=False),
         lambda known, event, said: [type(one.event) for one in said] == [DeclarationRefused]),
    Rule("gives up", "SS-171", "a subscription that ends before its group is declared never begins",
         lambda known, event: (is_end(event) and subscription_of(event) in known.open(declared=False))
         or (is_answer(event) and subscription_of(event) not in known.open(declared=False)),
         lambda known, event, said: said == ()),
    Rule("ends", "SS-171", "a subscription that was declared ends when it is told to, and the application is told",
         lambda known, event: is_end(event) and subscription_of(event) in known.open(declared=True),
         lambda known, event, said: ended_in(said) == [id_of(subscription_of(event))]),
    Rule("ended already", "SS-171", "whoever has ended hears nothing",
         lambda known, event: is_end(event)
         and subscription_of(event) not in known.open(declared=True) + known.open(declared=False),
         lambda known, event, said: said == ()),
    Rule("all leave", "SS-171", "when the session goes every subscription ends",
         lambda known, event: isinstance(event, LeaveAll),
         lambda known, event, said: ended_in(said) == [id_of(at) for at in known.open(declared=True)]),
)  # fmt: skip


def build_asked(name: str, process: Process[Any]) -> System:
    """Nothing is subscribed yet."""
    whole = WholeProcess(process, lambda steps: steps.begin(make_record()), TOLD, silent=(*SILENT, "ping"))
    return process_contract(name, ABOUT[name], whole, Askers())


# -- how much it takes ----------------------------------------------------------------------------------------------


class FullFacts(msgspec.Struct, frozen=True, gc=False):
    """The last subscription that there is room for: the read that its declarer waits for, or that it `is_taken`;
    `begun`: how many times it was."""

    open: int = 0
    is_taken: bool = False
    begun: int = 0


ALONE: Final = SubscribeAlone(Private(FILTER))
BAD_ALONE: Final = SubscribeAlone(Private(""))
MORE: Final = (GOOD, ALONE)


class ManySubscribers(ProcessCounterpart):
    """an application that has all the subscriptions that it may have but one, and the store"""

    owes = "S19"

    def __init__(self, *, alone: bool) -> None:
        super().__init__(FULL, idle=() if alone else ("alone", "refuses alone"))
        self.alone = alone

    def begins(self) -> FullFacts:
        return FullFacts()

    def says(self, known: FullFacts) -> Iterator[Any]:
        if known.is_taken or known.begun < SUBSCRIPTIONS:
            yield from MORE if self.alone else (GOOD,)
        if self.alone and not known.is_taken:
            yield BAD_ALONE
        if known.open:
            yield from (one for one in declared_answers(known.begun, known.open) if not is_declared_so(one))

    def learns(self, known: FullFacts, event: Any, said: Said) -> FullFacts:
        if isinstance(event, PartyInput) and isinstance(event.event, ReadDone):
            return replace(known, open=0, is_taken=False)
        if event in MORE and not known.is_taken:
            reads = find_said(said, Read)
            begun = known.begun + 1 if event == GOOD else SUBSCRIPTIONS
            return FullFacts(reads[-1].n if reads else 0, True, begun)
        return known


FULL: Final = (
    Rule("takes", "SS-174", "where there is room for one more it is declared",
         lambda known, event: event == GOOD and not known.is_taken,
         lambda known, event, said: [type(one.event) for one in said] == [Read]),
    Rule("alone", "SS-181, SS-190", "where there is room a private subscription lists its streams",
         lambda known, event: event == ALONE and not known.is_taken,
         lambda known, event, said: [type(one.event) for one in said] == [ListStreams]),
    Rule("refuses alone", "SS-190", "a private subscription to nothing is refused",
         lambda known, event: event == BAD_ALONE,
         lambda known, event, said: find_said(said, RefusedCall) == (RefusedCall("ConfigurationError"),)),
    Rule("is full", "SS-174", "no more subscriptions than there may be are taken",
         lambda known, event: event in MORE and known.is_taken,
         lambda known, event, said: find_said(said, RefusedCall) == (RefusedCall("LocalProtocolError"),)),
)  # fmt: skip


def fill(record: AgentRecord) -> AgentRecord:
    """With all the subscriptions but one that there may be."""
    many = range(SUBSCRIPTIONS + 1, SUBSCRIPTIONS + SUBSCRIPTIONS_MAX)
    served = (ServedSubscription(n, "h", FILTER, False, id_of(n), PRIVATES.name, n) for n in many)
    found = {one.party: one for one in served}
    return replace(record, subscriptions=Map(found), parties=Map({name: name for name in found}))


def build_full(name: str, process: Process[Any]) -> System:
    """There is room for one subscription more."""
    whole = WholeProcess(process, lambda steps: steps.begin(fill(make_record())), TOLD, silent=(*SILENT, "ping"))
    return process_contract(name, ABOUT[name], whole, ManySubscribers(alone=process is HANDLER))


# -- while it is away -----------------------------------------------------------------------------------------------


class AwayFacts(msgspec.Struct, frozen=True, gc=False):
    """What becomes of two subscriptions, in their order; the read that the declarer of the second waits for (0: none);
    whether the session can read nothing (`unread`), and its application takes nothing (`late`)."""

    states: tuple[str, str] = ("borrows", "")
    open: int = 0
    unread: bool = False
    late: bool = False

    @property
    def is_away(self) -> bool:
        """The session takes no part."""
        return self.unread or self.late

    def move(self, old: str, new: str) -> tuple[str, str]:
        """What becomes of them when those in the one state enter the other."""
        first, second = (new if one == old else one for one in self.states)
        return first, second


STREAM: Final = "0.0/a"
LATE: Final = AcknowledgementLate("", STREAM, 0, 0)
GOES: Final = (ReadsFailed(STREAM), LATE)
COMES: Final = (ReadsSucceed(), ApplicationReturned())
NUMBERS_MAX: Final = 6


class Absences(ProcessCounterpart):
    """a session that cannot read, or can again, its application, which takes nothing, or does again, and the store"""

    owes = "S19"

    def __init__(self) -> None:
        super().__init__(AWAY)

    def begins(self) -> AwayFacts:
        return AwayFacts()

    def says(self, known: AwayFacts) -> Iterator[Any]:
        yield COMES[0] if known.unread else GOES[0]
        yield COMES[1] if known.late else LATE
        if not known.states[1]:
            yield GOOD
        if known.open:
            yield next(declared_answers(2, known.open))
        if known.states[0] != "over":
            yield EndSubscription(id_of(1))

    def learns(self, known: AwayFacts, event: Any, said: Said) -> AwayFacts:
        if event in GOES:
            away = replace(known, unread=True) if event != LATE else replace(known, late=True)
            return replace(away, states=known.move("borrows", "stands by"))
        if event in COMES:
            back = replace(known, unread=known.unread and event != COMES[0], late=known.late and event != COMES[1])
            return back if back.is_away else replace(back, states=known.move("stands by", "borrows"))
        if event == GOOD:
            return replace(known, states=(known.states[0], "asks"), open=find_said(said, Read)[-1].n)
        if is_answer(event):
            state = "stands by" if known.is_away else "borrows"
            return replace(known, states=(known.states[0], state), open=0)
        return replace(known, states=("over", known.states[1])) if is_end(event) else known


def is_last_to_come(known: AwayFacts, event: Any) -> bool:
    """Nothing else keeps the session away."""
    return event in COMES and not (known.late if event == COMES[0] else known.unread)


def goes_away(known: AwayFacts, event: Any, said: Said) -> bool:
    """Every borrower ends, without a word as long as it has no leader, and the application is told."""
    count = known.states.count("borrows")
    told = find_said(said, Suspended)
    revoked = find_said(said, DeliveriesRevoked)
    return (
        len(told) == count
        and all(one.is_late is known.late or one.is_late is (event == LATE) for one in told)
        and (id_of(1) in {one.subscription for one in told}) is (known.states[0] == "borrows")
        and len(revoked) == (count if event == LATE else 0)
        and outward(said) == []
    )


def comes_back(known: AwayFacts, event: Any, said: Said) -> bool:
    """A borrower with a fresh id follows everything that stood by, and the application is told."""
    count = known.states.count("stands by")
    told, wanted = find_said(said, Resumed), wanted_by(said)
    return len(told) == len(wanted) == len({*wanted, id_of(1)} - {id_of(1)}) == count


AWAY: Final = (
    Rule("goes away", "SS-292, SS-293, SS-352", "a session that takes no part gives all back, and its subscriptions "
         "stand by",
         lambda known, event: event in GOES, goes_away),
    Rule("comes back", "SS-294, SS-353", "when the session reads and its application takes, its subscriptions begin "
         "anew",
         is_last_to_come, comes_back),
    Rule("stays away", "SS-353", "a session that cannot read, or whose application takes nothing, takes no part yet",
         lambda known, event: event in COMES and not is_last_to_come(known, event),
         lambda known, event, said: said == ()),
    Rule("stands by", "SS-293", "no borrower begins while the session takes no part",
         lambda known, event: is_answer(event) and known.is_away,
         lambda known, event, said: [type(one.event) for one in said] == [Suspended]),
    Rule("borrows", "SS-170", "a borrower begins when the group is declared",
         lambda known, event: is_answer(event) and not known.is_away,
         lambda known, event, said: len(wanted_by(said)) == len(said) == 1),
    Rule("over", "SS-295", "an unsubscribe ends what stands by, or borrows",
         lambda known, event: is_end(event),
         lambda known, event, said: ended_in(said) == [id_of(1)] and outward(said) == []),
)  # fmt: skip


def build_away(name: str, process: Process[Any]) -> System:
    """One subscription whose borrower looks for a leader."""
    whole = WholeProcess(
        process, lambda steps: subscribe(steps, make_record()), TOLD, silent=(*SILENT, "ping"),
        bound=lambda parts: bool(parts.own.record.number <= NUMBERS_MAX),
    )  # fmt: skip
    return process_contract(name, ABOUT[name], whole, Absences())


ABOUT: Final = {
    "agent-believes": "an agent with one subscription, two leaders, a follower between them, and the claim",
    "agent-asked": "an agent whose application subscribes and unsubscribes, also before a group is declared",
    "agent-full": "an agent that has room for one subscription",
    "handler-believes": "a handler with one subscription, two leaders, a follower between them, and the claim",
    "handler-asked": "a handler whose application subscribes and unsubscribes, also before a group is declared",
    "handler-full": "a handler that has room for one subscription, shared or private",
    "handler-away": "a handler whose session cannot read, or whose application takes nothing, and both again",
}
BUILDS: Final[dict[str, Callable[[str, Process[Any]], System]]] = {
    "believes": build_believed,
    "asked": build_asked,
    "full": build_full,
    "away": build_away,
}
PROCESSES: Final = {"agent": AGENT, "handler": HANDLER}


def build(name: str) -> System:
    """The contract called so."""
    which, _, about = name.partition("-")
    return BUILDS[about](name, PROCESSES[which])
