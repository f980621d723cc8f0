"""Configuration of a group, and the relations that its values must keep (SS-210, SS-211).

All times are integer milliseconds in the configuration and nanoseconds in records and effects.

Detours: through whom a process reaches those that it does not reach directly, as a value in its record (D-151).

Witness: what the claim of one group says, for all borrowers of one process (source: "Leader's state").

    idle -> asking -> resting -> idle

A leader is believed only while the claim names it.  Whoever else speaks as one makes the witness read the claim: once
in a period, however much is said.  What it has read last stays until it reads again, so a store that does not answer
changes nothing, and a liar changes nothing at all.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

import msgspec
from msgspec.structs import replace

from statemachines.kernel import (
    STAY,
    Ask,
    Call,
    ConfigurationError,
    Effects,
    Event,
    Fsm,
    Ignore,
    Map,
    Row,
    Status,
    Tell,
    Timer,
    TimerFired,
    TraceColumns,
    is_fresh,
    node_of,
)
from statemachines.shared_subscriptions.group_store import SERVICE, Claim, Read, ReadDone, StoreFailed, record_key
from statemachines.shared_subscriptions.message import (
    DETOURS_MAX,
    Invalidate,
    LeaderMessage,
    LeaderWanted,
    RelayedToBorrower,
    RelayedToLeader,
    Undeclared,
)
from statemachines.shared_subscriptions.names import CLAIM, check_topic
from statemachines.shared_subscriptions.stream import StreamLink

MS = 1_000_000
"""Nanoseconds in a millisecond."""

GRANT_WINDOW_MAX = 1_000
"""More grants than this may not be unanswered: a member must answer all of them within a validity."""

DELIVER_MAX = 1_000_000
"""No message is handed over more often before it is spent."""

DRIFTS_MAX = 64
"""The fractions of so many drifts are kept; a process has one or two."""


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The times of a group, in milliseconds; `clock_drift` bounds the rate error of a clock.  `grant_timeout_ms`: how
    long the answer to a grant is waited for, where that is to be longer than a validity.  `grant_window`: the most
    grants of one member that are sent and not answered, and the most of its streams that are being taken back.

    `count_deliveries`: a leader keeps in the group store how often the next message of a stream failed.  `max_deliver`:
    a message that failed so often is handed over no more (None: there is no such bound).  `spent`: its stream is parked
    until somebody says that it is to go on, or the message is dropped.  `dead_letter_topic`: its copy is stored
    there, and the group goes on ("": there are no dead letters).

    `ack_wait_ms`: a member that has a message in hand for so long gives its streams to others (0: it keeps them)."""

    find_leader_ms: int = 1000
    ping_interval_ms: int = 1000
    ping_timeout_ms: int = 2000
    validity_ms: int = 5000
    max_delay_ms: int = 400
    clock_drift: float = 0.01
    unsubscribe_timeout_ms: int = 5000
    resend_interval_ms: int = 1000
    renew_streams_ms: int = 1000
    revoke_timeout_ms: int = 10000
    grant_timeout_ms: int = 0
    claim_ttl_ms: int = 3000
    claim_heartbeat_ms: int = 500
    commit_interval_ms: int = 500
    idle_stop_ms: int = 30000
    grant_window: int = 64
    exclusive: bool = True
    count_deliveries: bool = True
    max_deliver: int | None = None
    spent: Literal["park", "drop"] = "park"
    dead_letter_topic: str = ""
    ack_wait_ms: int = 0

    @property
    def lease_ms(self) -> int:
        """L: how long a borrower may deliver after it sent a ping that was answered."""
        return self.ping_interval_ms + self.ping_timeout_ms

    @property
    def grant_wait_ms(self) -> int:
        """How long the answer to a grant is waited for."""
        return max(self.validity_ms, self.grant_timeout_ms)

    def lease_by_other_clock_ns(self) -> int:
        """When a lease has surely ended, counted by another clock from the receipt of its ping: L (1+d) / (1-d)."""
        return _stretch(self.lease_ms * MS, self.clock_drift)

    def claim_by_own_clock_ns(self) -> int:
        """How long a claim holds by its owner's clock: claim_ttl (1-d) / (1+d)."""
        return _shrink(self.claim_ttl_ms * MS, self.clock_drift)

    def check(self) -> Configuration:
        """Itself; raises `ConfigurationError` with both values and the rule where a relation is broken."""
        for field in self.__struct_fields__:
            value = getattr(self, field)
            least = 0 if field in ("grant_timeout_ms", "ack_wait_ms") else 1
            if field.endswith("_ms") and not least <= value < 2**40:
                raise ConfigurationError(field, value, f"a time in milliseconds must lie between {least} and 2^40")
        if not 0 <= self.clock_drift < 0.5:
            raise ConfigurationError("clock_drift", self.clock_drift, "must lie in [0, 0.5)")
        if not 1 <= self.grant_window <= GRANT_WINDOW_MAX:
            rule = f"must lie between 1 and {GRANT_WINDOW_MAX} grants"
            raise ConfigurationError("grant_window", self.grant_window, rule)
        if self.max_deliver is not None:
            self._check_max_deliver(self.max_deliver)
        if self.dead_letter_topic:
            self._check_dead_letters()
        d = self.clock_drift
        self._less("4 * max_delay", 4 * self.max_delay_ms, "ping_timeout", self.ping_timeout_ms)
        self._less(
            "(ping_interval + ping_timeout) * (1 + clock_drift) + 2 * max_delay",
            self.lease_ms * (1 + d) + 2 * self.max_delay_ms,
            "validity * (1 - clock_drift)",
            self.validity_ms * (1 - d),
        )
        self._less("2 * claim_heartbeat", 2 * self.claim_heartbeat_ms, "claim_ttl", self.claim_ttl_ms)
        self._less("commit_interval - 1", self.commit_interval_ms - 1, "claim_heartbeat", self.claim_heartbeat_ms)
        self._less("unsubscribe_timeout", self.unsubscribe_timeout_ms, "revoke_timeout", self.revoke_timeout_ms)
        # A leader that was started by a borrower's question must still be there for the next one (D-52).
        self._less(
            "find_leader * (1 + clock_drift) + 2 * max_delay",
            self.find_leader_ms * (1 + d) + 2 * self.max_delay_ms,
            "idle_stop * (1 - clock_drift)",
            self.idle_stop_ms * (1 - d),
        )
        return self

    def _check_max_deliver(self, most: int) -> None:
        if not 1 <= most <= DELIVER_MAX:
            rule = f"must lie between 1 and {DELIVER_MAX} deliveries; leave it out for no bound"
            raise ConfigurationError("max_deliver", most, rule)
        if not self.count_deliveries:
            raise ConfigurationError("count_deliveries", False, f"must be true where max_deliver is {most}")

    def _check_dead_letters(self) -> None:
        topic = self.dead_letter_topic
        try:
            check_topic(topic)
        except ConfigurationError as error:
            raise ConfigurationError("dead_letter_topic", topic, error.rule) from error
        if self.max_deliver is None:
            raise ConfigurationError("dead_letter_topic", topic, "needs max_deliver: after how many deliveries")
        if self.spent == "drop":
            rule = "is for messages that are kept: leave spent out, or the topic where messages are dropped"
            raise ConfigurationError("dead_letter_topic", topic, rule)

    def _less(self, left: str, low: float, right: str, high: float) -> None:
        if not low < high:
            raise ConfigurationError(left, low, f"must be less than {right} = {high} (all in milliseconds)")


@lru_cache(maxsize=DRIFTS_MAX)
def _rates(drift: float) -> tuple[int, int]:
    """Two whole numbers that are to each other as 1 - drift to 1 + drift, the drift as it is written: the same on every
    machine, and nothing is rounded before the end."""
    part, whole = Fraction(str(drift)).as_integer_ratio()
    return whole - part, whole + part


def _stretch(duration_ns: int, drift: float) -> int:
    """`duration_ns * (1 + drift) / (1 - drift)`, rounded up."""
    slow, fast = _rates(drift)
    return -(-duration_ns * fast // slow)


def _shrink(duration_ns: int, drift: float) -> int:
    """`duration_ns * (1 - drift) / (1 + drift)`, rounded down."""
    slow, fast = _rates(drift)
    return duration_ns * slow // fast


class Detour(msgspec.Struct, frozen=True, gc=False):
    """`via`: the follower; `turn`: when it was used last, as a running number."""

    via: str
    turn: int


class Detours(msgspec.Struct, frozen=True, gc=False):
    """Of at most `DETOURS_MAX` borrowers, those used last.  `turns`: turn -> borrower; `turn`: the next."""

    of: Map[str, Detour] = Map()
    turns: Map[int, str] = Map()
    turn: int = 0

    def keep(self, borrower: str, via: str) -> Detours:
        """From now on the borrower is reached through `via`, too."""
        kept = self.drop(borrower)
        turn = kept.turn
        kept = Detours(kept.of.set(borrower, Detour(via, turn)), kept.turns.set(turn, borrower), turn + 1)
        return kept.drop(kept.turns[min(kept.turns)]) if len(kept.of) > DETOURS_MAX else kept

    def drop(self, borrower: str) -> Detours:
        """The direct way works, or nobody is there any more."""
        known = self.of.get(borrower)
        if known is None:
            return self
        of, turns = self.of.delete(borrower), self.turns.delete(known.turn)
        return replace(self, of=of, turns=turns) if of else Detours()


def is_detoured(detours: Detours, message: Any) -> bool:
    """Whether the message goes both ways, or around."""
    if not detours.of or type(message) in (LeaderWanted, RelayedToBorrower, RelayedToLeader):
        return False
    return getattr(message, "borrower", "") in detours.of


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
