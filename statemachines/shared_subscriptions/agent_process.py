"""A session as a declared process: its subscriptions, whom their borrowers believe, and what follows which (source:
"Shared Subscription Agent", "Session Shared Subscription Handler").

`AGENT` is for those who have a session of their own: what borrowers say of streams and leases goes to the application.
`HANDLER` has one, and private subscriptions.  A borrower hears a leader only while the claim names it; what anybody
else says waits until the claim was read (SS-244).
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import (
    OUTSIDE,
    PROCESS,
    STAY,
    Arrived,
    Begin,
    ConfigurationError,
    Departing,
    Effects,
    Event,
    EventRoute,
    Feed,
    Forget,
    Fsm,
    Ignore,
    LocalProtocolError,
    PartyKind,
    Process,
    Row,
    SendAs,
    fresh,
    life_of,
)
from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    BorrowerRecord,
    Destroyed,
    OnDisconnect,
    OnUnsubscribe,
    Start,
)
from statemachines.shared_subscriptions.configuration import (
    WITNESS,
    ClaimRead,
    Doubt,
    WitnessRecord,
    is_believed,
    is_detoured,
    is_misled,
)
from statemachines.shared_subscriptions.group import GROUP, DeclarationRefused, Declare, GroupDeclared, GroupRecord
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderMessage,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
    Revoke,
    Revoked,
    ToConsumer,
    Undeclared,
)
from statemachines.shared_subscriptions.names import check_filter, check_group
from statemachines.shared_subscriptions.private_subscription import (
    OPEN,
    SUBSCRIPTIONS_MAX,
    AgentRecord,
    AgentStatus,
    BorrowerView,
    CheckLink,
    ClaimFound,
    ClaimKnown,
    EndSubscription,
    GroupReady,
    HearDoubted,
    LeaveAll,
    LeaveSubscription,
    Place,
    ServedSubscription,
    SubscribeShared,
    Undeclarable,
)
from statemachines.shared_subscriptions.stream import StreamLink

ENDING: Final = 1
"""One that ends lives until what follows it has begun."""

DECLARERS = PartyKind("declarer", GROUP, most=SUBSCRIPTIONS_MAX, prefix="declare-")
WITNESSES = PartyKind("witness", WITNESS, most=SUBSCRIPTIONS_MAX, prefix="witness-")
BORROWERS = PartyKind(
    "borrower", BORROWER, most=SUBSCRIPTIONS_MAX + ENDING, view=lambda record: BorrowerView(record.link, record.epoch)
)


# -- reading --------------------------------------------------------------------------------------------------------


def said_in(event: Arrived) -> LeaderMessage:
    """What a leader says, whoever relays it."""
    message = event.message
    said: LeaderMessage = message.message if isinstance(message, RelayedToBorrower) else message
    return said


def speaker_of(sender: str, message: ToConsumer) -> str:
    """Whose words these are."""
    return message.leader if isinstance(message, RelayedToBorrower) else sender


def is_ours(borrower: str, life: str) -> bool:
    """It is a borrower of this very life, not of another that goes by its name."""
    return life_of(borrower) == life


def place_of(record: AgentRecord, borrower: str) -> Place:
    """What the subscription of a borrower is to."""
    return record.subscriptions[record.parties[borrower]].place


# -- guards ---------------------------------------------------------------------------------------------------------


def has_bad_names(record: AgentRecord, event: SubscribeShared) -> bool:
    try:
        check_group(event.wanted.group)
        check_filter(event.wanted.filter, event.wanted.filter)
    except ConfigurationError:
        return True
    return False


def is_full(record: AgentRecord, event: Event) -> bool:
    return len(record.subscriptions) >= SUBSCRIPTIONS_MAX


def is_being_declared(record: AgentRecord, event: EndSubscription | LeaveSubscription) -> bool:
    known = record.subscriptions.get(event.subscription)
    return known is not None and known.kind == DECLARERS.name


def is_served(record: AgentRecord, event: EndSubscription | LeaveSubscription) -> bool:
    return event.subscription in record.subscriptions


def is_for_living(record: AgentRecord, event: Arrived) -> bool:
    return record.kind_of(event.message.borrower) == BORROWERS.name


def is_from_named(record: AgentRecord, event: Arrived) -> bool:
    """The claim names who says it, as it was read last."""
    if not is_for_living(record, event):
        return False
    claim = record.claims[place_of(record, event.message.borrower)]
    return is_believed(claim, speaker_of(event.sender, event.message), said_in(event))


def is_answered_around(record: AgentRecord, event: Arrived) -> bool:
    message = event.message
    if not (isinstance(message, RelayedToBorrower) and isinstance(message.message, LeaderConnectResponse)):
        return False
    return is_from_named(record, event)


def is_answered_directly(record: AgentRecord, event: Arrived) -> bool:
    if not isinstance(event.message, PingResponse) or event.message.borrower not in record.detours.of:
        return False
    return is_from_named(record, event)


def is_for_gone(record: AgentRecord, event: Arrived) -> bool:
    """Of this very life, not of another that goes by its name."""
    said = said_in(event)
    return is_ours(said.borrower, record.id) and not isinstance(said, Undeclared)


def is_for_gone_around(record: AgentRecord, event: Arrived) -> bool:
    return isinstance(event.message, RelayedToBorrower) and is_for_gone(record, event)


def follows_another(record: AgentRecord, event: CheckLink) -> bool:
    if record.kind_of(event.party) != BORROWERS.name:
        return False
    return is_misled(record.claims[place_of(record, event.party)], event.seen)


def goes_on(record: AgentRecord, event: Destroyed) -> bool:
    return event.recreate


# -- subscriptions --------------------------------------------------------------------------------------------------


def declare(record: AgentRecord, event: SubscribeShared, now_ns: int) -> tuple[AgentRecord, Effects]:
    """The first party of a new subscription declares the group."""
    wanted = event.wanted
    number, declared = record.number + 1, record.declarations + 1
    subscription, party = fresh(record.id, number), DECLARERS.id_of(record.id, declared)
    known = ServedSubscription(number, wanted.group, wanted.filter, wanted.at_delivery, party, DECLARERS.name, 0)
    record = replace(
        record, number=number, declarations=declared, subscriptions=record.subscriptions.set(subscription, known)
    )
    begin = Begin(party, DECLARERS.name, GroupRecord(party, wanted.group, wanted.filter, record.configuration))
    return record.serve(subscription, party, DECLARERS.name), (
        begin,
        Feed(party, Declare(wanted.start_ns, wanted.order)),
    )


def refuse_names(record: AgentRecord, event: SubscribeShared, now_ns: int) -> tuple[AgentRecord, Effects]:
    check_group(event.wanted.group)
    check_filter(event.wanted.filter, event.wanted.filter)
    return record, ()


def refuse_more(record: AgentRecord, event: Event, now_ns: int) -> tuple[AgentRecord, Effects]:
    why = f"a session has at most {SUBSCRIPTIONS_MAX} subscriptions; wait until some have ended, or use another"
    raise LocalProtocolError("agent", "-", "on_subscribe", "SS-174", why)


def give_up(
    record: AgentRecord, event: EndSubscription | LeaveSubscription, now_ns: int
) -> tuple[AgentRecord, Effects]:
    """The group is not even declared yet: there is nothing to finish."""
    party = record.subscriptions[event.subscription].party
    record, effects = end_subscription(record, party)
    return record, (Forget(party), *effects)


def unsubscribe(record: AgentRecord, event: EndSubscription, now_ns: int) -> tuple[AgentRecord, Effects]:
    return record, (Feed(record.subscriptions[event.subscription].party, OnUnsubscribe()),)


def leave(record: AgentRecord, event: LeaveSubscription, now_ns: int) -> tuple[AgentRecord, Effects]:
    return record, (Feed(record.subscriptions[event.subscription].party, OnDisconnect()),)


def leave_all(record: AgentRecord, event: LeaveAll, now_ns: int) -> tuple[AgentRecord, Effects]:
    return record, tuple(Feed(record.id, LeaveSubscription(subscription)) for subscription, _ in record.in_order())


# -- parties --------------------------------------------------------------------------------------------------------


def borrow(record: AgentRecord, subscription: str, party: str) -> tuple[AgentRecord, Effects]:
    """A borrower for the subscription; its group and filter have one witness."""
    place = record.subscriptions[subscription].place
    began: Effects = ()
    if place not in record.claims:
        number = record.witnesses + 1
        witness = WITNESSES.id_of(record.id, number)
        began = (Begin(witness, WITNESSES.name, WitnessRecord(witness, *place, record.configuration)),)
        claims, places = record.claims.set(place, ClaimKnown(witness)), record.places.set(witness, place)
        record = replace(record, witnesses=number, claims=claims, places=places)
    epoch = record.claims[place].epoch
    borrower = BorrowerRecord(party, *place, record.registries, record.configuration, epoch=epoch)
    return record.serve(subscription, party, BORROWERS.name), (*began, Begin(party, BORROWERS.name, borrower))


def borrow_first(record: AgentRecord, event: GroupReady, now_ns: int) -> tuple[AgentRecord, Effects]:
    """The subscription goes by the id of its first borrower."""
    subscription = record.parties[event.party]
    record, began = borrow(record, subscription, subscription)
    return record, (*began, Feed(subscription, Start()))


def borrow_next(record: AgentRecord, event: Destroyed, now_ns: int) -> tuple[AgentRecord, Effects]:
    record, party = follow(record, event)
    record, began = borrow(record, record.parties[event.borrower], party)
    return record, (*began, Feed(party, Start()))


def follow(record: AgentRecord, event: Destroyed) -> tuple[AgentRecord, str]:
    """A fresh id for what follows a party that had to end itself, and what that one said last."""
    number = record.number + 1
    record = record.remember(event.borrower, event.reports)
    return replace(record, number=number, recreated=record.recreated + 1), fresh(record.id, number)


def end(record: AgentRecord, event: Destroyed, now_ns: int) -> tuple[AgentRecord, Effects]:
    return end_subscription(record.remember(event.borrower, event.reports), event.borrower)


def end_undeclared(record: AgentRecord, event: Undeclarable, now_ns: int) -> tuple[AgentRecord, Effects]:
    return end_subscription(record, event.party)


def end_subscription(record: AgentRecord, party: str) -> tuple[AgentRecord, Effects]:
    """Its witness goes with the last subscription to the same."""
    place = record.subscriptions[record.parties[party]].place
    record = record.end(party)
    claim = record.claims.get(place)
    if claim is None or any(one.place == place for one in record.subscriptions.values()):
        return record, ()
    record = replace(record, claims=record.claims.delete(place), places=record.places.delete(claim.witness))
    return record, (Forget(claim.witness),)


# -- whom to believe ------------------------------------------------------------------------------------------------


def hear(record: AgentRecord, event: Arrived, now_ns: int) -> tuple[AgentRecord, Effects]:
    said = said_in(event)
    return record, (Feed(said.borrower, said),)


def hear_around(record: AgentRecord, event: Arrived, now_ns: int) -> tuple[AgentRecord, Effects]:
    """Whom a leader answers through a follower, that one speaks through it, too."""
    detours = record.detours.keep(event.message.borrower, event.message.via)
    return hear(replace(record, detours=detours), event, now_ns)


def hear_directly(record: AgentRecord, event: Arrived, now_ns: int) -> tuple[AgentRecord, Effects]:
    """Both directions work."""
    return hear(replace(record, detours=record.detours.drop(event.message.borrower)), event, now_ns)


def doubt(record: AgentRecord, event: Arrived, now_ns: int) -> tuple[AgentRecord, Effects]:
    place = place_of(record, event.message.borrower)
    claim = record.claims[place].doubt(event.sender, event.message, record.doubted_max)
    return replace(record, claims=record.claims.set(place, claim)), (Feed(claim.witness, Doubt()),)


def say_farewell(record: AgentRecord, event: Arrived, now_ns: int) -> tuple[AgentRecord, Effects]:
    """The last word again: alone, an empty one could overtake it, and the progress in it would be lost."""
    return record, (
        SendAs(speaker_of(event.sender, event.message), make_farewell(record, event), said_in(event).borrower),
    )


def say_farewell_around(record: AgentRecord, event: Arrived, now_ns: int) -> tuple[AgentRecord, Effects]:
    via, borrower = event.message.via, event.message.borrower
    relayed = RelayedToLeader(event.message.leader, via, make_farewell(record, event))
    return record, (SendAs(via, relayed, borrower),)


def make_farewell(record: AgentRecord, event: Arrived) -> Disconnect:
    said: Any = said_in(event)
    return Disconnect(said.borrower, said.epoch, said.registration, record.words_of(said.borrower))


def keep_claim(record: AgentRecord, event: ClaimFound, now_ns: int) -> tuple[AgentRecord, Effects]:
    """Every borrower of the group is looked at; then what waited is heard."""
    place = record.places[event.witness]
    claim = replace(record.claims[place], leader=event.leader, epoch=event.epoch)
    looks = tuple(
        Feed(record.id, CheckLink(one.party)) for one in record.served_by(BORROWERS.name) if one.place == place
    )
    return replace(record, claims=record.claims.set(place, claim)), (*looks, Feed(record.id, HearDoubted(place)))


def invalidate(record: AgentRecord, event: CheckLink, now_ns: int) -> tuple[AgentRecord, Effects]:
    link: StreamLink | None = event.seen.link
    pair = (0, 0) if link is None else (link.epoch, link.registration)
    return record, (Feed(event.party, Invalidate(event.party, *pair)),)


def hear_doubted(record: AgentRecord, event: HearDoubted, now_ns: int) -> tuple[AgentRecord, Effects]:
    """What waited goes the way of what arrives now, once: who is not named by now is never heard."""
    claim = record.claims[event.place]
    record = replace(record, claims=record.claims.set(event.place, replace(claim, doubted=())))
    effects: list[Feed] = []
    for sender, message in claim.doubted:
        arrived = Arrived(sender, message.borrower, message)
        if is_from_named(record, arrived):
            hears = next((do for when, do in WAYS if when(record, arrived)), hear)
            record, fed = hears(record, arrived, 0)
            effects += fed  # type: ignore[arg-type]
    return record, tuple(effects)


WAYS = ((is_answered_around, hear_around), (is_answered_directly, hear_directly))


# -- both ways ------------------------------------------------------------------------------------------------------


def say_both_ways(record: AgentRecord, event: Departing, now_ns: int) -> tuple[AgentRecord, Effects]:
    """Directly, and through the follower that the leader answered through."""
    via = record.detours.of[event.message.borrower].via
    relayed = RelayedToLeader(event.to, via, event.message)
    return record, (SendAs(event.to, event.message, event.speaker), SendAs(via, relayed, event.speaker))


def is_diverted(record: AgentRecord, message: Any) -> bool:
    """Departing to a leader that is reached through a follower."""
    return is_detoured(record.detours, message)


# fmt: off
ROWS = (
    #   on                 from  to    do                   when                  clause
    Row(SubscribeShared,   OPEN, STAY, refuse_names,        has_bad_names,        "SS-170"),
    Row(SubscribeShared,   OPEN, STAY, refuse_more,         is_full,              "SS-174"),
    Row(SubscribeShared,   OPEN, STAY, declare,             None,                 "SS-170"),
    Row(EndSubscription,   OPEN, STAY, give_up,             is_being_declared,    "SS-171"),
    Row(EndSubscription,   OPEN, STAY, unsubscribe,         is_served,            "SS-171"),
    Row(LeaveSubscription, OPEN, STAY, give_up,             is_being_declared,    "SS-171"),
    Row(LeaveSubscription, OPEN, STAY, leave,               is_served,            "SS-171"),
    Ignore((EndSubscription, LeaveSubscription), OPEN,                                       "SS-171"),
    Row(LeaveAll,          OPEN, STAY, leave_all,           None,                 "SS-171"),

    Row(Undeclarable,      OPEN, STAY, end_undeclared,      None,                 "SS-170"),

    Row(Arrived,           OPEN, STAY, hear_around,         is_answered_around,   "SS-276"),
    Row(Arrived,           OPEN, STAY, hear_directly,       is_answered_directly, "SS-276"),
    Row(Arrived,           OPEN, STAY, hear,                is_from_named,        "SS-244"),
    Row(Arrived,           OPEN, STAY, doubt,               is_for_living,        "SS-244"),
    Row(Arrived,           OPEN, STAY, say_farewell_around, is_for_gone_around,   "SS-175"),
    Row(Arrived,           OPEN, STAY, say_farewell,        is_for_gone,          "SS-175"),
    Ignore((Arrived,), OPEN,                                                 "SS-177"),
    Row(ClaimFound,        OPEN, STAY, keep_claim,          None,                 "SS-245"),
    Row(CheckLink,         OPEN, STAY, invalidate,          follows_another,      "SS-245"),
    Ignore((CheckLink,), OPEN,                                               "SS-245"),
    Row(HearDoubted,       OPEN, STAY, hear_doubted,        None,                 "SS-244"),
    Row(Departing,         OPEN, STAY, say_both_ways,       None,                 "SS-276"),
)
"""What every session does."""

AGENT_ROWS = (
    Row(GroupReady,     OPEN, STAY, borrow_first,        None,                 "SS-170"),
    Row(Destroyed,    OPEN, STAY, borrow_next,         goes_on,              "SS-173"),
    Row(Destroyed,    OPEN, STAY, end,                 None,                 "SS-173"),
)
# fmt: on

LEADER_MESSAGES = (
    LeaderConnectResponse, Undeclared, PingResponse, Grant, Revoke, Revoked, Invalidate, RelayedToBorrower,
)  # fmt: skip

ROUTES = (
    EventRoute(LEADER_MESSAGES, (OUTSIDE,), PROCESS, "SS-244"),
    EventRoute((GroupDeclared,), (DECLARERS.name,), PROCESS, "SS-170", change=lambda party, _: GroupReady(party),
          as_type=GroupReady),
    EventRoute((DeclarationRefused,), (DECLARERS.name,), PROCESS, "SS-170", change=lambda party, _: Undeclarable(party),
          as_type=Undeclarable, copied=True),
    EventRoute((ClaimRead,), (WITNESSES.name,), PROCESS, "SS-245", as_type=ClaimFound,
          change=lambda witness, read: ClaimFound(witness, read.leader, read.epoch)),
)  # fmt: skip

AGENT_MACHINE = Fsm(
    "agent",
    protocol="shared_subscriptions",
    record=AgentRecord,
    states=AgentStatus,
    initial=OPEN,
    rows=(*ROWS, *AGENT_ROWS),
)

AGENT = Process(
    "agent",
    AGENT_MACHINE,
    kinds=(DECLARERS, BORROWERS, WITNESSES),
    diverts=is_diverted,
    routes=(
        *ROUTES,
        EventRoute((Destroyed,), (BORROWERS.name,), PROCESS, "SS-173", when=goes_on),
        EventRoute((Destroyed,), (BORROWERS.name,), PROCESS, "SS-173", copied=True),
    ),
)
