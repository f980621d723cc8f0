"""Deaths: in which state of which operation a process died, what became of its block, and when its cursor was free."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.cursor_recovery.cursors import Holds
from statemachines_reports.cursor_recovery.messages import DELIVERED, find_ended_rows
from statemachines_reports.cursor_recovery.operations import FREE, PositionRanges, operations_of, tells_of
from statemachines_reports.cursor_recovery.positions import find_consumed_ranges, find_reserved_ranges
from statemachines_reports.protocol import Latency, Segment

DEATHS = ("crash", "cut", "kill", "lost_disk")


class Death(msgspec.Struct, frozen=True):
    """One process that died within an operation: the machine, the state (the access it was about to make), and what
    became of its block: `nothing` (none was reserved or taken), `delivered`, `skipped`, `lost`, or `unread` so far."""

    run: int
    machine: str
    state: str
    outcome: str


def find_deaths(segment: Segment) -> Iterator[msgspec.Struct]:
    """Every death, and how long the cursor of the dead stayed taken."""
    columns, operations = segment.columns, operations_of(segment)
    if not len(operations.row):
        return
    faults, fates, holds = _faults(columns), Fates(segment), Holds(segment)
    held = {int(operations.group[at]): place for place, at in enumerate(holds.operation.tolist())}
    freed = _freed(segment)
    last = np.flatnonzero(operations.last)
    steps = np.where(operations.is_ask[last], last - 1, last)
    for place in np.flatnonzero(_is_open(segment, last)):
        row, group = int(operations.row[steps[place]]), int(operations.group[last[place]])
        run = int(columns["run"][row])
        fault = _first_after(faults.get((run, int(columns["node"][row]))), row)
        if fault is None:
            continue  # it was amid an operation when the run ended
        yield Death(run, columns.text("machine", row), columns.text("dest", row), fates.of(group))
        hold = held.get(group)
        if hold is None:
            continue
        free = _first_after(freed.get((run, int(holds.cursor[hold]))), fault)
        if free is not None:
            waited_ns = int(columns["t_ns"][free] - columns["t_ns"][fault])
            yield Latency("reclaim", run, max(waited_ns, 0), columns.text("event", fault))


def _is_open(segment: Segment, last: np.ndarray) -> np.ndarray:
    """Which operations had not ended when their last row was made."""
    columns, operations = segment.columns, operations_of(segment)
    done = tells_of(columns, "write_done", "read_done")
    codes = len(columns.texts["instance"]) + 1
    groups = columns["run"][done] * codes + columns["instance"][done]
    return ~np.isin(operations.group[last], groups)


def _faults(columns: Columns) -> dict[tuple[int, int], np.ndarray]:
    """(run, node) -> the rows in which it died."""
    rows = columns.rows_of("fault", event=DEATHS)
    return _grouped(columns["run"][rows], columns["node"][rows], rows)


def _freed(segment: Segment) -> dict[tuple[int, int], np.ndarray]:
    """(run, cursor) -> the rows that learn that it was freed."""
    columns, operations = segment.columns, operations_of(segment)
    swaps = operations.swaps(*operations.cursors)
    swaps = swaps[(columns["last"][operations.row[swaps]] == FREE) & (operations.read_swap_answers(swaps) == 1)]
    asked = operations.row[swaps]
    return _grouped(columns["run"][asked], columns["key"][asked], operations.row[swaps + 1])


def _grouped(run: np.ndarray, code: np.ndarray, rows: np.ndarray) -> dict[tuple[int, int], np.ndarray]:
    found: dict[tuple[int, int], list[int]] = {}
    for key, row in zip(zip(run.tolist(), code.tolist(), strict=True), rows.tolist(), strict=True):
        found.setdefault(key, []).append(row)
    return {key: np.sort(np.array(some)) for key, some in found.items()}


def _first_after(rows: np.ndarray | None, row: int) -> int | None:
    if rows is None:
        return None
    place = int(np.searchsorted(rows, row, "right"))
    return int(rows[place]) if place < len(rows) else None


class Fates:
    """What became of the block of each operation, by its number among the operations."""

    def __init__(self, segment: Segment) -> None:
        columns = segment.columns
        came = find_ended_rows(columns, "read_done", DELIVERED)
        delivered = set(zip(columns["run"][came].tolist(), columns["first"][came].tolist(), strict=True))
        blocks, over = find_reserved_ranges(segment), find_consumed_ranges(segment)
        skips = columns.is_one_of("event", ("skipped",), over.row)
        self._of = dict.fromkeys(_groups(columns, blocks), "unread")
        self._blocks = {
            (run, first): group
            for group, run, first in zip(
                _groups(columns, blocks), blocks.run.tolist(), blocks.first.tolist(), strict=True
            )
        }
        for place, group in zip(self._blocks, self._blocks.values(), strict=True):
            if place in delivered:
                self._of[group] = "delivered"
        self._lose(columns, over.only(~skips), delivered)
        self._skip(blocks, over.only(skips))

    def of(self, group: int) -> str:
        """Of an operation that died."""
        return self._of.get(group, "nothing")

    def _lose(self, columns: Columns, taken: PositionRanges, delivered: set[tuple[int, int]]) -> None:
        """A block that was taken and never came: for who wrote it, and who took it."""
        for group, run, first in zip(_groups(columns, taken), taken.run.tolist(), taken.first.tolist(), strict=True):
            if (run, first) not in delivered:
                self._of[group] = "lost"
                if (run, first) in self._blocks:
                    self._of[self._blocks[run, first]] = "lost"

    def _skip(self, blocks: PositionRanges, skipped: PositionRanges) -> None:
        """A skipped range may hold several blocks."""
        lift = int(blocks.last.max(initial=0)) + 2
        places = blocks.run * lift + blocks.first
        for run, first, last in zip(skipped.run.tolist(), skipped.first.tolist(), skipped.last.tolist(), strict=True):
            begin, end = np.searchsorted(places, (run * lift + first, run * lift + last + 1))
            for place in range(int(begin), int(end)):
                self._of[self._blocks[run, int(blocks.first[place])]] = "skipped"


def _groups(columns: Columns, ranges: PositionRanges) -> list[int]:
    """The operation that each is of."""
    codes = len(columns.texts["instance"]) + 1
    groups: list[int] = (ranges.run * codes + columns["instance"][ranges.row]).tolist()
    return groups
