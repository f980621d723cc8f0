"""Intervals of rows, of which none may begin before an earlier one of its group has ended."""

from __future__ import annotations

import numpy as np


def find_overlaps(group: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Positions of intervals of rows that begin before an earlier one of their group has ended."""
    if not len(group):
        return group
    order = np.lexsort((begin, group))
    group, begin, end = group[order], begin[order], end[order]
    new = np.concatenate(([True], group[1:] != group[:-1]))
    # The latest end so far within the group: ends are lifted by group, so that one running maximum serves all.
    lift = (np.cumsum(new) - 1) * (int(end.max()) + 1)
    latest = np.maximum.accumulate(lift + end) - lift
    before = np.concatenate(([-1], latest[:-1]))
    return np.asarray(order[~new & (begin <= before)])
