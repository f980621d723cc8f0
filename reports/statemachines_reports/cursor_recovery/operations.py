"""Operations: the steps and accesses of every operation at a queue, one after the other; and what they told.

An operation is an instance: it steps, asks for one access, steps with its answer, and so on.  An access lies between
its ask and the next step; what was asked last by one that died may or may not have happened.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.protocol import Segment

WRITER, READER = "cursor_recovery/writer", "cursor_recovery/reader"
MEMORY = "memory"
FREE = 0
READ_HEAD, WRITE_HEAD, LOST = "read_head", "write_head", "lost"


class Operations:
    """`row`: the rows of all operations (steps, and asks of memory), by run and instance, each in its order; `group`
    tells operations apart; `last`: it is the last row of its operation."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        steps, asks = columns.rows_of(*STEPS), columns.rows_of("ask")
        steps = steps[columns.is_one_of("machine", (WRITER, READER), steps)]
        asks = asks[columns.is_one_of("peer", (MEMORY,), asks)]
        row = np.concatenate((steps, asks))
        is_ask = np.concatenate((np.zeros(len(steps), bool), np.ones(len(asks), bool)))
        group = columns["run"][row] * (len(columns.texts["instance"]) + 1) + columns["instance"][row]
        order = np.lexsort((row, group))
        self.row, self.is_ask, self.group = row[order], is_ask[order], group[order]
        new = np.ones(len(row) + 1, bool)
        new[1:-1] = self.group[1:] != self.group[:-1]
        self.last = new[1:]
        self.end = self.row[np.flatnonzero(self.last)][np.cumsum(new[:-1]) - 1] if len(row) else self.row
        """The last row of the operation."""

    def swaps(self, *keys: str) -> np.ndarray:
        """Places in `row` where such a word is to be swapped."""
        columns = self.columns
        asked = self.is_ask & columns.is_one_of("event", ("compare_and_swap",), self.row)
        return np.asarray(np.flatnonzero(asked & columns.is_one_of("key", keys, self.row)))

    def read_swap_answers(self, places: np.ndarray) -> np.ndarray:
        """Of swaps: 1 it was done, 0 it was not, -1 nobody knows: it is the last that the operation asked."""
        followed = np.minimum(places + 1, max(len(self.row) - 1, 0))
        done = np.where(self.columns["first"][self.row[followed]] == 1, 1, 0)
        return np.asarray(np.where(self.last[places], -1, done))

    @property
    def cursors(self) -> tuple[str, ...]:
        """The state words that occur."""
        return tuple(text for text in self.columns.texts["key"] if text.endswith("/state"))


_KNOWN: WeakKeyDictionary[Columns, Operations] = WeakKeyDictionary()


def operations_of(segment: Segment) -> Operations:
    """Those of a segment, put in order once."""
    found = _KNOWN.get(segment.columns)
    if found is None:
        found = _KNOWN[segment.columns] = Operations(segment.columns)
    return found


class PositionRanges:
    """Ranges of positions, by run and where they begin: `first`..`last`, the `row` that tells; `sure`: it is known that
    the head was moved over it."""

    def __init__(self, columns: Columns, row: np.ndarray, last: np.ndarray, sure: np.ndarray) -> None:
        run, first = columns["run"][row], columns["first"][row]
        order = np.lexsort((~sure, first, run))
        self.row, self.run, self.first = row[order], run[order], first[order]
        self.last, self.sure = last[order], sure[order]

    def only(self, wanted: np.ndarray) -> PositionRanges:
        """Some of them."""
        some = object.__new__(PositionRanges)
        some.row, some.run, some.first = self.row[wanted], self.run[wanted], self.first[wanted]
        some.last, some.sure = self.last[wanted], self.sure[wanted]
        return some


def tells_of(columns: Columns, *events: str) -> np.ndarray:
    """Rows in which operations told something."""
    rows = columns.rows_of("tell", event=events)
    return np.asarray(rows[columns.is_one_of("machine", (WRITER, READER), rows)])


def find_passed_ranges(segment: Segment, head: str, *events: str) -> PositionRanges:
    """What the head was moved over: what operations told, and what may have been moved by those that died over it.

    A swap that nobody answered was done if a block that somebody moved over begins where it ends, and none where it
    begins; or if nothing else reaches so far.
    """
    columns, operations = segment.columns, operations_of(segment)
    told = tells_of(columns, *events)
    swaps = operations.swaps(head)
    open_ = operations.row[swaps[operations.read_swap_answers(swaps) < 0]]
    row = np.concatenate((told, open_))
    last = np.concatenate((columns["last"][told], columns["last"][open_] - 1))
    sure = np.concatenate((np.ones(len(told), bool), np.zeros(len(open_), bool)))
    ranges = PositionRanges(columns, row, last, sure)
    return ranges.only(ranges.sure | _follow(ranges))


def _follow(ranges: PositionRanges) -> np.ndarray:
    """Of those that are not sure, the ones that were done."""
    done = np.zeros(len(ranges.row), bool)
    starts = {
        (int(run), int(first)) for run, first in zip(ranges.run[ranges.sure], ranges.first[ranges.sure], strict=True)
    }
    most: dict[int, int] = {}
    for run, last in zip(ranges.run[ranges.sure], ranges.last[ranges.sure], strict=True):
        most[int(run)] = max(most.get(int(run), -1), int(last))
    for place in np.flatnonzero(~ranges.sure):
        run, first, last = int(ranges.run[place]), int(ranges.first[place]), int(ranges.last[place])
        leads_on = (run, last + 1) in starts or last > most.get(run, -1)
        if (run, first) not in starts and leads_on:
            done[place] = True
            starts.add((run, first))
            most[run] = max(most.get(run, -1), last)
    return done
