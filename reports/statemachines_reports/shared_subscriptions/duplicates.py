"""Duplicates: nothing is delivered twice without a reason (S13)."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.protocol import CheckVerdict, Segment, verdict
from statemachines_reports.shared_subscriptions.account import OffsetRanges, latest_before
from statemachines_reports.shared_subscriptions.liars import of_liars
from statemachines_reports.shared_subscriptions.names import BORROWER, LEADER, MEMBER, SESSION

EXCUSES = ("crash", "lost_disk", "leader_crash", "kill", "unsubscribe")
"""Faults after which what was not reported may be delivered again."""


def judge_duplicates(segment: Segment) -> CheckVerdict:
    """S13: between two deliveries of a message somebody was reset, expired, left or died, or gave it back, or one
    before it.

    Where hand-over is not exclusive the old owner may go on after the expiry that made the new one, so nothing promises
    it there; nor of what a liar was granted.
    """
    columns = segment.columns
    delivered = OffsetRanges.of(columns, "deliver")
    again = delivered.first <= latest_before(delivered.group, delivered.last)
    excuses = _excuses(columns)
    returned = _returned(columns)
    wrong: list[int] = []
    for group in np.setdiff1d(delivered.group[again], of_liars(columns)):
        begin, end = np.searchsorted(delivered.group, [group, group + 1])
        part = slice(int(begin), int(end))
        wrong += _unexcused(delivered, part, excuses, returned.get(int(group), []))

    def describe(row: int) -> str:
        return f"{columns.text('key', row)}: {columns['first'][row]} delivered again, without a reason"

    return verdict(columns, len(delivered.row), delivered.row[np.array(wrong, np.int64)], describe)


def _excuses(columns: Columns) -> np.ndarray:
    """The rows of what may lead to a second delivery, in order."""
    steps = columns.rows_of(*STEPS)
    ended = columns.is_one_of("machine", (BORROWER,), steps) & columns.is_one_of("dest", ("destroyed",), steps)
    ended |= columns.is_one_of("machine", (MEMBER,), steps) & columns.is_one_of("dest", ("lapsed", "gone"), steps)
    ended |= columns.is_one_of("machine", (LEADER,), steps) & columns.is_one_of("dest", ("resigned",), steps)
    return np.sort(np.concatenate((steps[ended], columns.rows_of("fault", event=EXCUSES))))


def _returned(columns: Columns) -> dict[int, list[tuple[int, int]]]:
    """Group -> (row, offset) of the messages of the stream that were given back, in order."""
    rows = columns.rows_of("step", event=("nack",))
    rows = rows[columns.is_one_of("machine", (SESSION,), rows)]
    groups = columns["run"][rows] * (len(columns.texts["key"]) + 1) + columns["key"][rows]
    found: dict[int, list[tuple[int, int]]] = {}
    for group, row, offset in zip(groups.tolist(), rows.tolist(), columns["first"][rows].tolist(), strict=True):
        found.setdefault(group, []).append((row, offset))
    return found


def _is_returned(returned: list[tuple[int, int]], since: int, until: int, offset: int) -> bool:
    """A message no further than `offset` was given back between these rows: it comes again, with what is behind it."""
    between = returned[bisect_right(returned, (since, -1)) : bisect_right(returned, (until, -1))]
    return any(one <= offset for _, one in between)


def _unexcused(ranges: OffsetRanges, part: slice, excuses: np.ndarray, returned: list[tuple[int, int]]) -> list[int]:
    """Positions of deliveries of a group that repeat an earlier one with no excuse in between.

    `known` holds, for every offset delivered so far, when that was last: ranges (first, last, row), sorted.
    """
    known: list[tuple[int, int, int]] = []
    wrong = []
    numbers = zip(ranges.first[part].tolist(), ranges.last[part].tolist(), ranges.row[part].tolist(), strict=True)
    for position, (first, last, row) in enumerate(numbers, part.start):
        above: list[tuple[int, int, int]] = []
        latest = -1
        while known and known[-1][1] >= first:
            begin, end, earlier = known.pop()
            if begin <= last:
                latest = max(latest, earlier)
            if end > last:
                above.append((max(begin, last + 1), end, earlier))
            if begin < first:
                known.append((begin, first - 1, earlier))
                break
        known.append((first, last, row))
        known.extend(reversed(above))
        is_excused = latest < 0 or np.searchsorted(excuses, latest) != np.searchsorted(excuses, row)
        if not is_excused and not _is_returned(returned, latest, row, first):
            wrong.append(position)
    return wrong
