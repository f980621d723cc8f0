"""RowGroups: rows put together by some of their columns, in their order."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from statemachines_reports.columns import Columns, stable_order
from statemachines_reports.protocol import KeptRows


class RowGroups:
    """`rows` sorted by group; `same`: whether a row is in the group of the one before."""

    def __init__(self, columns: Columns, rows: np.ndarray, order: np.ndarray, by: tuple[str, ...]) -> None:
        self.rows = rows[order]
        self.same = np.zeros(len(rows), bool)
        self.same[1:] = True
        for name in by:
            values = columns[name].take(self.rows)
            self.same[1:] &= values[1:] == values[:-1]

    @cached_property
    def begin(self) -> np.ndarray:
        """The place where the group of each row begins."""
        begins = np.flatnonzero(~self.same)
        return np.repeat(begins, np.diff(begins, append=len(self.rows)))

    def find_latest(self, marked: np.ndarray) -> np.ndarray:
        """The place of the latest marked row of the group, up to this one; -1: there is none."""
        if not len(marked):
            return np.zeros(0, np.int64)
        latest = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
        return np.where(latest >= self.begin, latest, -1)


def group_rows(columns: Columns, rows: np.ndarray, by: tuple[str, ...]) -> RowGroups:
    """Rows that are equal in these columns."""
    return RowGroups(columns, rows, np.lexsort((rows, *(columns[name][rows] for name in by))), by)


def group_by_text(columns: Columns, rows: np.ndarray, by: str) -> RowGroups:
    """Rows of a run with the same text in a column; `rows` are in order.  It is sorted by radix, in linear time."""
    return RowGroups(columns, rows, stable_order(columns[by][rows], len(columns.texts[by]) + 1), (by, "run"))


def group_kinds(columns: Columns, kinds: tuple[str, ...], by: str) -> RowGroups:
    """All rows of these kinds by their text in a column.  Several checks ask for the same, so it is kept."""
    return columns.keep((group_kinds, kinds, by), lambda: group_by_text(columns, columns.rows_of(*kinds), by))


def keep_group_ends(columns: Columns, rows: np.ndarray, by: str) -> KeptRows:
    """Of rows with the same text in a column the first, which is judged against the one before it, and the last."""
    groups = group_by_text(columns, rows, by)
    return KeptRows(groups.rows[~groups.same], groups.rows[np.append(~groups.same[1:], True)[: len(rows)]])


def is_of_last_time(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """Whether rows are of the time at which the last row of their node is: more rows of that time may follow."""
    last = np.zeros(len(columns.texts["node"]) + 1, np.int64)
    last[columns["node"]] = columns["t_ns"]
    return np.asarray(columns["t_ns"][rows] == last[columns["node"][rows]])
