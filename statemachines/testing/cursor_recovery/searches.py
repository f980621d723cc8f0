"""Searches: the plans of the crash harness, to find a planted bug among real processes."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from statemachines.testing.cursor_recovery.crash_plan import draw_plan
from statemachines.testing.cursor_recovery.crash_run import run_plan
from statemachines.testing.finding import Searches

STUCK_S: Final = 5.0
"""With a bug planted many are stuck, so this waits less long; a very busy machine would be called a bug."""


def crash(seed: int) -> str:
    """What the run of a seed broke ("" = nothing): its processes make every operation by the declared machines."""
    found = run_plan(replace(draw_plan(seed), declared=True, patience_s=STUCK_S))
    return found[0].name if found else ""


SEARCHES: Final = Searches(processes=crash)
