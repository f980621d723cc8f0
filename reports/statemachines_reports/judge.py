"""Judge: level `rows` (every step is legal and continuous) and exclusivity, over whole columns.

Nothing here looks at single rows in Python except those that are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.lookup import Lookup, code_column
from statemachines_reports.names import ASSIGNMENT, SESSION

SHOWN = 20
"""Of each kind of violation, so many are described; all are counted."""

STEPS = ("step", "timer")


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it must be; `check` is a name of `CHECKS`.  Not `promised`: the configuration of the run
    does not promise otherwise, so it is a counterexample and no violation."""

    check: str
    run: int
    seq: int
    detail: str
    promised: bool = True


class Verdict(msgspec.Struct):
    """One check over a file: how much was looked at, how much was wrong, some of it described; `waived`: what would be
    wrong, had the configuration of the run promised it."""

    check: str
    checked: int
    wrong: int
    findings: list[Finding]
    waived: int = 0


class Steps:
    """The step rows of a file, coded for the lookup."""

    def __init__(self, columns: Columns, lookup: Lookup) -> None:
        self.columns = columns
        self.index = columns.rows_of(*STEPS)
        self.run = columns["run"][self.index]
        self.seq = columns["seq"][self.index]
        self.instance = columns["instance"][self.index]
        self.row = columns["row"][self.index]
        self.machine = self._coded("machine", lookup.machines)
        self.event = self._coded("event", lookup.events)
        self.source = self._coded("source", lookup.states)
        self.dest = self._coded("dest", lookup.states)
        # Continuity is judged per instance of a run; the file is in the order of (run, seq), and the sort is stable.
        self.order = stable_order(self.instance, len(columns.texts["instance"]) + 1)
        instance, run = self.instance[self.order], self.run[self.order]
        self.first = np.ones(len(instance), bool)
        self.first[1:] = (instance[1:] != instance[:-1]) | (run[1:] != run[:-1])

    def _coded(self, name: str, codes: dict[str, int]) -> np.ndarray:
        values = code_column([*self.columns.texts[name], ""], codes)
        return np.asarray(values[self.columns[name][self.index]])

    def text(self, name: str, position: int) -> str:
        """The text of a column of the step at `position`."""
        code = self.columns[name][self.index[position]]
        texts = self.columns.texts[name]
        return texts[code] if code < len(texts) else ""


def stable_order(codes: np.ndarray, limit: int) -> np.ndarray:
    """Positions sorted by code (0 to `limit`), equal ones in their order; NumPy sorts 16 bits at a time by radix."""
    order = np.argsort(codes.astype(np.uint16), kind="stable")
    return order if limit <= 2**16 else order[np.argsort((codes[order] >> 16).astype(np.uint16), kind="stable")]


def judge_rows(steps: Steps, lookup: Lookup) -> Verdict:
    """Every step takes a row of the table that is there for its state and event, and ends where the row leads."""
    legal = lookup.legal(steps.machine, steps.event, steps.source, steps.row, steps.dest)
    wrong = np.flatnonzero(~legal)

    def describe(position: int) -> str:
        text = steps.text
        return (
            f"{text('machine', position)} {text('instance', position)}: {text('event', position)} in "
            f"{text('source', position)} to {text('dest', position)} by row {steps.row[position]}: no such step"
        )

    return _verdict("rows", steps, len(legal), wrong, describe)


def judge_continuity(steps: Steps, lookup: Lookup) -> Verdict:
    """Every step begins where the one before of its instance ended; the first in the machine's first state."""
    order, first = steps.order, steps.first
    source = steps.source[order]
    before = np.empty_like(source)
    before[1:] = steps.dest[order][:-1]
    before[first] = lookup.initial[steps.machine[order][first]]
    broken = np.flatnonzero(source != before)
    states = [*lookup.states, "nowhere"]

    def describe(position: int) -> str:
        place = int(np.flatnonzero(order == position)[0])
        return (
            f"{steps.text('machine', position)} {steps.text('instance', position)}: {steps.text('event', position)} "
            f"begins in {steps.text('source', position)}, but it was in {states[before[place]]}"
        )

    return _verdict("continuity", steps, len(source), order[broken], describe)


def judge_assignments(steps: Steps) -> Verdict:
    """S2: of the assignments of a stream by a leader, one ends before the next begins."""
    columns = steps.columns
    texts = columns.texts["instance"]
    streams = [text.rpartition("#")[0] for text in texts]
    names = {name: code for code, name in enumerate(dict.fromkeys(streams))}
    stream_of = np.array([names[name] for name in streams] + [-1], np.int64)
    is_assignment = columns.is_one_of("machine", (ASSIGNMENT,), steps.index)
    order = steps.order[is_assignment[steps.order]]
    if not len(order):
        return Verdict("assignments", 0, 0, [])
    begins = np.flatnonzero(steps.first[is_assignment[steps.order]])
    ends = np.concatenate((begins[1:] - 1, [len(order) - 1]))
    begin, end = steps.index[order[begins]], steps.index[order[ends]]
    end = np.where(columns.is_one_of("dest", ("none",), end), end, columns.rows)
    owner = steps.run[order[begins]] * (len(names) + 1) + stream_of[steps.instance[order[begins]]]
    overlapping = _overlaps(owner, begin, end)
    positions = order[begins][overlapping]

    def describe(position: int) -> str:
        return f"{steps.text('instance', position)} begins while another assignment of the stream stands"

    return _verdict("assignments", steps, len(begins), positions, describe)


def judge_exclusivity(columns: Columns, exclusive: dict[int, bool]) -> Verdict:
    """S5: the deliveries of a stream by one owner lie before or after those by another.

    An owner is a session from one install of the stream to the next.  In runs whose hand-over is not exclusive (the
    source's mode) nothing promises it: there it is counted apart.
    """
    told = columns.rows_of("tell", event=("deliver",))
    installed = columns.rows_of(*STEPS, event=("install",))
    index = np.concatenate((told, installed))
    index = index[columns.is_one_of("machine", (SESSION,), index)]
    keys = len(columns.texts["key"]) + 1
    stream = columns["run"][index] * keys + columns["key"][index]
    instance = columns["instance"][index]
    order = np.lexsort((index, instance, stream))
    index, stream, instance = index[order], stream[order], instance[order]
    deliveries = columns.is_one_of("kind", ("tell",), index)
    changed = np.concatenate(([True], (stream[1:] != stream[:-1]) | (instance[1:] != instance[:-1])))[: len(index)]
    owner = np.cumsum(changed | ~deliveries)[deliveries]
    index, stream = index[deliveries], stream[deliveries]
    if not len(index):
        return Verdict("exclusivity", 0, 0, [])
    begins = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    stream, first, last = stream[begins], index[begins], index[np.concatenate((begins[1:] - 1, [len(index) - 1]))]
    amid = _overlaps(stream, first, last)
    promised = is_exclusive(columns["run"][first[amid]], exclusive)
    findings = [
        Finding(
            "exclusivity",
            int(columns["run"][first[place]]),
            int(columns["seq"][first[place]]),
            _describe_overlap(columns, stream, first, last, int(place)),
            kept,
        )
        for kept in (True, False)
        for place in amid[promised == kept][:SHOWN]
    ]
    return Verdict("exclusivity", len(index), int(promised.sum()), findings, int((~promised).sum()))


def _describe_overlap(columns: Columns, stream: np.ndarray, first: np.ndarray, last: np.ndarray, place: int) -> str:
    """Who delivers, and who else still does."""
    texts, row = columns.texts, first[place]
    others = np.flatnonzero((stream == stream[place]) & (first < row) & (last >= row))
    end = last[others[np.argmax(last[others])]]
    names = [texts["instance"][columns["instance"][one]] for one in (row, end)]
    return (
        f"{names[0]} delivers {columns['first'][row]} to {columns['last'][row]} of {texts['key'][columns['key'][row]]}"
        f" amid {names[1]}, which goes on to deliver {columns['first'][end]} at seq {columns['seq'][end]}"
    )


def is_exclusive(run: np.ndarray, exclusive: dict[int, bool]) -> np.ndarray:
    """Which rows are of runs whose hand-over is exclusive (a run that nobody knows is)."""
    numbers, where = np.unique(run, return_inverse=True)
    return np.array([exclusive.get(int(number), True) for number in numbers], bool)[where]


def _overlaps(group: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Positions of intervals of rows that begin before an earlier one of their group has ended."""
    order = np.lexsort((begin, group))
    group, begin, end = group[order], begin[order], end[order]
    new = np.concatenate(([True], group[1:] != group[:-1]))
    # The latest end so far within the group: ends are lifted by group, so that one running maximum serves all.
    lift = (np.cumsum(new) - 1) * (int(end.max()) + 1)
    latest = np.maximum.accumulate(lift + end) - lift
    before = np.concatenate(([-1], latest[:-1]))
    return np.asarray(order[~new & (begin <= before)])


def _verdict(check: str, steps: Steps, checked: int, wrong: np.ndarray, describe) -> Verdict:  # type: ignore[no-untyped-def]
    findings = [
        Finding(check, int(steps.run[position]), int(steps.seq[position]), describe(int(position)))
        for position in wrong[:SHOWN]
    ]
    return Verdict(check, checked, len(wrong), findings)


def judge_file(steps: Steps, lookup: Lookup, exclusive: dict[int, bool]) -> Iterator[Verdict]:
    """Every check of level `rows` and the exclusivity properties over one file."""
    yield judge_rows(steps, lookup)
    yield judge_continuity(steps, lookup)
    yield judge_assignments(steps)
    yield judge_exclusivity(steps.columns, exclusive)
