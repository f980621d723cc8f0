"""Words: what an operation reads from the memory is what was written there last.

An access lies between its request and the step that takes its answer.  One that has no answer may lie anywhere behind
its request, or was never made.  A read is wrong if no write of its value can be the latest one.

Requests: in each of its states an operation asks for one access, of the cursor that it looks at or has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from statemachines.cursor_recovery.memory import HEADER
from statemachines_reports.columns import STEPS, Segment
from statemachines_reports.cursor_recovery.operations import READER, WRITER, find_capacities, operations_of
from statemachines_reports.protocol import CheckVerdict, verdict

BOTH = {
    "1_load_cursor": "load own/N/state",
    "1_take_cursor": "compare_and_swap own/N/state",
    "1_clear_position": "store own/N/position",
    "2_load_read_head": "load read_head",
    "2_load_write_head": "load write_head",
    "3_check_cursor": "load other/N/state",
    "3_check_position": "load other/N/position",
    "8_release": "compare_and_swap own/N/state",
    "r_load_lock": "load lock/N",
    "r_load_life": "load incarnation/N",
    "r_lost_add": "compare_and_swap lost",
    "r_lost_count": "load lost",
    "r_lost_head": "load read_head",
    "r_lost_messages": "load read/N/messages",
    "r_lost_position": "load read/N/position",
    "r_reclaim": "compare_and_swap any/N/state",
}
ACCESSES = {
    READER: BOTH | {
        "3_load_size": "load data/N",
        "3_load_messages": "load data/N",
        "3_load_checksum": "load data/N",
        "3_load_commit_low": "load data/N",
        "3_load_commit_high": "load data/N",
        "3_scan_data": "copy_out",
        "3_skip": "compare_and_swap read_head",
        "4_give_back": "compare_and_swap own/N/state",
        "5_own_before_position": "load own/N/state",
        "5_set_messages": "store read/N/messages",
        "5_set_position": "store own/N/position",
        "6_move_head": "compare_and_swap read_head",
        "6_own_before_head": "load own/N/state",
        "7_copy_data": "copy_out",
        "7_own_after_copy": "load own/N/state",
    },
    WRITER: BOTH | {
        "3_give_back": "compare_and_swap own/N/state",
        "4_own_before_position": "load own/N/state",
        "4_set_position": "store own/N/position",
        "5_move_head": "compare_and_swap write_head",
        "5_own_before_head": "load own/N/state",
        "6_store_size": "store data/N",
        "6_store_checksum": "store data/N",
        "6_store_commit_low": "store data/N",
        "6_store_commit_high": "store data/N",
        "7_copy_data": "copy_in",
    },
}  # fmt: skip
"""Machine -> state -> the request that it makes there, and its key; N: a number, own, other, any: a pool."""
POOLS = {READER: ("read", "write"), WRITER: ("write", "read")}
"""Machine -> the pool of its own cursor, and the other one."""
COPIES = ("copy_in", "copy_out")
"""Requests whose key is no word."""
VALUES = (
    ("5_move_head", "4_set_position", "first", 0),
    ("6_move_head", "5_set_position", "first", 0),
    ("7_copy_data", "4_set_position", "first", HEADER),
    ("7_copy_data", "5_set_position", "first", HEADER),
    ("3_give_back", "1_take_cursor", "last", 0),
    ("4_give_back", "1_take_cursor", "last", 0),
    ("8_release", "1_take_cursor", "last", 0),
)
"""In this state the `first` of the request is what the request of that state had in a column, and so much more."""
CHOICES = {"own": "1_load_cursor", "other": "3_check_cursor"}
"""Where the cursor of a pool is chosen: until the next choice all accesses are of that one."""


def judge_requests(segment: Segment) -> CheckVerdict:
    """What each operation asks for in each of its states."""
    columns, operations = segment.columns, operations_of(segment.columns)
    places = np.flatnonzero(operations.is_ask[1:] & ~operations.is_ask[:-1]) + 1
    places = places[operations.group[places] == operations.group[places - 1]]
    asks, steps, group = operations.row[places], operations.row[places - 1], operations.group[places]
    keys = [*columns.texts["key"], ""]
    shapes = [re.sub(r"\d+", "N", key) if "/" in key else key for key in keys]
    number = np.array([int(re.sub(r"[^0-9]+", "", key)[:12] or -1) if "/" in key else -1 for key in keys])
    number = number[columns["key"][asks]]
    is_right = np.ones(len(places), bool)
    for machine, accesses in ACCESSES.items():
        pools = dict(zip(("own", "other"), POOLS[machine], strict=True))
        of_machine = np.flatnonzero(columns.is_one_of("machine", (machine,), steps))
        latest = {
            pool: _find_latest(group, columns.is_one_of("dest", (state,), steps)) for pool, state in CHOICES.items()
        }
        for state, access in accesses.items():
            here = of_machine[columns.is_one_of("dest", (state,), steps[of_machine])]
            event, _, shape = access.partition(" ")
            pool, _, rest = shape.partition("/")
            named = pools.values() if pool == "any" else [pools.get(pool, pool)]
            wanted = {f"{one}/{rest}" if rest else one for one in named}
            fits = np.array([one in wanted for one in shapes])[columns["key"][asks[here]]] | (event in COPIES)
            is_right[here] &= fits & columns.is_one_of("event", (event,), asks[here])
            if pool in latest:
                at = latest[pool][here]
                is_right[here] &= (at < 0) | (number[at] == number[here])
    for state, before, column, more in VALUES:
        here = np.flatnonzero(columns.is_one_of("dest", (state,), steps))
        at = _find_latest(group, columns.is_one_of("dest", (before,), steps))[here]
        is_right[here] &= (at < 0) | (columns["first"][asks[here]] == columns[column][asks[at]] + more)
    is_right &= _is_what_it_writes(segment, asks)

    def describe(row: int) -> str:
        what = f"{columns.text('instance', row)} asks for {columns.text('event', row)} {columns.text('key', row)}"
        return f"{what}, and its state for another access"

    return verdict(columns, len(asks), np.sort(asks[~is_right]), describe)


def _find_latest(group: np.ndarray, marked: np.ndarray) -> np.ndarray:
    """The latest place that is marked, up to each place and in its group; -1: there is none."""
    latest = np.maximum.accumulate(np.where(marked, np.arange(len(group)), -1))
    return np.where((latest >= 0) & (group[latest] == group), latest, -1)


def _is_what_it_writes(segment: Segment, asks: np.ndarray) -> np.ndarray:
    """Whether each request, if it copies data in, copies what its operation was called with."""
    columns = segment.columns
    writes = columns.rows_of(*STEPS, event=("write",))
    is_copy = columns.is_one_of("event", ("copy_in",), asks)
    called, wanted = columns.groups("instance", writes), columns.groups("instance", asks)
    content = dict(zip(called.tolist(), columns["key"][writes].tolist(), strict=True))
    data = columns["key"][asks].tolist()
    fits = [content.get(one, own) == own for one, own in zip(wanted.tolist(), data, strict=True)]
    return np.asarray(~is_copy | np.array(fits, bool))


CELL = 4
DATA, POSITION = "data/", "/position"
CELL_KEY = re.compile(r"data/[0-9]{1,12}")
FOREIGN = ("lock/", "incarnation/")
"""Words that change while no operation runs: when a process attaches, or dies."""
NOWHERE, EMPTY, NEVER = -1, 0, -2
"""What a position begins with, and any other word; a row before all."""


class Accesses(NamedTuple):
    """`word`: a number of the word in its run; `value`: what was read or written; `begin`, `end`: the rows of the
    request and of the answer."""

    word: np.ndarray
    value: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    def only(self, wanted: np.ndarray) -> Accesses:
        """Some of them."""
        return Accesses(*(one[wanted] for one in self))


class WordHistory:
    """The `reads` of a segment.  `is_wrong`: which of them read what was not there; `is_foreign`: what no operation has
    ever written there."""

    def __init__(self, segment: Segment) -> None:
        columns, operations = segment.columns, operations_of(segment.columns)
        texts, codes = [*columns.texts["key"], ""], len(columns.texts["key"]) + 1
        judged = tuple(one for one in texts if not one.startswith(FOREIGN))
        asks = np.flatnonzero(operations.is_ask & columns.is_one_of("key", judged, operations.row))
        rows = operations.row[asks]
        is_open = operations.last[asks]
        after = operations.row[np.where(is_open, asks, asks + 1)]
        end = np.where(is_open, columns.rows, after)
        answer, first, last = columns["first"][after], columns["first"][rows], columns["last"][rows]
        word = columns.groups("key", rows)
        is_a = partial(columns.is_one_of, "event", rows=rows)
        is_load, is_store, is_swap = is_a(("load",)), is_a(("store",)), is_a(("compare_and_swap",))
        is_done = is_swap & ~is_open & (answer == 1)
        self.reads = Accesses(word, np.where(is_load, answer, first), rows, end).only(is_load & ~is_open | is_done)
        writes = Accesses(word, np.where(is_store, first, last), rows, end).only(is_store | is_done | is_swap & is_open)
        copies, is_known = self._find_copies(segment, texts)
        self.reads = self.reads.only(is_known)
        words = np.unique(self.reads.word)
        starts = np.array([NOWHERE if one.endswith(POSITION) else EMPTY for one in texts])[words % codes]
        before = np.full(len(words), -1)
        pairs = zip(writes, (words, starts, before, before), strict=True)
        writes = Accesses(*(np.concatenate(pair) for pair in pairs))
        values, coded = np.unique(np.concatenate((writes.value, self.reads.value)), return_inverse=True)
        written, read = np.split(coded, [len(writes.value)])
        latest = np.maximum(
            find_greatest(
                writes.word * len(values) + written,
                writes.begin,
                writes.end,
                self.reads.word * len(values) + read,
                self.reads.end,
            ),
            find_greatest(copies.word, copies.begin, copies.end, self.reads.word, self.reads.end),
        )
        sure = writes.only(writes.end < columns.rows)
        self.is_wrong = latest < find_greatest(sure.word, sure.end, sure.begin, self.reads.word, self.reads.begin)
        self.is_foreign = latest == NEVER

    def _find_copies(self, segment: Segment, texts: list[str]) -> tuple[Accesses, np.ndarray]:
        """The cells that are read as words, each time that a block was copied over them, without a value; and which
        reads are judged: not those of cells where nobody knows the capacity."""
        columns, operations = segment.columns, operations_of(segment.columns)
        run, cell = self.reads.word // len(texts), self.reads.word % len(texts)
        offsets = np.array([int(one[len(DATA) :]) if CELL_KEY.fullmatch(one) else -1 for one in texts])
        is_cell = offsets[cell] >= 0
        runs = np.array([one for one, _ in columns.runs()], np.int64)
        capacity = find_capacities(segment, runs)
        is_known = ~is_cell | (capacity[np.searchsorted(runs, run)] > 0)
        asks = np.flatnonzero(operations.is_ask & columns.is_one_of("event", ("copy_in",), operations.row))
        found: list[tuple[int, int, int]] = []
        end = np.where(
            operations.last[asks], columns.rows, operations.row[np.minimum(asks + 1, len(operations.row) - 1)]
        )
        cells = {
            (one // len(texts), offsets[one % len(texts)]): one for one in np.unique(self.reads.word[is_cell]).tolist()
        }
        size = dict(zip(runs.tolist(), capacity.tolist(), strict=True))
        for row, until in zip(operations.row[asks].tolist(), end.tolist(), strict=True):
            number = int(columns["run"][row])
            first, last = int(columns["first"][row]), int(columns["last"][row])
            for at in range(first, min(last + 1, first + size[number]), CELL):
                word = cells.get((number, at % size[number]))
                if word is not None:
                    found.append((word, row, until))
        word, begin, until = np.array(found, np.int64).reshape(-1, 3).T
        return Accesses(word, word, begin, until), is_known


def history_of(segment: Segment) -> WordHistory:
    """That of a segment, made once."""
    return segment.columns.keep(("words",), lambda: WordHistory(segment))


def find_greatest(
    group: np.ndarray, place: np.ndarray, value: np.ndarray, wanted: np.ndarray, before: np.ndarray
) -> np.ndarray:
    """For each (`wanted`, `before`) the greatest value in that group whose place is before that one; NEVER: none is."""
    if not len(group):
        return np.full(len(wanted), NEVER)
    order = np.lexsort((place, group))
    lift = int(max(place.max(), value.max(), before.max(initial=0))) + 3
    numbers = np.unique(group)
    code = np.searchsorted(numbers, group[order])
    greatest = np.maximum.accumulate(code * lift + value[order] - NEVER)
    at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    latest = np.searchsorted(code * lift + place[order] - NEVER, at * lift + before - NEVER) - 1
    is_there = (numbers[at] == wanted) & (latest >= 0) & (code[latest] == at)
    return np.where(is_there, greatest[latest] - at * lift + NEVER, NEVER)


def judge_words(segment: Segment) -> CheckVerdict:
    """What was read is what was written last, or at the same time."""
    columns, history = segment.columns, history_of(segment)
    asked = history.reads.begin
    value = dict(zip(asked.tolist(), history.reads.value.tolist(), strict=True))

    def describe(row: int) -> str:
        return f"{columns.text('instance', row)} finds {value[row]} in {columns.text('key', row)}, which is not there"

    return verdict(columns, len(asked), np.sort(asked[history.is_wrong]), describe)


def find_unwritten(segment: Segment) -> Iterator[tuple[int, str]]:
    """Of merged logs, which may not be all: (run, who) of words that hold what no log has written."""
    columns, history = segment.columns, history_of(segment)
    for row in history.reads.begin[history.is_foreign].tolist():
        run = int(columns["run"][row])
        if "nodes" in segment.parameters(run):
            yield run, f"who wrote {columns.text('key', row)}"
