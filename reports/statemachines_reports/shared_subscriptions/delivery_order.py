"""Delivery order: a session delivers a stream in order, under its grant, and acknowledges what it has delivered.

A session owns a stream from one install to the next.  What it delivers begins where the install says, and goes on
without a hole.  Where an application gives a message back (`nack`) the session goes back to it, and passes over what is
acknowledged behind it.  Where the order of the group is relaxed (an install says up to where something may be
acknowledged already) the session goes on, and hands that message over alone, later.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

import numpy as np

from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.neutral.row_groups import RowGroups, group_rows
from statemachines_reports.protocol import CheckVerdict, Segment, verdict
from statemachines_reports.shared_subscriptions.names import SESSION

WORDS: Final = {
    1: "is delivered, and was never installed",
    2: "is delivered out of order",
    3: "is of another grant than was installed",
    4: "is acknowledged before it is delivered",
}


def judge_order(segment: Segment) -> CheckVerdict:
    """What sessions deliver and acknowledge, against what was installed."""
    columns = segment.columns
    rows = np.sort(
        np.concatenate(
            (
                columns.rows_of("step", event=("install", "nack")),
                columns.rows_of("tell", event=("deliver", "acknowledged")),
            )
        )
    )
    rows = rows[columns.is_one_of("machine", (SESSION,), rows)]
    rows = rows[np.isin(columns["run"][rows], columns["run"][columns.rows_of(*STEPS)])]
    groups = group_rows(columns, rows, ("key", "instance", "run"))
    rows = groups.rows
    installs = columns.is_one_of("event", ("install",), rows)
    delivers = columns.is_one_of("event", ("deliver",), rows)
    nacks = columns.is_one_of("event", ("nack",), rows)
    first, last, grant = (columns[name][rows] for name in ("first", "last", "grant"))
    install = groups.find_latest(installs)
    reached = np.where(installs, first - 1, last)
    latest = groups.find_latest(installs | delivers)
    before = np.full(len(rows), -1)
    before[1:] = np.where(groups.same[1:], latest[:-1], -1)
    wrong = np.zeros(len(rows), np.int64)
    wrong[delivers & (first != reached[before] + 1)] = 2
    early = (first < first[install]) | (last > reached[latest])
    wrong[~installs & ~delivers & early] = 4
    wrong[~installs & (grant != grant[install])] = 3
    wrong[~installs & (install < 0)] = 1
    for begin, end in _with_returned(groups, nacks | (installs & (last >= 0))):
        wrong[begin:end] = _follow(columns, rows[begin:end])
    words = dict(zip(rows[wrong > 0].tolist(), wrong[wrong > 0].tolist(), strict=True))

    def describe(row: int) -> str:
        span = f"{columns['first'][row]} to {columns['last'][row]}"
        return f"{columns.text('instance', row)}: {span} of {columns.text('key', row)} {WORDS[words[row]]}"

    return verdict(columns, int((~installs & ~nacks).sum()), np.array(sorted(words), np.int64), describe)


def _with_returned(groups: RowGroups, nacks: np.ndarray) -> list[tuple[int, int]]:
    """Where groups in which something was given back begin and end."""
    begins = np.flatnonzero(np.concatenate(([True], ~groups.same[1:]))) if len(nacks) else np.zeros(0, np.int64)
    ends = np.append(begins[1:], len(nacks))
    places = np.unique(np.searchsorted(begins, np.flatnonzero(nacks), side="right") - 1)
    return list(zip(begins[places].tolist(), ends[places].tolist(), strict=True))


def _follow(columns: Columns, rows: np.ndarray) -> list[int]:
    """What is wrong with each row (0: nothing) of a stream of a session whose application gave something back."""
    wrong: list[int] = []
    reading: _Reading | None = None
    events = [columns.text("event", row) for row in rows.tolist()]
    numbers = (columns[name][rows].tolist() for name in ("grant", "first", "last"))
    for event, grant, first, last in zip(events, *numbers, strict=True):
        if event == "install":
            reading = _Reading(grant, first) if last < 0 else _RelaxedReading(grant, first, last)
            wrong.append(0)
        elif event == "nack":
            if reading is not None and reading.grant == grant:
                reading.give_back(first)
            wrong.append(0)
        elif reading is None:
            wrong.append(1)
        elif event == "deliver":
            in_order = reading.deliver(first, last)
            wrong.append(3 if grant != reading.grant else 0 if in_order else 2)
        else:
            was_delivered = reading.acknowledge(first, last)
            wrong.append(3 if grant != reading.grant else 0 if was_delivered else 4)
    return wrong


class _Reading:
    """A stream under one grant: `next` is delivered next, all below `handed` was delivered."""

    def __init__(self, grant: int, begin: int) -> None:
        self.grant = grant
        self.begin = self.next = self.handed = begin
        self._acked: list[tuple[int, int]] = []

    def give_back(self, offset: int) -> None:
        """The stream goes back to it."""
        self.next = min(self.next, offset)

    def deliver(self, first: int, last: int) -> bool:
        """Whether it is next: what is passed over was delivered before, and acknowledged."""
        is_next = first == self.next or (self.next < first <= self.handed and self._is_acked(self.next, first))
        self.next = last + 1
        self.handed = max(self.handed, self.next)
        return is_next

    def acknowledge(self, first: int, last: int) -> bool:
        """Whether it was delivered."""
        insort(self._acked, (first, last))
        return first >= self.begin and last < self.handed

    def _is_acked(self, begin: int, end: int) -> bool:
        """All from `begin` up to `end`, without that."""
        for first, last in self._acked:
            if first <= begin <= last:
                begin = last + 1
        return begin >= end


class _RelaxedReading(_Reading):
    """The same in relaxed order: before `known` anything may have been acknowledged already; `returned`: what was given
    back, and comes alone."""

    def __init__(self, grant: int, begin: int, known: int) -> None:
        super().__init__(grant, begin)
        self._known = known
        self._returned: set[int] = set()

    def give_back(self, offset: int) -> None:
        self._returned.add(offset)

    def deliver(self, first: int, last: int) -> bool:
        if first == last and first in self._returned:
            self._returned.discard(first)
            return True
        is_next = first == self.next or self.next < first <= self._known
        self.next = self.handed = last + 1
        return is_next
