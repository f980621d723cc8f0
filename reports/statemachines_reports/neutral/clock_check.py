"""Clock check: every row has a time, and no clock goes back in a node.  A simulated run has one time, and its rows are
numbered from 0 on."""

from __future__ import annotations

from typing import Final

import numpy as np

from statemachines_reports.columns import Columns, Segment, stable_order
from statemachines_reports.neutral.simulated_run import is_simulated, runs_where
from statemachines_reports.protocol import Check, CheckVerdict, Joint, KeptRows, verdict


def judge_clocks(segment: Segment) -> CheckVerdict:
    """Rows whose time is before that of the row before, or before 0; and rows before which some are missing."""
    columns = segment.columns
    run = columns["run"]
    back = np.flatnonzero((columns["t_ns"][1:] < columns["t_ns"][:-1]) & (run[1:] == run[:-1])) + 1
    order = stable_order(columns["node"], len(columns.texts["node"]) + 1) if len(back) else back
    wrong = _find_back(columns, order, columns["node"][order])
    simulated = runs_where(segment, is_simulated)
    wrong = np.union1d(wrong, back[np.isin(run[back], simulated)])
    timeless = np.flatnonzero(columns["t_ns"] < 0)
    behind = _find_behind_hole(columns)
    behind = behind[np.isin(run[behind], simulated)]
    holes = set(behind.tolist())

    def describe(row: int) -> str:
        if row in holes:
            return f"row {columns['seq'][row]} does not follow the row before: rows of the run are missing"
        if columns["t_ns"][row] < 0:
            return f"{columns.text('node', row)}: the row has no time, or one before 0"
        return f"{columns.text('node', row)}: the time goes back to {columns['t_ns'][row]} ns"

    return verdict(columns, columns.rows, np.unique(np.concatenate((wrong, timeless, behind))), describe)


def _find_behind_hole(columns: Columns) -> np.ndarray:
    """Rows whose number is not that of the row before and one; the first row of a run has 0."""
    seq, run = columns["seq"], columns["run"]
    expected = np.zeros(len(seq), np.int64)
    expected[1:] = np.where(run[1:] == run[:-1], seq[:-1] + 1, 0)
    return np.flatnonzero(seq != expected)


def _find_back(columns: Columns, order: np.ndarray, node: np.ndarray) -> np.ndarray:
    """Of rows in this order those of a node that are before the last of that node."""
    time, run = columns["t_ns"][order], columns["run"][order]
    back = (time[1:] < time[:-1]) & (node[1:] == node[:-1]) & (run[1:] == run[:-1])
    return np.asarray(order[1:][back])


def keep_ends(segment: Segment) -> KeptRows:
    """The first row of each node is open, and stands behind the row before it; the last ones are context."""
    columns = segment.columns
    order = stable_order(columns["node"], len(columns.texts["node"]) + 1)
    node = columns["node"][order]
    begins = np.append(True, node[1:] != node[:-1])[: len(node)]
    first, last = order[begins], order[np.append(begins[1:], True)[: len(node)]]
    return KeptRows(first, np.concatenate((last, np.maximum(first - 1, 0))))


CLOCKS: Final = Check(
    "clocks",
    "no clock goes back, and no number of a row is missing",
    judge_clocks,
    joints=(Joint(judge_clocks, keep_ends),),
)
