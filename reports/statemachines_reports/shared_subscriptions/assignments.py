"""Assignments: a leader gives a stream to one borrower at a time (S2)."""

from __future__ import annotations

import numpy as np

from statemachines_reports.intervals import find_overlaps
from statemachines_reports.protocol import CheckVerdict, Segment, verdict
from statemachines_reports.shared_subscriptions.names import ASSIGNMENT


def judge_assignments(segment: Segment) -> CheckVerdict:
    """S2: of the assignments of a stream by a leader, one ends before the next begins."""
    columns, steps = segment.columns, segment.steps
    texts = columns.texts["instance"]
    streams = [text.rpartition("#")[0] for text in texts]
    names = {name: code for code, name in enumerate(dict.fromkeys(streams))}
    stream_of = np.array([names[name] for name in streams] + [-1], np.int64)
    is_assignment = columns.is_one_of("machine", (ASSIGNMENT,), steps.index)
    order = steps.order[is_assignment[steps.order]]
    if not len(order):
        return verdict(columns, 0, order, str)
    begins = np.flatnonzero(steps.first[is_assignment[steps.order]])
    ends = np.concatenate((begins[1:] - 1, [len(order) - 1]))
    begin, end = steps.index[order[begins]], steps.index[order[ends]]
    end = np.where(columns.is_one_of("dest", ("none",), end), end, columns.rows)
    owner = steps.run[order[begins]] * (len(names) + 1) + stream_of[steps.instance[order[begins]]]
    overlapping = find_overlaps(owner, begin, end)
    positions = order[begins][overlapping]

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} begins while another assignment of the stream stands"

    return verdict(columns, len(begins), steps.index[positions], describe)
