"""Words: what an operation reads from the memory is what was written there last.

An access lies between its request and the step that takes its answer.  One that has no answer may lie anywhere behind
its request, or was never made.  A read is wrong if no write of its value can be the latest one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from statemachines_reports.columns import Segment
from statemachines_reports.cursor_recovery.operations import operations_of
from statemachines_reports.cursor_recovery.positions import find_capacities
from statemachines_reports.protocol import CheckVerdict, verdict

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
        columns, operations = segment.columns, operations_of(segment)
        texts, codes = [*columns.texts["key"], ""], len(columns.texts["key"]) + 1
        judged = tuple(one for one in texts if not one.startswith(FOREIGN))
        asks = np.flatnonzero(operations.is_ask & columns.is_one_of("key", judged, operations.row))
        rows = operations.row[asks]
        is_open = operations.last[asks]
        after = operations.row[np.where(is_open, asks, asks + 1)]
        end = np.where(is_open, columns.rows, after)
        answer, first, last = columns["first"][after], columns["first"][rows], columns["last"][rows]
        word = columns["run"][rows] * codes + columns["key"][rows]
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
        columns, operations = segment.columns, operations_of(segment)
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
