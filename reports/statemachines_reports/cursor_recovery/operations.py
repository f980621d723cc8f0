"""Operations: the steps and accesses of every operation at a queue, one after the other; and what they told.

An operation is an instance: it steps, asks for one access, steps with its answer, and so on.  An access lies between
its ask and the next step; what was asked last by one that died may or may not have happened.

Positions: every byte of the queue is reserved once, and passed once by a reader (conservation; ONCE, BOUND).

Cursors: who surely held which cursor, from when until when (EXCL).

A cursor is surely held from the step that learns that it was taken until its owner asks to give it back, or takes its
last step.  Those spans of one cursor never overlap, whoever's clock they are stamped by, since all share one.

Messages: what was acknowledged is taken and not skipped (ACK), comes once and in order (ONCE, ORDER), and is what
was written (INTEG, KEPT).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from statemachines_reports.columns import STEPS, Columns, find_overlaps
from statemachines_reports.protocol import CheckVerdict, Parameters, Segment, find_setting, verdict

WRITER, READER = "cursor_recovery/writer", "cursor_recovery/reader"
MEMORY = "memory"
FREE = 0
READ_HEAD, WRITE_HEAD, LOST = "read_head", "write_head", "lost"


class Operations:
    """`row`: the rows of all operations (steps, and asks of memory), by run and instance, each in its order; `group`
    tells operations apart; `last`: it is the last row of its operation."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        steps, asks = columns.rows_of(*STEPS, machine=(WRITER, READER)), columns.rows_of("ask", peer=(MEMORY,))
        row = np.concatenate((steps, asks))
        is_ask = np.concatenate((np.zeros(len(steps), bool), np.ones(len(asks), bool)))
        group = columns.groups("instance", row)
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


def operations_of(columns: Columns) -> Operations:
    """Those of these columns, put in order once."""
    return columns.keep((Operations,), lambda: Operations(columns))


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
    return columns.rows_of("tell", event=events, machine=(WRITER, READER))


def find_passed_ranges(segment: Segment, head: str, *events: str) -> PositionRanges:
    """What the head was moved over: what operations told, and what may have been moved by those that died over it.

    A swap that nobody answered was done if a block that somebody moved over begins where it ends, and none where it
    begins; or if nothing else reaches so far.
    """
    columns, operations = segment.columns, operations_of(segment.columns)
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
    columns, operations = segment.columns, operations_of(segment.columns)
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


def find_in_plan(parameters: Parameters, name: str) -> Any:
    """What the section of the scenario says, of a real run its plan; None: nothing."""
    return find_setting(parameters.get("settings", parameters), name)


def find_capacities(segment: Segment, runs: np.ndarray) -> np.ndarray:
    """The capacity of the queue of each of these runs, as its settings or its processes say; 0: nobody does."""
    columns = segment.columns
    attached = columns.rows_of("tell", event=("attached",))
    told = dict(zip(columns["run"][attached].tolist(), columns["first"][attached].tolist(), strict=True))
    known = {run: find_in_plan(segment.parameters(run), "capacity") for run in np.unique(runs).tolist()}
    found = [known[run] if isinstance(known[run], int) else told.get(run, 0) for run in runs.tolist()]
    return np.array(found, np.int64)


class Holds:
    """Spans in which operations surely held cursors: `run`, `cursor` (a code of the column key), rows `begin` and
    `end`; `operation`: its place among the operations; `given`: it asked to give it back."""

    def __init__(self, segment: Segment) -> None:
        columns, operations = segment.columns, operations_of(segment.columns)
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


DELIVERED, WRITTEN = ("delivered",), ("written",)


def find_ended_rows(columns: Columns, event: str, outcomes: tuple[str, ...]) -> np.ndarray:
    """Rows of operations that were told so."""
    return columns.rows_of("tell", event=(event,), machine=(WRITER, READER), key=outcomes)


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
    written = _content(columns, columns.rows_of(*STEPS, event=("write",), machine=(WRITER,)))
    read = _content(columns, columns.rows_of(*STEPS, event=("copied",), source=("7_copy_data",), machine=(READER,)))
    writer, reader = columns.groups("instance", blocks.row[at]), columns.groups("instance", came)
    there = place[at] == wanted
    same = np.array(
        [written.get(w, -2) == read.get(r, -3) for w, r in zip(writer.tolist(), reader.tolist(), strict=True)], bool
    )
    wrong = came[~(there & same)] if len(came) else came

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} gets what nobody wrote at {columns['first'][row]}"

    return verdict(columns, len(came), wrong, describe)


def _content(columns: Columns, rows: np.ndarray) -> dict[int, int]:
    """Operation -> what it wrote or copied last, as a code of the column."""
    return dict(zip(columns.groups("instance", rows).tolist(), columns["key"][rows].tolist(), strict=True))


def _lift(columns: Columns) -> int:
    """More than any position, so that one number stands for run and position.  A position that leaves no room for the
    run is wrong elsewhere: no block is so far behind another."""
    most = int(max(columns["first"].max(initial=0), columns["last"].max(initial=0))) + 2
    return min(most, 2**62 // (int(columns["run"].max(initial=0)) + 1))
