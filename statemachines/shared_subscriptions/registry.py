"""Registry: finds or starts the leader of a group and filter, in its process (source: "Registry").

What it decides is the declared process `REGISTRY`; here are the calls of its host.  No input or output of its own: a
driver feeds it and performs what comes out.

The leader host as a declared process: the registry finds or starts the leader of a group and filter (source:
"Registry").

    open -> closing

Borrowers address `leader_wanted` to the node, and everything later to the leader itself, by its id.  The registry
answers for a leader that is gone.  It remembers for a validity through which follower a borrower has spoken (SS-275).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    ADDRESSEE,
    OUTSIDE,
    PROCESS,
    STAY,
    Arrived,
    Begin,
    Call,
    ConfigurationError,
    Departing,
    Effects,
    Event,
    EventRoute,
    Feed,
    Fsm,
    Ignore,
    Map,
    Outgoing,
    PartyKind,
    Process,
    ProcessRunner,
    RemoteProtocolError,
    Row,
    Send,
    SendAs,
    SetTimer,
    Status,
    Timer,
    TimerFired,
    is_fresh,
    keys_in_order,
)
from statemachines.kernel.node import Observer
from statemachines.shared_subscriptions.claim import Halt, StartLeader
from statemachines.shared_subscriptions.configuration import MS, Configuration, Detours, is_detoured
from statemachines.shared_subscriptions.leader import LEADER, Resigned
from statemachines.shared_subscriptions.leader_record import LeaderRecord
from statemachines.shared_subscriptions.message import (
    ANSWERS,
    Disconnect,
    Invalidate,
    LeaderWanted,
    Ping,
    RelayedToBorrower,
    RelayedToLeader,
    RevokeFinished,
    UpdateProgress,
)
from statemachines.shared_subscriptions.names import check_filter, check_group

LEADERS_MAX: Final = 10_000
"""A process leads no more groups than this; who asks for another is not answered."""


class Close(Call, frozen=True, gc=False):
    """The host ends: every leader gives its claim up, and no other is started."""


class HaltAll(Call, frozen=True, gc=False):
    """Every leader gives its claim up; the next leader_wanted starts another."""


class QuestionOver(Call, frozen=True, gc=False):
    """To itself: what comes from now on is no answer to the question that was relayed."""


class DetourEnd(TimerFired, frozen=True, gc=False):
    """A borrower has not spoken through a follower for a validity."""


class LetGoEnd(TimerFired, frozen=True, gc=False):
    """A group whose leader could not serve here may be led here again."""


class RegistryStatus(Status):
    """Whether leaders are started."""

    OPEN = "open"
    CLOSING = "closing"


OPEN, CLOSING = RegistryStatus
EVER = (OPEN, CLOSING)


class RegistryRecord(msgspec.Struct, frozen=True, gc=False):
    """A leader host.

    `id`: the life of the process; `alone`: no other host could lead in its place; `number`: of the last leader;
    `leaders`: (group, filter) -> leader, `places`: the inverse; `let_go`: (group, filter) -> the time in nanoseconds
    before which no claim of it is taken here; `detours` of borrowers; `is_relayed`: a relayed question is answered.
    """

    id: str
    configuration: Configuration
    alone: bool = False
    status: RegistryStatus = OPEN
    number: int = 0
    leaders: Map[tuple[str, str], str] = Map()
    places: Map[str, tuple[str, str]] = Map()
    let_go: Map[tuple[str, str], int] = Map()
    detours: Detours = Detours()
    is_relayed: bool = False


# -- guards ---------------------------------------------------------------------------------------------------------


def is_for_leader_itself(record: RegistryRecord, event: Arrived) -> bool:
    """A follower elsewhere relays it to a leader of this host."""
    return bool(event.to == event.message.leader)


def is_relayed_to_living(record: RegistryRecord, event: Arrived) -> bool:
    return is_relayed_here(event) and event.message.leader in record.places


def is_relayed_to_gone(record: RegistryRecord, event: Arrived) -> bool:
    return is_relayed_here(event) and isinstance(event.message.message, Ping | UpdateProgress)


def is_relayed_here(event: Arrived) -> bool:
    """A follower elsewhere relays it to a leader of this host, which may be gone; nothing is relayed any further."""
    return isinstance(event.message, RelayedToLeader) and event.message.leader == event.to


def is_to_gone(record: RegistryRecord, event: Arrived) -> bool:
    return isinstance(event.message, Ping | UpdateProgress)


def wants_leader(record: RegistryRecord, event: Arrived) -> bool:
    """Of this host: who names a leader that is gone asks its own registry again."""
    return isinstance(event.message, LeaderWanted) and not is_fresh(event.to)


def has_leader(record: RegistryRecord, event: Arrived) -> bool:
    return wants_leader(record, event) and (event.message.group, event.message.filter) in record.leaders


def has_bad_names(record: RegistryRecord, event: Arrived) -> bool:
    return wants_leader(record, event) and has_room(record, event) and find_malformed(event.message) is not None


def may_start(record: RegistryRecord, event: Arrived) -> bool:
    return wants_leader(record, event) and has_room(record, event)


def has_room(record: RegistryRecord, event: Arrived) -> bool:
    return len(record.leaders) < LEADERS_MAX


def is_unfit(record: RegistryRecord, event: Resigned) -> bool:
    return event.unfit and not record.alone


def is_answer_around(record: RegistryRecord, event: Departing) -> bool:
    return record.is_relayed and type(event.message) in ANSWERS


def is_answer(record: RegistryRecord, event: Departing) -> bool:
    return type(event.message) in ANSWERS


def find_malformed(message: LeaderWanted) -> ConfigurationError | None:
    """What is wrong with the names in it (None: nothing)."""
    try:
        check_group(message.group)
        check_filter(message.filter, message.filter)
    except ConfigurationError as error:
        return error
    return None


# -- actions --------------------------------------------------------------------------------------------------------


def pass_to_leader(record: RegistryRecord, event: Arrived, now_ns: int) -> tuple[RegistryRecord, Effects]:
    message = event.message
    return record, (Feed(record.leaders[message.group, message.filter], message),)


def start_leader(record: RegistryRecord, event: Arrived, now_ns: int) -> tuple[RegistryRecord, Effects]:
    message = event.message
    number, place = record.number + 1, (message.group, message.filter)
    party = LEADERS.id_of(record.id, number)
    waits_ns = record.let_go.get(place, 0)
    leader = LeaderRecord(party, *place, record.configuration, alone=record.alone, not_before_ns=waits_ns)
    leaders, places = record.leaders.set(place, party), record.places.set(party, place)
    record = replace(record, number=number, leaders=leaders, places=places)
    return record, (Begin(party, LEADERS.name, leader), Feed(party, StartLeader()), Feed(party, message))


def refuse_names(record: RegistryRecord, event: Arrived, now_ns: int) -> tuple[RegistryRecord, Effects]:
    error = find_malformed(event.message)
    raise RemoteProtocolError("registry", "-", "leader_wanted", "", str(error)) from error


def hear_around(record: RegistryRecord, event: Arrived, now_ns: int) -> tuple[RegistryRecord, Effects]:
    """The borrower is reached through that follower for a validity; an answer goes back that way."""
    relayed: RelayedToLeader = event.message
    borrower = relayed.message.borrower
    ends = SetTimer("detour_end", now_ns + record.configuration.validity_ms * MS, borrower)
    record = replace(record, detours=record.detours.keep(borrower, relayed.via), is_relayed=True)
    return record, (ends, Feed(relayed.leader, relayed.message), Feed(record.id, QuestionOver()))


def end_question(record: RegistryRecord, event: QuestionOver, now_ns: int) -> tuple[RegistryRecord, Effects]:
    return replace(record, is_relayed=False), ()


def drop_detour(record: RegistryRecord, event: DetourEnd, now_ns: int) -> tuple[RegistryRecord, Effects]:
    return replace(record, detours=record.detours.drop(event.key)), ()


def say_gone(record: RegistryRecord, event: Arrived, now_ns: int) -> tuple[RegistryRecord, Effects]:
    """Under the name of the host: that leader may have been of another life."""
    return record, (Send(event.message.borrower, make_invalidation(event.message)),)


def say_gone_around(record: RegistryRecord, event: Arrived, now_ns: int) -> tuple[RegistryRecord, Effects]:
    via = event.message.via
    return record, (Send(via, RelayedToBorrower(record.id, via, make_invalidation(event.message.message))),)


def make_invalidation(message: Ping | UpdateProgress) -> Invalidate:
    return Invalidate(message.borrower, message.epoch, message.registration)


def forget_leader(record: RegistryRecord, event: Resigned, now_ns: int) -> tuple[RegistryRecord, Effects]:
    place = record.places[event.leader]
    return replace(record, leaders=record.leaders.delete(place), places=record.places.delete(event.leader)), ()


def hold_back(record: RegistryRecord, event: Resigned, now_ns: int) -> tuple[RegistryRecord, Effects]:
    """Another host takes the claim, if one lives, before this one tries again."""
    record, _ = forget_leader(record, event, now_ns)
    until_ns = now_ns + (record.configuration.claim_ttl_ms + record.configuration.find_leader_ms) * MS
    let_go = record.let_go.set((event.group, event.filter), until_ns)
    return replace(record, let_go=let_go), (SetTimer("let_go_end", until_ns, place_key(event.group, event.filter)),)


def place_key(group: str, topic_filter: str) -> str:
    """A group and filter as the key of a timer; a group has no slash in its name."""
    return f"{group}/{topic_filter}"


def lead_again(record: RegistryRecord, event: LetGoEnd, now_ns: int) -> tuple[RegistryRecord, Effects]:
    group, _, topic_filter = event.key.partition("/")
    return replace(record, let_go=record.let_go.delete((group, topic_filter))), ()


def is_let_go(record: RegistryRecord, event: LetGoEnd) -> bool:
    group, _, topic_filter = event.key.partition("/")
    return (group, topic_filter) in record.let_go


def halt_all(record: RegistryRecord, event: Event, now_ns: int) -> tuple[RegistryRecord, Effects]:
    return record, tuple(Feed(party, Halt()) for party in keys_in_order(record.places))


def say_around(record: RegistryRecord, event: Departing, now_ns: int) -> tuple[RegistryRecord, Effects]:
    return record, (make_relayed(record, event),)


def say_plainly(record: RegistryRecord, event: Departing, now_ns: int) -> tuple[RegistryRecord, Effects]:
    return record, (SendAs(event.to, event.message, event.speaker),)


def say_both_ways(record: RegistryRecord, event: Departing, now_ns: int) -> tuple[RegistryRecord, Effects]:
    return record, (SendAs(event.to, event.message, event.speaker), make_relayed(record, event))


def make_relayed(record: RegistryRecord, event: Departing) -> SendAs:
    via = record.detours.of[event.message.borrower].via
    return SendAs(via, RelayedToBorrower(event.speaker, via, event.message), event.speaker)


def is_diverted(record: RegistryRecord, message: Any) -> bool:
    """Departing to a borrower that is reached through a follower."""
    return is_detoured(record.detours, message)


# fmt: off
ROWS = (
    #   on            from  to       do               when                  clause
    Row(Arrived,      EVER, STAY,    hear_around,     is_relayed_to_living, "SS-275"),
    Row(Arrived,      EVER, STAY,    say_gone_around, is_relayed_to_gone,   "SS-221"),
    Row(Arrived,      EVER, STAY,    pass_to_leader,  has_leader,           "SS-220"),
    Row(Arrived,      OPEN, STAY,    refuse_names,    has_bad_names,        "SS-223"),
    Row(Arrived,      OPEN, STAY,    start_leader,    may_start,            "SS-220"),
    Row(Arrived,      EVER, STAY,    say_gone,        is_to_gone,           "SS-221"),
    Ignore((Arrived,),         EVER,                                            "SS-256"),

    Row(QuestionOver, EVER, STAY,    end_question,    None,                 "SS-275"),
    Row(Departing,    EVER, STAY,    say_around,      is_answer_around,     "SS-275"),
    Row(Departing,    EVER, STAY,    say_plainly,     is_answer,            "SS-275"),
    Row(Departing,    EVER, STAY,    say_both_ways,   None,                 "SS-275"),
    Row(DetourEnd,    EVER, STAY,    drop_detour,     None,                 "SS-275"),

    Row(Resigned,     EVER, STAY,    hold_back,       is_unfit,             "SS-281"),
    Row(Resigned,     EVER, STAY,    forget_leader,   None,                 "SS-220"),
    Row(LetGoEnd,     EVER, STAY,    lead_again,      is_let_go,            "SS-281"),
    Ignore((LetGoEnd,),        EVER,                                            "SS-281"),

    Row(Close,        OPEN, CLOSING, halt_all,        None,                 "SS-224"),
    Row(HaltAll,      EVER, STAY,    halt_all,        None,                 "SS-224"),
    Ignore((Close,),           CLOSING,                                         "SS-224"),
)

TIMERS = (
    Timer("detour_end", DetourEnd, EVER, authority=True),
    Timer("let_go_end", LetGoEnd,  EVER),
)
# fmt: on

REGISTRY_MACHINE = Fsm(
    "registry",
    protocol="shared_subscriptions",
    record=RegistryRecord,
    states=RegistryStatus,
    initial=OPEN,
    rows=ROWS,
    timers=TIMERS,
)

LEADERS = PartyKind("leader", LEADER, most=LEADERS_MAX)

REGISTRY = Process(
    "registry",
    REGISTRY_MACHINE,
    kinds=(LEADERS,),
    diverts=is_diverted,
    routes=(
        EventRoute((LeaderWanted, Ping, UpdateProgress, RevokeFinished, Disconnect), (OUTSIDE,), ADDRESSEE, "SS-220"),
        EventRoute((RelayedToLeader,), (OUTSIDE,), PROCESS, "SS-275", when=is_for_leader_itself),
        EventRoute((RelayedToLeader, RelayedToBorrower), (OUTSIDE,), ADDRESSEE, "SS-274"),
        EventRoute((Resigned,), (LEADERS.name,), PROCESS, "SS-220", copied=True),
    ),
)


class Registry(ProcessRunner):
    """`life` is the incarnation of the process (`leader-1~3`); `alone`: no other host could lead in its place."""

    def __init__(
        self,
        life: str,
        configuration: Configuration,
        *,
        alone: bool = False,
        observe: Observer | None = None,
        check: bool = False,
    ) -> None:
        record = RegistryRecord(life, configuration.check(), alone)
        super().__init__(REGISTRY, record, observe=observe, check=check)

    @property
    def leaders(self) -> Mapping[tuple[str, str], str]:
        """(group, filter) -> the leader of this host."""
        leaders: Mapping[tuple[str, str], str] = self.record.leaders
        return leaders

    def close(self, now_ns: int) -> list[Outgoing]:
        """The host ends: every leader gives its claim up, and no other is started; it is done when `nodes` is empty.

        Whoever asks for a leader meanwhile asks the next host: one started here would take the claim that was just
        given up, and keep it beyond the end of the host.
        """
        return self.call(Close(), now_ns)

    def halt(self, now_ns: int) -> list[Outgoing]:
        """Every leader gives its claim up; whoever asks next starts another."""
        return self.call(HaltAll(), now_ns)
