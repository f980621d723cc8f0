"""Message traffic: the rows of numbered messages, each with the row in which it was sent."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from statemachines_reports.columns import Columns

NUMBERED: Final = 1 << 40
"""Numbers from here on are those of a node; smaller ones are of those who keep no log."""


class Traffic:
    """The rows of numbered messages, sorted by (run, message), in their order: `rows`; `group`: which message;
    `sent`: the row in which it was sent (-1: nowhere)."""

    def __init__(self, columns: Columns) -> None:
        rows = columns.rows_of("send", "deliver", "drop", "duplicate")
        rows = rows[columns["msg"][rows] >= NUMBERED]
        rows = rows[_order_by_run(columns["run"][rows], columns["msg"][rows])]
        self.columns = columns
        self.rows = rows
        run, msg = columns["run"][rows], columns["msg"][rows]
        begins = np.ones(len(rows), bool)
        begins[1:] = (run[1:] != run[:-1]) | (msg[1:] != msg[:-1])
        self.group = np.cumsum(begins) - 1
        self.groups = int(begins.sum())
        self.is_send = columns.is_one_of("kind", ("send",), rows)
        self.is_deliver = columns.is_one_of("kind", ("deliver",), rows)
        self.first_send = np.full(self.groups, -1)
        sends = np.flatnonzero(self.is_send)[::-1]
        self.first_send[self.group[sends]] = rows[sends]
        self.sent = self.first_send[self.group]

    def count(self, kind: str) -> np.ndarray:
        """How many rows of this kind each message has."""
        return np.bincount(self.group[self.columns.is_one_of("kind", (kind,), self.rows)], minlength=self.groups)


def _order_by_run(run: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Positions sorted by run and value, equal ones in their order.  Runs lie behind one another, and each is sorted by
    itself: that is less work than sorting all."""
    bounds = [0, *(np.flatnonzero(run[1:] != run[:-1]) + 1).tolist(), len(run)]
    return np.concatenate([begin + np.argsort(values[begin:end], kind="stable") for begin, end in pairwise(bounds)])
