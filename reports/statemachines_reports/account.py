"""Account: was every message acknowledged, how many were delivered twice, and was there a reason each time (S13, L5).

Works on ranges of offsets: columns where everything was delivered once, a sweep over ranges where something was not.
"""

from __future__ import annotations

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.judge import SHOWN, STEPS, Finding, Verdict

EXCUSES = ("crash", "leader_crash", "kill", "unsubscribe")
"""Faults after which what was not reported may be delivered again."""


class Stream(msgspec.Struct, frozen=True):
    """The account of one stream in one run, in messages."""

    run: int
    key: str
    published: int
    delivered: int
    duplicates: int
    acknowledged: int


class Ranges:
    """The ranges that one kind of tell names: `index` of the rows, by (run, key, seq)."""

    def __init__(self, columns: Columns, event: str) -> None:
        told = columns.is_one_of("kind", ("tell",)) & columns.is_one_of("event", (event,))
        index = np.flatnonzero(told)
        keys = len(columns.texts["key"]) + 1
        group = columns["run"][index] * keys + columns["key"][index]
        order = np.lexsort((columns["seq"][index], group))
        self.index = index[order]
        self.group = group[order]
        self.first = columns["first"][self.index]
        self.last = columns["last"][self.index]

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
    keys = len(columns.texts["key"]) + 1
    published = Ranges(columns, "published").covered()
    delivered = Ranges(columns, "deliver")
    total, different = delivered.total(), delivered.covered()
    acknowledged = Ranges(columns, "acknowledged").covered()
    return [
        Stream(
            group // keys,
            columns.texts["key"][group % keys],
            published.get(group, 0),
            total.get(group, 0),
            total.get(group, 0) - different.get(group, 0),
            acknowledged.get(group, 0),
        )
        for group in sorted(published.keys() | total.keys() | acknowledged.keys())
    ]


def judge_acknowledged(streams: list[Stream]) -> Verdict:
    """L5: every published message was acknowledged."""
    missing = [stream for stream in streams if stream.acknowledged != stream.published]
    findings = [
        Finding(
            "acknowledged",
            stream.run,
            -1,
            f"{stream.key}: {stream.published} published, {stream.acknowledged} acknowledged",
        )
        for stream in missing[:SHOWN]
    ]
    return Verdict("acknowledged", sum(stream.published for stream in streams), len(missing), findings)


def judge_duplicates(columns: Columns, exclusive: dict[int, bool]) -> Verdict:
    """S13: between two deliveries of a message somebody was reset, expired, left or died."""
    delivered = Ranges(columns, "deliver")
    again = delivered.first <= _running_max_in_order(delivered)
    excuses = _excuses(columns)
    findings: list[Finding] = []
    wrong = 0
    for group in np.unique(delivered.group[again]):
        begin, end = np.searchsorted(delivered.group, [group, group + 1])
        for position in _unexcused(columns, delivered, slice(int(begin), int(end)), excuses):
            row = delivered.index[position]
            run = int(columns["run"][row])
            if not exclusive.get(run, True):
                continue  # in the source's mode the old owner may go on after the expiry
            wrong += 1
            stream = columns.texts["key"][columns["key"][row]]
            text = f"{stream}: {delivered.first[position]} delivered again, without a reason"
            findings.append(Finding("duplicates", run, int(columns["seq"][row]), text))
    return Verdict("duplicates", len(delivered.index), wrong, findings[:SHOWN])


def _excuses(columns: Columns) -> dict[int, np.ndarray]:
    """Run -> seqs of what may lead to a second delivery."""
    steps = columns.is_one_of("kind", STEPS)
    ended = columns.is_one_of("machine", ("borrower",)) & columns.is_one_of("dest", ("destroyed",))
    ended |= columns.is_one_of("machine", ("member",)) & columns.is_one_of("dest", ("lapsed", "gone"))
    ended |= columns.is_one_of("machine", ("leader",)) & columns.is_one_of("dest", ("resigned",))
    faults = columns.is_one_of("kind", ("fault",)) & columns.is_one_of("event", EXCUSES)
    index = np.flatnonzero((steps & ended) | faults)
    run, seq = columns["run"][index], columns["seq"][index]
    return {int(number): np.sort(seq[run == number]) for number in np.unique(run)}


def _unexcused(columns: Columns, ranges: Ranges, part: slice, excuses: dict[int, np.ndarray]) -> list[int]:
    """Positions of deliveries of a group that repeat an earlier one with no excuse in between."""
    known: list[tuple[int, int, int]] = []
    wrong = []
    for position in range(part.start, part.stop):
        first, last = int(ranges.first[position]), int(ranges.last[position])
        row = ranges.index[position]
        seq, run = int(columns["seq"][row]), int(columns["run"][row])
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
        known.append((first, last, seq))
        known.extend(reversed(above))
        if latest >= 0:
            between = excuses.get(run, np.zeros(0, np.int64))
            if np.searchsorted(between, latest) == np.searchsorted(between, seq):
                wrong.append(position)
    return wrong


def _running_max_in_order(ranges: Ranges) -> np.ndarray:
    """The highest offset delivered before, in the order of seq, within the group (-1: none)."""
    return _running_max(ranges.group, ranges.last)


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
