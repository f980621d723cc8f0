"""The kinds of faults that any protocol can be hit by: `NEUTRAL`; a protocol adds kinds of its own (`SimProtocol`)."""

from __future__ import annotations

from typing import Final

from statemachines_sim.faults.clocks import Drift, FarJump, Jump, Skew
from statemachines_sim.faults.kind import FaultKind as FaultKind
from statemachines_sim.faults.network import Duplicate, HoldBack, Loss, Partition, Reorder, Slow, Unreachable
from statemachines_sim.faults.processes import Crash as Crash
from statemachines_sim.faults.processes import DuplicateNode, LateTimer, LongPause, LostDisk, Sleep
from statemachines_sim.faults.processes import Pause as Pause
from statemachines_sim.faults.stores import PowerLoss, SlowStore, StoreCrash, StoreCut, StoreFails, TornWrite, WallStep

NEUTRAL: Final[tuple[FaultKind, ...]] = (
    Crash(), LostDisk(), DuplicateNode(), Pause(), LongPause(), Sleep(), LateTimer(),
    Loss(), Duplicate(), Reorder(), HoldBack(), Partition(), Unreachable(), Slow(),
    Skew(), Drift(), Jump(), FarJump(), WallStep(),
    StoreFails(), SlowStore(), StoreCut(), StoreCrash(), TornWrite(), PowerLoss(),
)  # fmt: skip


def table(kinds: tuple[FaultKind, ...]) -> str:
    """The kinds for people, as a table in Markdown."""
    lines = ["| kind | hits | what happens | amount |", "|---|---|---|---|"]
    lines += [f"| `{kind.name}` | {kind.hits} | {kind.about} | {kind.unit} |" for kind in kinds]
    return "\n".join(lines)
