"""Account: was every message acknowledged, how many were delivered twice, and was there a reason each time (S13, L5).

Works on ranges of offsets: columns where everything was delivered once, a sweep over ranges where something was not.
"""

from __future__ import annotations

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.judge import SHOWN, STEPS, Finding, Verdict
from statemachines_reports.names import BORROWER, LEADER, MEMBER

EXCUSES = ("crash", "lost_disk", "leader_crash", "kill", "unsubscribe")
"""Faults after which what was not reported may be delivered again."""


class Stream(msgspec.Struct, frozen=True):
    """The account of one stream in one run, in messages.

    `delivered` counts every delivery, `duplicates` those of a message that was delivered before.  `missing` was
    published and never acknowledged; `unknown` was delivered or acknowledged and never published.
    """

    run: int
    key: str
    published: int
    delivered: int
    duplicates: int
    acknowledged: int
    missing: int
    unknown: int


class Ranges:
    """The ranges that one kind of tell names: `row` of the file, sorted by (run, key, row)."""

    def __init__(self, columns: Columns, *events: str) -> None:
        row = columns.rows_of("tell", event=events)
        group = columns["run"][row] * (len(columns.texts["key"]) + 1) + columns["key"][row]
        order = np.argsort(group, kind="stable")
        self.row = row[order]
        self.group = group[order]
        self.first = columns["first"][self.row]
        self.last = columns["last"][self.row]

    def total(self) -> dict[int, int]:
        """Group -> sum of the lengths."""
        return _sums(self.group, self.last - self.first + 1)

    def covered(self) -> dict[int, int]:
        """Group -> number of different offsets."""
        order = np.lexsort((self.first, self.group))
        group, first, last = self.group[order], self.first[order], self.last[order]
        before = _running_max(group, last)
        fresh = np.maximum(last - np.maximum(first - 1, before), 0)
        return _sums(group, fresh)


def account_for(columns: Columns) -> list[Stream]:
    """The account of every stream of every run in the file."""
    keys, texts = len(columns.texts["key"]) + 1, [*columns.texts["key"], ""]
    published = Ranges(columns, "published").covered()
    delivered = Ranges(columns, "deliver")
    total, different = delivered.total(), delivered.covered()
    acknowledged = Ranges(columns, "acknowledged").covered()
    wanted = Ranges(columns, "published", "acknowledged").covered()
    known = Ranges(columns, "published", "acknowledged", "deliver").covered()
    return [
        Stream(
            run=group // keys,
            key=texts[group % keys],
            published=published.get(group, 0),
            delivered=total.get(group, 0),
            duplicates=total.get(group, 0) - different.get(group, 0),
            acknowledged=acknowledged.get(group, 0),
            missing=wanted.get(group, 0) - acknowledged.get(group, 0),
            unknown=known[group] - published.get(group, 0),
        )
        for group in sorted(known)
    ]


def judge_acknowledged(streams: list[Stream]) -> Verdict:
    """L5: every published message was acknowledged, and nothing else was."""
    missing = [stream for stream in streams if stream.missing or stream.unknown]
    findings = [
        Finding(
            "acknowledged",
            stream.run,
            -1,
            f"{stream.key}: {stream.published} published, {stream.acknowledged} acknowledged, {stream.missing} "
            f"missing, {stream.unknown} that nobody published",
        )
        for stream in missing[:SHOWN]
    ]
    return Verdict("acknowledged", sum(stream.published for stream in streams), len(missing), findings)


def judge_duplicates(columns: Columns, exclusive: dict[int, bool]) -> Verdict:
    """S13: between two deliveries of a message somebody was reset, expired, left or died.

    Where hand-over is not exclusive the old owner may go on after the expiry that made the new one, so nothing promises
    it there: such are counted apart.
    """
    delivered = Ranges(columns, "deliver")
    again = delivered.first <= _running_max(delivered.group, delivered.last)
    excuses = _excuses(columns)
    findings: dict[bool, list[Finding]] = {True: [], False: []}
    for group in np.unique(delivered.group[again]):
        begin, end = np.searchsorted(delivered.group, [group, group + 1])
        run = int(columns["run"][delivered.row[begin]])
        promised = exclusive.get(run, True)
        for position in _unexcused(delivered, slice(int(begin), int(end)), excuses):
            row = delivered.row[position]
            stream = columns.texts["key"][columns["key"][row]]
            text = f"{stream}: {delivered.first[position]} delivered again, without a reason"
            findings[promised].append(Finding("duplicates", run, int(columns["seq"][row]), text, promised))
    wrong, waived = findings[True], findings[False]
    return Verdict("duplicates", len(delivered.row), len(wrong), wrong[:SHOWN] + waived[:SHOWN], len(waived))


def _excuses(columns: Columns) -> np.ndarray:
    """The rows of what may lead to a second delivery, in order."""
    steps = columns.rows_of(*STEPS)
    ended = columns.is_one_of("machine", (BORROWER,), steps) & columns.is_one_of("dest", ("destroyed",), steps)
    ended |= columns.is_one_of("machine", (MEMBER,), steps) & columns.is_one_of("dest", ("lapsed", "gone"), steps)
    ended |= columns.is_one_of("machine", (LEADER,), steps) & columns.is_one_of("dest", ("resigned",), steps)
    return np.sort(np.concatenate((steps[ended], columns.rows_of("fault", event=EXCUSES))))


def _unexcused(ranges: Ranges, part: slice, excuses: np.ndarray) -> list[int]:
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
        if latest >= 0 and np.searchsorted(excuses, latest) == np.searchsorted(excuses, row):
            wrong.append(position)
    return wrong


def _running_max(group: np.ndarray, last: np.ndarray) -> np.ndarray:
    """For rows sorted by group: the greatest `last` before this row within its group (-1: it is the first)."""
    if not len(group):
        return np.zeros(0, np.int64)
    new = np.concatenate(([True], group[1:] != group[:-1]))
    lift = (np.cumsum(new) - 1) * 2**40
    latest = np.maximum.accumulate(lift + last) - lift
    return np.where(new, -1, np.concatenate(([-1], latest[:-1])))


def _sums(group: np.ndarray, values: np.ndarray) -> dict[int, int]:
    names, where = np.unique(group, return_inverse=True)
    sums = np.zeros(len(names), np.int64)
    np.add.at(sums, where, values)
    return {int(name): int(total) for name, total in zip(names, sums, strict=True)}
