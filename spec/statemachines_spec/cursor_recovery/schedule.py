"""Schedule: what a run of an explored system asks of real processes: who makes the next access, or what time it is.

    python -m statemachines_spec.cursor_recovery.schedule FILE

writes that of the counterexample into a file, for the tests over real shared memory.

Counterexample: by age alone, as the source has it, an acknowledged message is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path as FilePath

import msgspec
from msgspec.structs import replace

from statemachines.cursor_recovery.properties import delivered_blocks
from statemachines_spec.cursor_recovery.systems import EMPTY, LATER, A, QueueSetting, build
from statemachines_spec.explorer.actor import At
from statemachines_spec.explorer.explore import Leg, Result, explore
from statemachines_spec.explorer.system import System

NAME = "slow-writer"
ABOUT = (
    "a slow writer is taken for dead, and clears the position of the one that has its cursor now: a reader skips "
    "the block of that one, which is acknowledged"
)
SETTING = QueueSetting(((A,), (EMPTY,)), 1, capacity=40, write_cursors=1, instants=LATER)


def slow_writer(variant: str = "by_age") -> System:
    """The system in a variant, and of its promises ACK alone; where the death of an owner is known it holds."""
    made = build(NAME, ABOUT, SETTING, variant)
    kept = tuple(one for one in made.properties if one.name == delivered_blocks.ACK)
    return replace(made, properties=kept, obligations=())


CLOCK = "clock"


class ScheduledTurn(msgspec.Struct, frozen=True, array_like=True):
    """`who` makes its next access, or begins an operation where it is in none; `status`: of the operation afterwards.
    The clock is at the instant `now_ns`."""

    who: str
    status: str = ""
    now_ns: int = 0


def schedule_of(found: Result) -> list[ScheduledTurn]:
    """Of the run that an exploration has found; raises `ValueError` where none was."""
    if found.path is None:
        raise ValueError(f"{found.system}: nothing breaks")
    return [turn for leg in found.path.legs for turn in _turns(leg)]


def _turns(leg: Leg) -> Iterator[ScheduledTurn]:
    instants = {turn.envelope.event.now_ns for turn in leg.turns if isinstance(turn.envelope.event, At)}
    yield from (ScheduledTurn(CLOCK, "", now_ns) for now_ns in instants)
    if not instants:
        name = leg.turns[0].actor
        steps = [step for turn in leg.turns if turn.actor == name for step in turn.steps]
        yield ScheduledTurn(name, steps[-1].dest)


if __name__ == "__main__":
    FilePath(sys.argv[1]).write_bytes(msgspec.json.encode(schedule_of(explore(slow_writer()))) + b"\n")
