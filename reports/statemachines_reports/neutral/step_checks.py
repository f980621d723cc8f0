"""Step checks: every step against the tables of its machine, and against the step before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from statemachines.trace.row import KINDS
from statemachines_reports.columns import Segment, Steps
from statemachines_reports.protocol import Check, CheckVerdict, Joint, KeptRows
from statemachines_reports.run_rules import is_by_known_rules, split_by_rules


def judge_rows(segment: Segment) -> CheckVerdict:
    """Every step takes a row of the table that is there for its state and event, and ends where the row leads."""
    return _with_unknown_kinds(segment, _join([_judge_rows(part) for part in split_by_rules(segment)]))


def _judge_rows(segment: Segment) -> CheckVerdict:
    steps, lookup = segment.steps, segment.lookup
    legal = lookup.legal(steps.machine, steps.event, steps.source, steps.row, steps.dest)
    is_timer = segment.columns.is_one_of("kind", ("timer",), steps.index)
    wrong = np.flatnonzero(~legal | (lookup.is_timer[steps.machine, steps.event] != is_timer))

    def describe(position: int) -> str:
        text = steps.text
        return (
            f"{_machine(steps, position)} {text('instance', position)}: {text('event', position)} in "
            f"{text('source', position)} to {text('dest', position)} by row {steps.row[position]}: no such step"
        )

    return _of_steps(steps, len(legal), wrong, describe)


def _with_unknown_kinds(segment: Segment, found: CheckVerdict) -> CheckVerdict:
    """The verdict, and rows of a kind that no trace has."""
    columns = segment.columns
    unknown = np.flatnonzero(~columns.is_one_of("kind", KINDS))
    count = len(found.run)

    def describe(place: int) -> str:
        if place < count:
            return found.describe(place)
        return f"{columns.text('kind', unknown[place - count]) or 'nothing'} is no kind of row"

    run, seq = (np.concatenate((own, columns[name][unknown])) for own, name in ((found.run, "run"), (found.seq, "seq")))
    return CheckVerdict(found.checked, run, seq, describe)


def _join(found: list[CheckVerdict]) -> CheckVerdict:
    """The verdicts of the parts of a segment as one."""
    if len(found) == 1:
        return found[0]
    ends = np.cumsum([len(one.run) for one in found])

    def describe(place: int) -> str:
        part = int(np.searchsorted(ends, place, side="right"))
        return found[part].describe(place - int(ends[part]) + len(found[part].run))

    run, seq = np.concatenate([one.run for one in found]), np.concatenate([one.seq for one in found])
    return CheckVerdict(sum(one.checked for one in found), run, seq, describe)


def judge_continuity(segment: Segment) -> CheckVerdict:
    """Every step begins where the one before of its instance ended; the first in a state in which the machine may
    begin, as does a child machine that was at its end and is made again."""
    return _join([_judge_continuity(part) for part in split_by_rules(segment)])


def _judge_continuity(segment: Segment) -> CheckVerdict:
    steps, lookup = segment.steps, segment.lookup
    order, machine = steps.order, steps.machine[steps.order]
    source = steps.source[order]
    before = np.full_like(source, len(lookup.states))
    before[1:] = steps.dest[order][:-1]
    begins = lookup.ends[machine, before]
    begins[steps.first] = True
    before[begins] = lookup.initial[machine[begins]]
    broken = np.flatnonzero((source != before) & ~(begins & lookup.begins[machine, source]))
    states = [*lookup.states, "nowhere"]

    def describe(position: int) -> str:
        place = int(np.flatnonzero(order == position)[0])
        return (
            f"{_machine(steps, position)} {steps.text('instance', position)}: {steps.text('event', position)} "
            f"begins in {steps.text('source', position)}, but it was in {states[before[place]]}"
        )

    return _of_steps(steps, len(source), order[broken], describe)


def _machine(steps: Steps, position: int) -> str:
    """The machine as people call it."""
    return steps.text("machine", position).rpartition("/")[2]


def _of_steps(steps: Steps, checked: int, wrong: np.ndarray, describe: Callable[[int], str]) -> CheckVerdict:
    return CheckVerdict(checked, steps.run[wrong], steps.seq[wrong], lambda place: describe(int(wrong[place])))


def keep_ends(segment: Segment) -> KeptRows:
    """The first step of each instance is open, and the last one is that which a later step is judged against."""
    steps = segment.steps
    rows = steps.index[steps.order]
    return KeptRows(rows[steps.first], rows[np.append(steps.first[1:], True)[: len(rows)]])


ROWS: Final = Check(
    "rows",
    "every step takes a row of its table",
    judge_rows,
    "rows",
    is_by_known_rules,
    joints=(Joint(judge_rows),),
)
CONTINUITY: Final = Check(
    "continuity",
    "every step begins where the one before ended",
    judge_continuity,
    "rows",
    is_by_known_rules,
    joints=(Joint(judge_continuity, keep_ends),),
)
