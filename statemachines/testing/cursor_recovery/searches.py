"""Searches: the plans of the crash harness, to find a planted bug among real processes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Final

from msgspec.structs import replace

from statemachines.drivers.cursor_recovery import CircularQueue, MissingQueue
from statemachines.testing.bug_search import Searches
from statemachines.testing.cursor_recovery.crash_judge import draw_plan
from statemachines.testing.cursor_recovery.crash_run import fork, run_plan

STUCK_S: Final = 5.0
"""With a bug planted many are stuck, so this waits less long; a very busy machine would be called a bug."""
ENDLESS_S: Final = 4 * STUCK_S
"""A run that waits for nobody any more, and does not end: one operation goes round and round."""


def crash(seed: int) -> str:
    """What the run of a seed broke ("" = nothing, "endless": it did not come to an end): its processes make every
    operation by the declared machines."""
    reads, writes = os.pipe()

    def run() -> None:
        os.setsid()
        found = run_plan(replace(draw_plan(seed), declared=True, patience_s=STUCK_S))
        os.write(writes, (found[0].name if found else "held").encode())

    pid = fork(run)
    os.close(writes)
    ended = bool(select.select([reads], [], [], ENDLESS_S)[0])
    said = os.read(reads, 100).decode() if ended else "endless"
    os.close(reads)
    if not ended:
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with contextlib.suppress(MissingQueue):
        CircularQueue.unlink(f"crash-{pid}-{seed}")
    return "" if said == "held" else said or "harness"


SEARCHES: Final = Searches(processes=crash)
