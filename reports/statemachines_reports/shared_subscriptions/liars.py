"""Liars: nodes that a fault had lie; what they say of streams that they were granted cannot be told from the truth."""

from __future__ import annotations

import numpy as np

from statemachines.kernel import node_of
from statemachines_reports.columns import Columns

LIES = ("forge",)
"""Faults that have a node say what is not so."""


def of_liars(columns: Columns) -> np.ndarray:
    """The streams, by run and key as `Ranges` has them, that a liar was granted in its run: nothing is promised of
    them.  Those of all others are judged."""
    told = columns.rows_of("fault", event=LIES)
    if not len(told):
        return np.zeros(0, np.int64)
    liars = {(int(columns["run"][row]), columns.text("node", row)) for row in told.tolist()}
    grants = columns.rows_of("send", event=("grant",))
    lied = np.array(
        [(int(columns["run"][row]), node_of(columns.text("peer", row))) in liars for row in grants.tolist()]
    )
    rows = grants[lied.astype(bool)]
    return np.unique(columns["run"][rows] * (len(columns.texts["key"]) + 1) + columns["key"][rows])
