"""Delivery order: a session delivers a stream in order, under its grant, and acknowledges what it has delivered.

A session owns a stream from one install to the next.  What it delivers begins where the install says, and goes on
without a hole.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from statemachines_reports.columns import STEPS
from statemachines_reports.neutral.row_groups import group_rows
from statemachines_reports.protocol import Segment, Verdict, verdict
from statemachines_reports.shared_subscriptions.names import SESSION

WORDS: Final = {
    1: "is delivered, and was never installed",
    2: "is delivered out of order",
    3: "is of another grant than was installed",
    4: "is acknowledged before it is delivered",
}


def judge_order(segment: Segment) -> Verdict:
    """What sessions deliver and acknowledge, against what was installed."""
    columns = segment.columns
    rows = np.sort(
        np.concatenate(
            (columns.rows_of("step", event=("install",)), columns.rows_of("tell", event=("deliver", "acknowledged")))
        )
    )
    rows = rows[columns.is_one_of("machine", (SESSION,), rows)]
    rows = rows[np.isin(columns["run"][rows], columns["run"][columns.rows_of(*STEPS)])]
    groups = group_rows(columns, rows, ("key", "instance", "run"))
    rows = groups.rows
    installs = columns.is_one_of("event", ("install",), rows)
    delivers = columns.is_one_of("event", ("deliver",), rows)
    first, last, grant = (columns[name][rows] for name in ("first", "last", "grant"))
    install = groups.find_latest(installs)
    reached = np.where(installs, first - 1, last)
    latest = groups.find_latest(installs | delivers)
    before = np.full(len(rows), -1)
    before[1:] = np.where(groups.same[1:], latest[:-1], -1)
    wrong = np.zeros(len(rows), np.int64)
    wrong[delivers & (first != reached[before] + 1)] = 2
    early = (first < first[install]) | (last > reached[latest])
    wrong[~installs & ~delivers & early] = 4
    wrong[~installs & (grant != grant[install])] = 3
    wrong[~installs & (install < 0)] = 1
    words = dict(zip(rows[wrong > 0].tolist(), wrong[wrong > 0].tolist(), strict=True))

    def describe(row: int) -> str:
        span = f"{columns['first'][row]} to {columns['last'][row]}"
        return f"{columns.text('instance', row)}: {span} of {columns.text('key', row)} {WORDS[words[row]]}"

    return verdict(columns, int((~installs).sum()), np.array(sorted(words), np.int64), describe)
