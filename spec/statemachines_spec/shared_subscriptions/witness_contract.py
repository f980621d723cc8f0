"""What a witness owes the Agent and the group store: it reads the claim when it is asked to, and not too often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Ask, Tell
from statemachines.shared_subscriptions.configuration import WITNESS, ClaimRead, Doubt, RestTimer, WitnessRecord
from statemachines.shared_subscriptions.group_store import (
    SERVICE,
    Claim,
    Read,
    ReadDone,
    StoredRecord,
    StoreFailed,
    record_key,
)
from statemachines.shared_subscriptions.names import CLAIM
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.actor import Timing
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.shared_subscriptions.borrower_times import OURS, TICK_MS
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.succession import TICK_NS

READS: Final = 3
REST: Final = OURS.find_leader_ms // TICK_MS
CLAIMS: Final = (None, StoredRecord(Claim("leader-1~1/1", 2), 1))
"""What may stand in the store: nothing, or somebody's claim."""
Said = tuple[Any, ...]


class WitnessFacts(msgspec.Struct, frozen=True, gc=False):
    """`n` of the last read, and whether it is `open`; `doubted`: somebody has doubted since it was asked for; `rested`:
    ticks since it was answered (-1: it has rested as long as it has to)."""

    n: int = 0
    open: bool = False
    doubted: bool = False
    rested: int = -1


class Doubters(Counterpart):
    """an Agent that doubts whenever it likes, and a store that answers late, fails, and repeats old answers"""

    owes, ends = "S19", "S1 ends"

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> WitnessFacts:
        return WitnessFacts()

    def says(self, known: WitnessFacts) -> Iterator[Any]:
        yield Doubt()
        for n in (known.n - 1, known.n) if known.n else ():
            yield from (ReadDone(n, (claim,), 0) for claim in CLAIMS)
            yield StoreFailed(n)

    def learns(self, known: WitnessFacts, event: Any, said: Said) -> WitnessFacts:
        if isinstance(event, Doubt):
            known = replace(known, doubted=True)
        if is_answer(known, event):
            again = known.doubted or isinstance(event, StoreFailed)
            known = replace(known, open=False, rested=0, doubted=again)
        if isinstance(event, RestTimer):
            known = replace(known, rested=-1)
        for effect in said:
            match effect:
                case Ask(_, Read(n=n)):
                    known = WitnessFacts(n, open=True)
        return known

    def ages(self, known: WitnessFacts, ticks: int) -> WitnessFacts:
        return known if known.rested < 0 else replace(known, rested=min(known.rested + ticks, REST + 1))

    def is_late(self, known: WitnessFacts) -> int:
        return RULES.index(RESTS) + 1 if known.rested > REST else 0


def is_answer(known: WitnessFacts, event: Any) -> bool:
    """To the open read."""
    return known.open and isinstance(event, ReadDone | StoreFailed) and event.n == known.n


def reads(known: WitnessFacts, said: Said) -> bool:
    """It reads the claim of its group, under a new number, and nothing else."""
    key = record_key(GROUP, FILTER, CLAIM)
    return any(said == (Ask(SERVICE, Read(n, (key,))),) for n in range(known.n + 1, READS + 2))


def doubts(known: WitnessFacts, event: Doubt, said: Said) -> bool:
    return reads(known, said) if not known.open and known.rested < 0 else said == ()


def tells(known: WitnessFacts, event: ReadDone, said: Said) -> bool:
    if not is_answer(known, event):
        return said == ()
    found = event.records[0]
    claim = Claim("", 0) if found is None or not isinstance(found.value, Claim) else found.value
    return said == (Tell(ClaimRead(claim.leader, claim.epoch)),)


def rests(known: WitnessFacts, event: RestTimer, said: Said) -> bool:
    return known.rested == REST and (reads(known, said) if known.doubted else said == ())


RESTS: Final = Rule("rests", "SS-241", "between two reads lies a find_leader, and after it what was doubted is read",
                    lambda known, event: isinstance(event, RestTimer), rests)  # fmt: skip
RULES: Final = (
    Rule("doubts", "SS-240, SS-241", "who is doubted reads, unless it is about to, or has just done so",
         lambda known, event: isinstance(event, Doubt), doubts),
    Rule("tells", "SS-242, SS-243", "what the open read found is told: whom the claim names, or nobody",
         lambda known, event: isinstance(event, ReadDone), tells),
    Rule("fails", "SS-243", "that the store failed is told to nobody",
         lambda known, event: isinstance(event, StoreFailed), lambda known, event, said: said == ()),
    RESTS,
)  # fmt: skip

NAME: Final = "timed-witness"
ABOUT: Final = {NAME: "a witness reads the claim when it is doubted, and rests in between"}


def build(name: str) -> System:
    """A witness, who doubts, and the store."""
    timing = Timing(TICK_NS, ("rest",))
    record = WitnessRecord("witness", GROUP, FILTER, OURS)
    machine = Machine(WITNESS, record, timing=timing, bound=lambda record: record.n <= READS)
    return contract(name, ABOUT[name], machine, Doubters(), TickClock(TICK_NS))
