"""Messages: what was acknowledged is taken and not skipped (ACK), comes once and in order (ONCE, ORDER), and is what
was written (INTEG, KEPT)."""

from __future__ import annotations

import numpy as np

from statemachines_reports.columns import STEPS, Columns
from statemachines_reports.cursor_recovery.operations import READER, WRITER, PositionRanges, tells_of
from statemachines_reports.cursor_recovery.positions import find_consumed_ranges, find_reserved_ranges
from statemachines_reports.protocol import CheckVerdict, Segment, verdict

DELIVERED, WRITTEN = ("delivered",), ("written",)


def find_ended_rows(columns: Columns, event: str, outcomes: tuple[str, ...]) -> np.ndarray:
    """Rows of operations that were told so."""
    rows = tells_of(columns, event)
    return np.asarray(rows[columns.is_one_of("key", outcomes, rows)])


def judge_acknowledged(segment: Segment) -> CheckVerdict:
    """No reader skipped what was acknowledged, and what it moved over begins with it."""
    columns = segment.columns
    written = find_ended_rows(columns, "write_done", WRITTEN)
    run, position = columns["run"][written], columns["first"][written]
    told = tells_of(columns, "skipped")
    skipped = PositionRanges(columns, told, columns["last"][told], np.ones(len(told), bool))
    over = find_consumed_ranges(segment)
    at = _range_at(columns, over, run, position)
    begins = (at < 0) | (over.first[at] == position) if len(over.run) else np.ones(len(written), bool)
    wrong = (_range_at(columns, skipped, run, position) >= 0) | ~begins

    def describe(row: int) -> str:
        return f"the block at {columns['first'][row]} was acknowledged, and a reader moved over it without taking it"

    return verdict(columns, len(written), written[wrong], describe)


def _range_at(columns: Columns, ranges: PositionRanges, run: np.ndarray, position: np.ndarray) -> np.ndarray:
    """The range that each position lies in; -1: in none."""
    if not len(ranges.run):
        return np.full(len(run), -1)
    lift = _lift(columns)
    place = np.searchsorted(ranges.run * lift + ranges.first, run * lift + position, "right") - 1
    at = np.maximum(place, 0)
    within = (place >= 0) & (ranges.run[at] == run) & (ranges.last[at] >= position)
    return np.where(within, at, -1)


def judge_deliveries(segment: Segment) -> CheckVerdict:
    """Nothing comes twice, and to one life of a reader positions come in rising order."""
    columns = segment.columns
    came = find_ended_rows(columns, "read_done", DELIVERED)
    run, position = columns["run"][came], columns["first"][came]
    order = np.lexsort((came, position, run))
    twice = order[1:][(run[order][1:] == run[order][:-1]) & (position[order][1:] == position[order][:-1])]
    life = lives_of(columns, came)
    order = np.lexsort((came, life, run))
    same = (run[order][1:] == run[order][:-1]) & (life[order][1:] == life[order][:-1])
    back = order[1:][same & (position[order][1:] < position[order][:-1])]
    wrong = np.unique(np.concatenate((twice, back)))

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} gets the block at {columns['first'][row]}, again or after a later one"

    return verdict(columns, len(came), came[wrong], describe)


def lives_of(columns: Columns, rows: np.ndarray) -> np.ndarray:
    """A number for the life of the process that each row is of: `reader-1~2/7` is of the life `reader-1~2`."""
    numbers: dict[str, int] = {}
    texts = [text.partition("/")[0] for text in columns.texts["instance"]]
    codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts] + [-1])
    return np.asarray(codes[columns["instance"][rows]])


def judge_contents(segment: Segment) -> CheckVerdict:
    """What comes from a position is, byte for byte, what the operation wrote that had reserved it."""
    columns = segment.columns
    blocks = find_reserved_ranges(segment)
    lift = _lift(columns)
    place = blocks.run * lift + blocks.first
    came = find_ended_rows(columns, "read_done", DELIVERED)
    wanted = columns["run"][came] * lift + columns["first"][came]
    at = np.minimum(np.searchsorted(place, wanted), max(len(place) - 1, 0))
    if not len(place):
        return verdict(columns, len(came), came, lambda row: f"nobody wrote at {columns['first'][row]}")
    written = _content(columns, columns.rows_of(*STEPS, event=("write",)), WRITER)
    copied = columns.rows_of(*STEPS, event=("copied",))
    read = _content(columns, copied[columns.is_one_of("source", ("7_copy_data",), copied)], READER)
    codes = len(columns.texts["instance"]) + 1
    writer = columns["run"][blocks.row[at]] * codes + columns["instance"][blocks.row[at]]
    reader = columns["run"][came] * codes + columns["instance"][came]
    there = place[at] == wanted
    same = np.array(
        [written.get(w, -2) == read.get(r, -3) for w, r in zip(writer.tolist(), reader.tolist(), strict=True)], bool
    )
    wrong = came[~(there & same)] if len(came) else came

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} gets what nobody wrote at {columns['first'][row]}"

    return verdict(columns, len(came), wrong, describe)


def _content(columns: Columns, rows: np.ndarray, machine: str) -> dict[int, int]:
    """Operation -> what it wrote or copied last, as a code of the column."""
    rows = rows[columns.is_one_of("machine", (machine,), rows)]
    group = columns["run"][rows] * (len(columns.texts["instance"]) + 1) + columns["instance"][rows]
    return dict(zip(group.tolist(), columns["key"][rows].tolist(), strict=True))


def _lift(columns: Columns) -> int:
    """More than any position, so that one number stands for run and position.  A position that leaves no room for the
    run is wrong elsewhere: no block is so far behind another."""
    most = int(max(columns["first"].max(initial=0), columns["last"].max(initial=0))) + 2
    return min(most, 2**62 // (int(columns["run"].max(initial=0)) + 1))
