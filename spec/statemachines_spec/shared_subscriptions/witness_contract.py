"""What a witness owes the Agent and the group store: it reads the claim when it is asked to, and not too often."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Ask, Tell
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
from statemachines.shared_subscriptions.witness import WITNESS, ClaimRead, Doubt, RestTimer, WitnessRecord
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.explorer.tick import TickClock
from statemachines_spec.explorer.timing import Timing
from statemachines_spec.shared_subscriptions.borrower_times import OURS, TICK_MS
from statemachines_spec.shared_subscriptions.consumer import FILTER, GROUP
from statemachines_spec.shared_subscriptions.timings import TICK_NS
from statemachines_spec.table_contract import Clock, NumberedContract, Owed, TableFacts

READS: Final = 3
REST: Final = OURS.find_leader_ms // TICK_MS
CLAIMS: Final = (None, StoredRecord(Claim("leader-1~1/1", 2), 1))
"""What may stand in the store: nothing, or somebody's claim."""
Said = tuple[Any, ...]


class WitnessFacts(TableFacts, frozen=True, gc=False):
    """`n` of the last read; `doubted`: somebody has doubted since it was asked for."""

    n: int = 0
    doubted: bool = False


class Doubters(NumberedContract):
    """an Agent that doubts whenever it likes, and a store that answers late, fails, and repeats old answers"""

    owes, ends = "S19", "S1 ends"

    def can_say(self, known: WitnessFacts, word: Any) -> bool:
        """The last read is answered, and the one before."""
        return isinstance(word, Doubt) or (known.n > 0 and word.n in (known.n - 1, known.n))


def is_open(known: WitnessFacts, event: ReadDone | StoreFailed) -> bool:
    """It answers the last read."""
    return event.n == known.n


def read(known: WitnessFacts, event: Any) -> Said:
    """It reads the claim of its group, and nothing else."""
    return (Ask(SERVICE, Read(known.n + 1, (record_key(GROUP, FILTER, CLAIM),))),)


def tell(known: WitnessFacts, event: ReadDone) -> Said:
    found = event.records[0]
    claim = Claim("", 0) if found is None or not isinstance(found.value, Claim) else found.value
    return (Tell(ClaimRead(claim.leader, claim.epoch)),)


def doubt(known: WitnessFacts, event: Any) -> WitnessFacts:
    """It will read again."""
    return replace(known, doubted=True)


# fmt: off
ROWS: Final = (
    Owed("doubts", "SS-240, SS-241", "who is doubted reads, unless it is about to, or has just done so",
         Doubt, "new", read, "open"),
    Owed("doubts", "", "", Doubt, then=doubt),
    Owed("tells", "SS-242, SS-243", "what the open read found is told: whom the claim names, or nobody",
         ReadDone, "open", tell, "rest", is_open),
    Owed("tells", "", "", ReadDone),
    Owed("fails", "SS-243", "that the store failed is told to nobody",
         StoreFailed, "open", to="rest", when=is_open, then=doubt),
    Owed("fails", "", "", StoreFailed),
    Owed("rests", "SS-241", "between two reads lies a find_leader, and after it what was doubted is read",
         RestTimer, "", read, "open", lambda known, event: known.doubted,
         lambda known, event: replace(known, doubted=False)),
    Owed("rests", "", "", RestTimer, to="new"),
)
# fmt: on
CLOCKS: Final = (Clock(RestTimer, "rest", REST, "rests"),)
WORDS: Final = (
    Doubt(), *(ReadDone(n, (claim,), 0) for n in range(READS + 1) for claim in CLAIMS),
    *(StoreFailed(n) for n in range(READS + 1)),
)  # fmt: skip

NAME: Final = "timed-witness"
ABOUT: Final = {NAME: "a witness reads the claim when it is doubted, and rests in between"}


def build(name: str) -> System:
    """A witness, who doubts, and the store."""
    timing = Timing(TICK_NS, ("rest",))
    record = WitnessRecord("witness", GROUP, FILTER, OURS)
    machine = Machine(WITNESS, record, timing=timing, bound=lambda record: record.n <= READS)
    counterpart = Doubters(ROWS, CLOCKS, WORDS, WitnessFacts())
    return contract(name, ABOUT[name], machine, counterpart, TickClock(TICK_NS))
