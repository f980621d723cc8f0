"""Clock check: no clock goes back in a node, nor in a simulated run, which has one time."""

from __future__ import annotations

from typing import Final

import numpy as np

from statemachines_reports.columns import Columns, Segment, stable_order
from statemachines_reports.neutral.simulated_run import is_simulated, runs_where
from statemachines_reports.protocol import Check, Joint, KeptRows, Verdict, verdict


def judge_clocks(segment: Segment) -> Verdict:
    """Rows whose time is before that of the row before."""
    columns = segment.columns
    run = columns["run"]
    back = np.flatnonzero((columns["t_ns"][1:] < columns["t_ns"][:-1]) & (run[1:] == run[:-1])) + 1
    order = stable_order(columns["node"], len(columns.texts["node"]) + 1) if len(back) else back
    wrong = _find_back(columns, order, columns["node"][order])
    back = back[np.isin(run[back], runs_where(segment, is_simulated))]

    def describe(row: int) -> str:
        return f"{columns.text('node', row)}: the time goes back to {columns['t_ns'][row]} ns"

    return verdict(columns, columns.rows, np.union1d(wrong, back), describe)


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


CLOCKS: Final = Check("clocks", "no clock goes back", judge_clocks, joints=(Joint(judge_clocks, keep_ends),))
