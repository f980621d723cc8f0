"""What the reports are to know: a check over traces, of simulated runs and of real ones."""

from __future__ import annotations

import numpy as np

from statemachines_reports.protocol import Check, CheckVerdict, ReportProtocol, Segment, verdict


def judge_order(segment: Segment) -> CheckVerdict:
    """Whoever is told that the lock is theirs has a higher token than everybody who was told so before."""
    columns = segment.columns
    locked = columns.rows_of("tell", event=("locked",))
    token, run = columns["term"][locked], columns["run"][locked]
    highest = np.maximum.accumulate(token + (run << 32)) - (run << 32) if len(locked) else token
    older = np.flatnonzero((run[1:] == run[:-1]) & (token[1:] < highest[:-1])) + 1
    return verdict(
        columns, len(locked), locked[older], lambda row: f"the lock goes out under token {columns['term'][row]} again"
    )


REPORTS = ReportProtocol(
    checks=(Check("tokens", "the lock goes out under tokens that never go down (S1)", judge_order),)
)
