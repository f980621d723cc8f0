"""The lock of somebody else, with a check that stands still in the first task that comes to it, until it is killed."""

import os
import time
from pathlib import Path

from lock_protocol import LOCK, REPORTS, judge_fencing

from statemachines.kernel import Protocol
from statemachines_reports.protocol import Check, ReportProtocol, verdict

__all__ = ["LOCK", "PAUSING", "PROTOCOL"]

WAIT_S = 120
"""So long a task stands still that nobody kills."""


def judge_paused(segment):
    """The session of the processes of the worker that was first is written down."""
    (folder,) = {segment.parameters(run)["folder"] for run, _ in segment.columns.runs()}
    reached = Path(folder) / "reached"
    try:
        with reached.with_suffix(f".{os.getpid()}").open("x") as file:
            file.write(str(os.getsid(0)))
        os.link(file.name, reached)
    except FileExistsError:
        return verdict(segment.columns, 1, segment.columns.rows_of()[:0], str)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until and not (Path(folder) / "go").exists():
        time.sleep(0.05)
    return verdict(segment.columns, 1, segment.columns.rows_of()[:0], str)


PAUSING = ReportProtocol(
    checks=(
        Check("paused", "a task is killed", judge_paused),
        Check("fencing", "no write with an older token", judge_fencing, promised=lambda facts: facts["fenced"]),
    ),
    measures=REPORTS.measures,
    amounts=REPORTS.amounts,
    find=REPORTS.find,
    results=REPORTS.results,
    tables=REPORTS.tables,
)

PROTOCOL = Protocol(
    name="mine", prefix="MY", machines={"lock": "lock_protocol:LOCK"}, areas={"reports": "paused_lock:PAUSING"}
)
