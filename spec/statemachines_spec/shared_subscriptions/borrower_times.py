"""When a borrower does what it owes: all its timers counted down, by what its leader and its client see.

Each rule has two sides: nothing comes before its time, which is judged when it comes, nor after it, which is judged as
time passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.shared_subscriptions.borrower import (
    BORROWER,
    BorrowerRecord,
    FindLeaderTimer,
    LeaseEnd,
    OnUnsubscribe,
    PingTimeout,
    PingTimer,
    Start,
    UnsubscribeTimer,
)
from statemachines.shared_subscriptions.message import Grant, LeaderConnectResponse, PingResponse
from statemachines_spec.contract import Machine, Rule, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.shared_subscriptions import borrower_contract
from statemachines_spec.shared_subscriptions.borrower_contract import (
    ID,
    REGISTRIES,
    SEEN,
    BorrowerFacts,
    LeaderAlphabet,
    leader_of,
)
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.succession import TICK_NS, TIMES, of_borrower

PINGS: Final = 3
OURS: Final = replace(
    TIMES, find_leader_ms=8, ping_interval_ms=8, ping_timeout_ms=12, validity_ms=40, idle_stop_ms=20,
    unsubscribe_timeout_ms=16,
    revoke_timeout_ms=20,
)  # fmt: skip
TICK_MS: Final = 4
TIMERS: Final = ("find_leader", "ping_timeout", "ping", "lease", "unsubscribe")


class Since(msgspec.Struct, frozen=True, gc=False):
    """What is known, and how many ticks ago it last `asked` for its leader, sent a ping, was answered, sent the ping
    that was answered last, and the client left."""

    known: BorrowerFacts
    asked: int = 0
    pinged: int = 0
    answered: int = 0
    leased: int = 0
    left: int = 0


class TimeRule(msgspec.Struct, frozen=True):
    """A rule of time: after so many `ticks` of `since`, where it `applies`, `on` comes: neither earlier nor later."""

    name: str
    clause: str
    text: str
    on: type[Any]
    since: str
    ticks: int
    applies: Callable[[BorrowerFacts], bool]

    def rule(self) -> Rule:
        """That it does not come earlier."""
        return Rule(self.name, self.clause, self.text, lambda since, event: isinstance(event, self.on),
                    lambda since, event, said: getattr(since, self.since) == self.ticks)  # fmt: skip

    def is_over(self, since: Since) -> bool:
        """It should have come."""
        return self.applies(since.known) and getattr(since, self.since) > self.ticks


DUE: Final = (
    TimeRule("asks on time", "SS-02", "who looks for a leader asks every find_leader", FindLeaderTimer, "asked",
        OURS.find_leader_ms // TICK_MS, lambda known: known.asked >= 0 and known.link is None and not known.ended),
    TimeRule("pings on time", "SS-08", "a ping follows the answer of the one before after a ping_interval", PingTimer,
        "answered", OURS.ping_interval_ms // TICK_MS,
        lambda known: known.link is not None and not known.open and known.n < PINGS),
    TimeRule("gives up on time", "SS-09, SS-18", "a ping is waited for through a ping_timeout", PingTimeout, "pinged",
        OURS.ping_timeout_ms // TICK_MS, lambda known: known.open),
    TimeRule("lease on time", "SS-10", "a lease lasts for L from the sending of the ping that was answered", LeaseEnd,
        "leased", OURS.lease_ms // TICK_MS, lambda known: known.leased),
    TimeRule("leaves on time", "SS-21", "who leaves is gone within unsubscribe_timeout", UnsubscribeTimer, "left",
        OURS.unsubscribe_timeout_ms // TICK_MS, lambda known: known.leaving),
)  # fmt: skip
RULES: Final = tuple(one.rule() for one in DUE)
FIELDS: Final = tuple(dict.fromkeys(one.since for one in DUE))
LONG: Final = max(one.ticks for one in DUE) + 1


class Timely(borrower_contract.Everybody):
    """a leader that answers whenever it likes, and a client that leaves"""

    def __init__(self) -> None:
        super().__init__(LeaderAlphabet(((SEEN, 1),), pings=PINGS))
        self.rules = RULES

    def begins(self) -> Any:
        return Since(BorrowerFacts())

    def says(self, since: Any) -> Iterator[Any]:
        known: BorrowerFacts = since.known
        if known.ended:
            return
        if known.asked < 0:
            yield Start()
        elif known.link is None:
            yield LeaderConnectResponse(ID, leader_of(SEEN), SEEN, 1)
        else:
            yield PingResponse(ID, *known.pair, known.n)
            if not known.held:
                yield Grant(ID, *known.pair, "0.0/a", 1, 0)
            if not known.leaving:
                yield OnUnsubscribe()

    def learns(self, since: Any, event: Any, said: tuple[Any, ...]) -> Any:
        before: BorrowerFacts = since.known
        known = super().learns(before, event, said)
        now: dict[str, int] = {}
        if isinstance(event, Start | FindLeaderTimer):
            now["asked"] = 0
        if known.n > before.n:
            now["pinged"] = 0
        if before.open and not known.open:
            now["answered"] = 0
            if known.is_connected:
                now["leased"] = since.pinged
        if known.leaving and not before.leaving:
            now["left"] = 0
        return Since(known) if known.ended else replace(since, known=known, **now)

    def ages(self, since: Any, ticks: int) -> Any:
        if since.known.asked < 0 and not since.known.ended:
            return None
        return replace(since, **{field: min(LONG, getattr(since, field) + ticks) for field in FIELDS})

    def is_late(self, since: Any) -> int:
        return next((number for number, one in enumerate(DUE, 1) if one.is_over(since)), 0)


NAME: Final = "timed-borrower"
ABOUT: Final = {NAME: "a borrower asks, pings, gives up, and lets its lease and itself end on time"}


def build(name: str) -> System:
    """A borrower all of whose timers are timed, and whom it owes."""
    record = BorrowerRecord(ID, GROUP, FILTER, REGISTRIES, OURS.check(), epoch=SEEN)
    timing = of_borrower(OURS, TIMERS)
    machine = Machine(BORROWER, record, timing=timing, bound=lambda record: record.ping_n <= PINGS)
    return contract(name, ABOUT[name], machine, Timely(), TickClock(TICK_NS))
