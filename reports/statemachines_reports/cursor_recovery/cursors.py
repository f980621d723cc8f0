"""Cursors: who surely held which cursor, from when until when (EXCL).

A cursor is surely held from the step that learns that it was taken until its owner asks to give it back, or takes its
last step.  Those spans of one cursor never overlap, whoever's clock they are stamped by, since all share one.
"""

from __future__ import annotations

import numpy as np

from statemachines_reports.cursor_recovery.operations import FREE, operations_of
from statemachines_reports.intervals import find_overlaps
from statemachines_reports.protocol import CheckVerdict, Segment


class Holds:
    """Spans in which operations surely held cursors: `run`, `cursor` (a code of the column key), rows `begin` and
    `end`; `operation`: its place among the operations; `given`: it asked to give it back."""

    def __init__(self, segment: Segment) -> None:
        columns, operations = segment.columns, operations_of(segment)
        swaps = operations.swaps(*operations.cursors)
        rows = operations.row[swaps]
        takes = swaps[(columns["last"][rows] != FREE) & (operations.read_swap_answers(swaps) == 1)]
        gives = swaps[columns["last"][rows] == FREE]
        cursor = columns["key"][operations.row[takes]]
        end, given = operations.end[takes].copy(), np.zeros(len(takes), bool)
        if len(gives) and len(takes):
            codes = len(columns.texts["key"]) + 1
            of_gives = operations.group[gives] * codes + columns["key"][operations.row[gives]]
            order = np.lexsort((gives, of_gives))
            of_gives, gives = of_gives[order], gives[order]
            lift = len(operations.row) + 1
            # The first asking to free that very cursor, by the same operation, after it was taken.
            wanted = (operations.group[takes] * codes + cursor) * lift + takes
            next_ = np.minimum(np.searchsorted(of_gives * lift + gives, wanted), len(gives) - 1)
            given = (of_gives[next_] == operations.group[takes] * codes + cursor) & (gives[next_] > takes)
            end = np.where(given, operations.row[gives[next_]], end)
        self.run = columns["run"][operations.row[takes]]
        self.cursor, self.begin, self.end = cursor, operations.row[takes + 1] if len(takes) else takes, end
        self.operation, self.given = takes, given


def judge_exclusive(segment: Segment) -> CheckVerdict:
    """EXCL: of two operations that had a cursor one gave it back before the other one took it."""
    columns = segment.columns
    holds = Holds(segment)
    group = holds.run * (len(columns.texts["key"]) + 1) + holds.cursor
    amid = find_overlaps(group, holds.begin, holds.end) if len(group) else np.zeros(0, np.int64)

    def describe(number: int) -> str:
        at = amid[number]
        others = np.flatnonzero((group == group[at]) & (holds.begin < holds.begin[at]) & (holds.end >= holds.begin[at]))
        names = [columns.text("instance", holds.begin[one]) for one in (at, others[0])]
        return f"{names[0]} has the cursor {columns.texts['key'][holds.cursor[at]]} while {names[1]} has it"

    return CheckVerdict(len(group), holds.run[amid], columns["seq"][holds.begin[amid]], describe)
