"""Witness: what the claim of one group says, for all borrowers of one process (source: "Leader's state").

    idle -> asking -> resting -> idle

A leader is believed only while the claim names it.  Whoever else speaks as one makes the witness read the claim: once
in a period, however much is said.  What it has read last stays until it reads again, so a store that does not answer
changes nothing, and a liar changes nothing at all.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Call,
    Effects,
    Event,
    Fsm,
    Ignore,
    Row,
    Status,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
    is_fresh,
    node_of,
)
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.group_store import SERVICE, Claim, Read, ReadDone, StoreFailed, record_key
from statemachines.shared_subscriptions.message import Invalidate, LeaderMessage, Undeclared
from statemachines.shared_subscriptions.names import CLAIM
from statemachines.shared_subscriptions.stream import StreamLink


class Doubt(Call, frozen=True, gc=False):
    """From the host: somebody whom the claim does not name, as far as it is known, speaks as a leader."""


class ClaimRead(Event, frozen=True, gc=False):
    """To the host: the claim was read, and names `leader` under `epoch` ("": nobody)."""

    columns: ClassVar = TraceColumns(term="epoch")

    leader: str
    epoch: int


class RestTimer(TimerFired, frozen=True, gc=False):
    """The claim may be read again."""


class WitnessStatus(Status):
    """Whether it may read the claim, is about to have read it, or has done so just now."""

    IDLE = "idle"
    ASKING = "asking"
    RESTING = "resting"


IDLE, ASKING, RESTING = WitnessStatus


class WitnessRecord(msgspec.Struct, frozen=True, gc=False):
    """One group and filter.  `n`: of the last request; `leader`, `epoch`: whom the claim named when it was read last
    ("": nobody, or it was never read); `doubted`: somebody else has spoken since it was asked for."""

    id: str
    group: str
    filter: str
    configuration: Configuration
    status: WitnessStatus = IDLE
    n: int = 0
    leader: str = ""
    epoch: int = 0
    doubted: bool = False


class ClaimReading(Protocol):
    """What the claim of a group named when it was read last."""

    @property
    def leader(self) -> str: ...
    @property
    def epoch(self) -> int: ...


class Follower(Protocol):
    """Whom a borrower follows, and the highest epoch that it knows."""

    @property
    def link(self) -> StreamLink | None: ...
    @property
    def epoch(self) -> int: ...


# -- whom to believe ------------------------------------------------------------------------------------------------


def is_believed(record: ClaimReading, sender: str, message: LeaderMessage) -> bool:
    """Whether the claim names who speaks, under the epoch of the message.

    A leader's id holds its life, and the transport vouches for the sender of a packet: an epoch that a restored store
    repeats is that of another leader.  That a leader is gone its host says for it, in whatever life.  That nobody leads
    since the group is not declared, somebody says who has no claim: believed where nobody has.
    """
    if isinstance(message, Undeclared):
        return not record.leader
    if not record.leader or message.epoch != record.epoch:
        return False
    if isinstance(message, Invalidate) and not is_fresh(sender):
        return node_of(sender) == node_of(record.leader)
    return sender == record.leader


def is_misled(record: ClaimReading, borrower: Follower) -> bool:
    """Whether a borrower follows somebody whom the claim does not name, or waits for an epoch that is above the claim's
    (the store was restored)."""
    if borrower.link is None:
        return borrower.epoch > record.epoch
    return (borrower.link.leader, borrower.link.epoch) != (record.leader, record.epoch)


# -- guards ---------------------------------------------------------------------------------------------------------


def is_awaited(record: WitnessRecord, event: ReadDone | StoreFailed) -> bool:
    return event.n == record.n


def is_doubted(record: WitnessRecord, event: RestTimer) -> bool:
    return record.doubted


# -- actions --------------------------------------------------------------------------------------------------------


def ask(record: WitnessRecord, event: Event, now_ns: int) -> tuple[WitnessRecord, Effects]:
    record = replace(record, n=record.n + 1, doubted=False)
    return record, (Ask(SERVICE, Read(record.n, (record_key(record.group, record.filter, CLAIM),))),)


def doubt(record: WitnessRecord, event: Event, now_ns: int) -> tuple[WitnessRecord, Effects]:
    """What was read, if anything was, may be older than what was said."""
    return replace(record, doubted=True), ()


def tell_claim(record: WitnessRecord, event: ReadDone, now_ns: int) -> tuple[WitnessRecord, Effects]:
    found = event.records[0]
    claim = found.value if found is not None and isinstance(found.value, Claim) else Claim("", 0)
    record = replace(record, leader=claim.leader, epoch=claim.epoch)
    return record, (Tell(ClaimRead(claim.leader, claim.epoch)),)


# fmt: off
ROWS = (
    #   on           from       to        do           when           clause
    Row(Doubt,       IDLE,      ASKING,   ask,         None,          "SS-240"),
    Row(Doubt,       ASKING,    STAY,     doubt,       None,          "SS-241"),
    Row(Doubt,       RESTING,   STAY,     doubt,       None,          "SS-241"),
    Row(ReadDone,    ASKING,    RESTING,  tell_claim,  is_awaited,    "SS-242"),
    Row(StoreFailed, ASKING,    RESTING,  doubt,       is_awaited,    "SS-243"),
    Row(RestTimer,   RESTING,   ASKING,   ask,         is_doubted,    "SS-241"),
    Row(RestTimer,   RESTING,   IDLE,     None,        None,          "SS-241"),
    Ignore((ReadDone, StoreFailed), (IDLE, ASKING, RESTING),          "SS-243"),
    Ignore((RestTimer,),            (IDLE, ASKING),                   "SS-243"),
)
# fmt: on

WITNESS = Fsm(
    "witness",
    protocol="shared_subscriptions",
    record=WitnessRecord,
    states=WitnessStatus,
    initial=IDLE,
    rows=ROWS,
    timers=(Timer("rest", RestTimer, (RESTING,), lambda record: record.configuration.find_leader_ms * MS),),
)
