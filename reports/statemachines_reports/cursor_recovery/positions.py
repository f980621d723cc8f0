"""Positions: every byte of the queue is reserved once, and passed once by a reader (conservation; ONCE, BOUND)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from statemachines_reports.cursor_recovery.operations import (
    READ_HEAD,
    WRITE_HEAD,
    PositionRanges,
    find_passed_ranges,
    operations_of,
)
from statemachines_reports.protocol import CheckVerdict, Segment


def judge_reserved(segment: Segment) -> CheckVerdict:
    """Each reserved block begins where the one before it ends."""
    return _tiles(segment, find_reserved_ranges(segment), "reserved")


def judge_passed(segment: Segment) -> CheckVerdict:
    """The same of what readers took or skipped."""
    return _tiles(segment, find_consumed_ranges(segment), "taken or skipped")


def find_reserved_ranges(segment: Segment) -> PositionRanges:
    """The blocks of a segment."""
    return find_passed_ranges(segment, WRITE_HEAD, "reserved")


def find_consumed_ranges(segment: Segment) -> PositionRanges:
    """What the read head was moved over.  A block whose copy was not whole is told as taken, then as skipped."""
    found = find_passed_ranges(segment, READ_HEAD, "taken", "skipped")
    again = np.zeros(len(found.row), bool)
    columns = segment.columns
    instance = columns["instance"][found.row]
    same = (
        (found.first[1:] == found.first[:-1]) & (found.last[1:] == found.last[:-1]) & (found.run[1:] == found.run[:-1])
    )
    told_skipped = columns.is_one_of("event", ("skipped",), found.row)
    again[1:] = same & (instance[1:] == instance[:-1]) & told_skipped[1:] & ~told_skipped[:-1]
    return found.only(~again)


def _tiles(segment: Segment, ranges: PositionRanges, what: str) -> CheckVerdict:
    run, first, last = ranges.run, ranges.first, ranges.last
    before = np.full(len(run), -1, np.int64)
    before[1:] = np.where(run[1:] == run[:-1], last[:-1], -1)
    wrong = np.flatnonzero(first != before + 1)

    def describe(place: int) -> str:
        at = wrong[place]
        begin, end = before[at] + 1, first[at]
        if end > begin:
            return f"bytes {begin}..{end - 1} are not {what}, and {end} is"
        return f"{end}..{last[at]} is {what}, and so are bytes before {begin} already"

    return CheckVerdict(len(run), run[wrong], segment.columns["seq"][ranges.row[wrong]], describe)


def find_absent(segment: Segment) -> Iterator[tuple[int, str]]:
    """Of merged logs, which may not be all: (run, who) of positions that no log accounts for."""
    written, read = find_reserved_ranges(segment), find_consumed_ranges(segment)
    capacity = find_capacities(segment, np.array([run for run, _ in segment.columns.runs()], np.int64)).tolist()
    for (run, _), size in zip(segment.columns.runs(), capacity, strict=True):
        if "nodes" not in segment.parameters(run):
            continue
        ends = []
        for ranges, what in ((written, "wrote"), (read, "read")):
            places = ranges.run == run
            hole, end = _first_hole(ranges.first[places].tolist(), ranges.last[places].tolist())
            ends.append(end)
            if hole is not None:
                yield run, f"who {what} at {hole}"
        if ends[1] > ends[0]:
            yield run, f"who wrote at {ends[0]}"
        if size and ends[0] > ends[1] + size:
            yield run, f"who read at {ends[1]}"


def _first_hole(first: list[int], last: list[int]) -> tuple[int | None, int]:
    """Of ranges that are sorted: where a hole begins (None: nowhere), and the first position behind all."""
    hole, end = None, 0
    for begin, until in zip(first, last, strict=True):
        if begin > end and hole is None:
            hole = end
        end = max(end, until + 1)
    return hole, end


def judge_distance(segment: Segment) -> CheckVerdict:
    """No block is reserved further than a capacity beyond the read head (BOUND).

    The read head is at most where the swaps that were asked until then would have moved it.
    """
    columns, operations = segment.columns, operations_of(segment)
    blocks = find_reserved_ranges(segment)
    blocks = blocks.only(blocks.sure)
    asked = np.sort(operations.row[operations.swaps(READ_HEAD)])
    run = columns["run"]
    lift = int(columns["last"].max(initial=0)) + 1
    reached = np.maximum.accumulate(run[asked] * lift + columns["last"][asked]) if len(asked) else asked
    place = np.searchsorted(asked, blocks.row) - 1
    furthest = np.where(place >= 0, reached[np.maximum(place, 0)] if len(asked) else 0, 0) - blocks.run * lift
    furthest = np.maximum(furthest, 0)
    capacity = find_capacities(segment, blocks.run)
    wrong = np.flatnonzero((capacity > 0) & (blocks.last + 1 > furthest + capacity))

    def describe(number: int) -> str:
        at = wrong[number]
        block = f"{blocks.first[at]}..{blocks.last[at]}"
        return f"{block} is reserved; the read head is at most {furthest[at]}, the capacity {capacity[at]}"

    return CheckVerdict(len(blocks.run), blocks.run[wrong], columns["seq"][blocks.row[wrong]], describe)


def find_capacities(segment: Segment, runs: np.ndarray) -> np.ndarray:
    """The capacity of the queue of each of these runs, as its settings or its processes say; 0: nobody does."""
    columns = segment.columns
    attached = columns.rows_of("tell", event=("attached",))
    known = dict(zip(columns["run"][attached].tolist(), columns["first"][attached].tolist(), strict=True))
    for run in np.unique(runs).tolist():
        parameters = segment.parameters(run)
        settings = parameters.get("settings", parameters)
        if isinstance(settings, dict) and isinstance(settings.get("capacity"), int):
            known[run] = settings["capacity"]
    return np.array([known.get(run, 0) for run in runs.tolist()], np.int64)
