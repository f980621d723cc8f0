"""Judge: level `rows` (every step is legal and continuous) and exclusivity, over whole columns.

Nothing here looks at single rows in Python except those that are wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from statemachines_reports.columns import Columns
from statemachines_reports.lookup import Lookup, code_column

SHOWN = 20
"""Of each kind of violation, so many are described; all are counted."""

STEPS = ("step", "timer")


class Finding(msgspec.Struct, frozen=True):
    """Something that is not as it must be; `check` is a name of `CHECKS`."""

    check: str
    run: int
    seq: int
    detail: str


class Verdict(msgspec.Struct):
    """One check over a file: how much was looked at, how much was wrong, some of it described."""

    check: str
    checked: int
    wrong: int
    findings: list[Finding]


class Steps:
    """The step rows of a file, coded for the lookup."""

    def __init__(self, columns: Columns, lookup: Lookup) -> None:
        self.columns = columns
        self.index = np.flatnonzero(columns.is_one_of("kind", STEPS))
        self.run = columns["run"][self.index]
        self.seq = columns["seq"][self.index]
        self.instance = columns["instance"][self.index]
        self.row = columns["row"][self.index].astype(np.int64)
        self.machine = self._coded("machine", lookup.machines)
        self.event = self._coded("event", lookup.events)
        self.source = self._coded("source", lookup.states)
        self.dest = self._coded("dest", lookup.states)
        # Continuity is judged per instance of a run, in the order of seq.
        group = self.run * (len(columns.texts["instance"]) + 1) + self.instance
        self.order = np.argsort(group, kind="stable")
        ordered = group[self.order]
        self.first = np.ones(len(ordered), bool)
        self.first[1:] = ordered[1:] != ordered[:-1]

    def _coded(self, name: str, codes: dict[str, int]) -> np.ndarray:
        values = code_column([*self.columns.texts[name], ""], codes)
        return np.asarray(values[self.columns[name][self.index]])

    def text(self, name: str, position: int) -> str:
        """The text of a column of the step at `position`."""
        code = self.columns[name][self.index[position]]
        texts = self.columns.texts[name]
        return texts[code] if code < len(texts) else ""


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
    is_assignment = steps.columns.is_one_of("machine", ("assignment",))[steps.index]
    order = steps.order[is_assignment[steps.order]]
    if not len(order):
        return Verdict("assignments", 0, 0, [])
    group = steps.run[order] * (len(texts) + 1) + steps.instance[order]
    begins = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    ends = np.concatenate((begins[1:] - 1, [len(order) - 1]))
    start = steps.seq[order[begins]]
    none = columns.is_one_of("dest", ("none",))[steps.index]
    end = np.where(none[order[ends]], steps.seq[order[ends]], np.iinfo(np.int64).max)
    owner = steps.run[order[begins]] * (len(names) + 1) + stream_of[steps.instance[order[begins]]]
    overlapping = _overlaps(owner, start, end, strict=False)
    positions = order[begins][overlapping]

    def describe(position: int) -> str:
        return f"{steps.text('instance', position)} begins while another assignment of the stream stands"

    return _verdict("assignments", steps, len(begins), positions, describe)


def judge_exclusivity(columns: Columns, exclusive: dict[int, bool]) -> Verdict:
    """S5: the deliveries of a stream by one owner lie before or after those by another.

    An owner is a session from one install of the stream to the next.  Runs whose hand-over is not exclusive (the
    source's mode) are left out.
    """
    told = columns.is_one_of("kind", ("tell",)) & columns.is_one_of("event", ("deliver",))
    installed = columns.is_one_of("kind", STEPS) & columns.is_one_of("event", ("install",))
    index = np.flatnonzero((told | installed) & columns.is_one_of("machine", ("session",)))
    run, seq = columns["run"][index], columns["seq"][index]
    required = np.array([exclusive.get(int(number), True) for number in np.unique(run)])
    keep = required[np.searchsorted(np.unique(run), run)] if len(run) else np.zeros(0, bool)
    index, run, seq = index[keep], run[keep], seq[keep]
    instance, key = columns["instance"][index], columns["key"][index]
    keys = len(columns.texts["key"]) + 1
    reader = (run * (len(columns.texts["instance"]) + 1) + instance) * keys + key
    order = np.lexsort((seq, reader))
    deliveries = told[index][order]
    life = np.cumsum(~deliveries) + 0
    changed = np.concatenate(([True], reader[order][1:] != reader[order][:-1])) if len(order) else np.zeros(0, bool)
    owner = np.cumsum(changed) * (len(order) + 1) + life
    order, owner = order[deliveries], owner[deliveries]
    if not len(order):
        return Verdict("exclusivity", 0, 0, [])
    begins = np.flatnonzero(np.concatenate(([True], owner[1:] != owner[:-1])))
    ends = np.concatenate((begins[1:] - 1, [len(order) - 1]))
    stream = run[order[begins]] * keys + key[order[begins]]
    overlapping = _overlaps(stream, seq[order[begins]], seq[order[ends]], strict=True)
    wrong = index[order[begins]][overlapping]
    texts = columns.texts
    findings = [
        Finding(
            "exclusivity",
            int(columns["run"][row]),
            int(columns["seq"][row]),
            f"{texts['instance'][columns['instance'][row]]} delivers {texts['key'][columns['key'][row]]} amid another",
        )
        for row in wrong[:SHOWN]
    ]
    return Verdict("exclusivity", len(order), len(wrong), findings)


def _overlaps(group: np.ndarray, start: np.ndarray, end: np.ndarray, *, strict: bool) -> np.ndarray:
    """Positions of intervals that begin before an earlier one of their group has ended."""
    order = np.lexsort((start, group))
    group, start, end = group[order], start[order], end[order]
    new = np.concatenate(([True], group[1:] != group[:-1]))
    # The latest end so far within the group: ends are lifted by group, so that one running maximum serves all.
    rank = np.cumsum(new) - 1
    capped = np.minimum(end, 2**36)
    latest = np.maximum.accumulate(rank * 2**37 + capped) - rank * 2**37
    before = np.concatenate(([-1], latest[:-1]))
    inside = ~new & ((start < before) | (start == before if strict else False))
    return np.asarray(order[inside])


def _verdict(check: str, steps: Steps, checked: int, wrong: np.ndarray, describe) -> Verdict:  # type: ignore[no-untyped-def]
    findings = [
        Finding(check, int(steps.run[position]), int(steps.seq[position]), describe(int(position)))
        for position in wrong[:SHOWN]
    ]
    return Verdict(check, checked, len(wrong), findings)


def judge_file(columns: Columns, lookup: Lookup, exclusive: dict[int, bool]) -> Iterator[Verdict]:
    """Every check of level `rows` and the exclusivity properties over one file."""
    steps = Steps(columns, lookup)
    yield judge_rows(steps, lookup)
    yield judge_continuity(steps, lookup)
    yield judge_assignments(steps)
    yield judge_exclusivity(columns, exclusive)
