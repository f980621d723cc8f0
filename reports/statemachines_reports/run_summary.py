"""RunSummary: what a part of a run says of it, and what it leaves open; two parts in a row make one by `merge`.

A long run is cut into parts that are judged apart.  Each part settles what its own rows decide.  It keeps the rows that
decide the rest, so summaries stay small where checks have joints.  `merge` is associative: parts may be put together in
any tree, as long as neighbours are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import msgspec
import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_reports.columns import Columns, Segment, join_columns
from statemachines_reports.judge import (
    SHOWN,
    Count,
    Judges,
    Result,
    RunRows,
    Unjudged,
    Used,
    count_events,
    count_rows,
    list_used_pairs,
    row_counts,
)
from statemachines_reports.protocol import Check, CheckVerdict, Joint
from statemachines_reports.sealed_numbers import SealedNumbers

Waived = Mapping[str, frozenset[int]]
"""Check, as shown -> runs that do not promise it."""

Parameters = Callable[[int], Mapping[str, Any]]


class JointSummary:
    """A joint of a check in a part of a run: the rows it keeps, which of them are open, and what it found wrong: `seq`
    of all of it, and the words of the first.  `sealed`: numbers whose rows are forgotten; `is_lost`: some of them must
    be known again, so the whole run has to be judged."""

    def __init__(self, columns: Columns, is_open: np.ndarray, checked: int) -> None:
        self.columns = columns
        self.is_open = is_open
        self.checked = checked
        self.seq = np.zeros(0, np.int64)
        self.words: dict[int, str] = {}
        self.sealed = SealedNumbers.of(self.seq)
        self.is_lost = False

    @classmethod
    def of(cls, joint: Joint, segment: Segment) -> Self:
        """Of the rows of a part."""
        verdict = joint.judge(segment)
        summary = cls(segment.columns, np.ones(segment.columns.rows, bool), verdict.checked)
        summary._settle(joint, segment, verdict)
        return summary

    def join(self, joint: Joint, later: JointSummary, judges: Judges, parameters: Parameters) -> JointSummary:
        """With that of the part behind it."""
        columns = join_columns(self.columns, later.columns)
        is_open = np.concatenate((self.is_open, later.is_open))
        both = JointSummary(columns, is_open, self.checked + later.checked)
        both._add(np.concatenate((self.seq, later.seq)), self.words | later.words)
        both.sealed = self.sealed.join(later.sealed)
        both.is_lost = self.is_lost or later.is_lost or self.sealed.has_common(later.sealed)
        if columns.rows and not both.is_lost:
            segment = Segment(columns, judges.lookup, parameters)
            both._settle(joint, segment, joint.judge(segment))
        return both

    def end(self, joint: Joint, judges: Judges, parameters: Parameters) -> None:
        """No row is before these, nor behind them: what is open is judged by what there is."""
        if self.columns.rows:
            verdict = joint.judge(Segment(self.columns, judges.lookup, parameters))
            self._note(verdict, self.columns["seq"][self.is_open])

    def _settle(self, joint: Joint, segment: Segment, verdict: CheckVerdict) -> None:
        """Open rows that the joint does not leave open are judged; of the rest what it keeps stays."""
        if not joint.is_sealed(segment, self.sealed):
            self.is_lost = True
            return
        self.sealed = self.sealed.join(SealedNumbers.of(joint.seal(segment)))
        kept = joint.keep(segment)
        stays = np.zeros(len(self.is_open), bool)
        stays[kept.open] = True
        self._note(verdict, segment.columns["seq"][self.is_open & ~stays])
        self.is_open = self.is_open & stays
        needed = self.is_open.copy()
        needed[kept.context] = True
        rows = np.flatnonzero(needed)
        self.columns, self.is_open = segment.columns.select(rows), self.is_open[rows]

    def _note(self, verdict: CheckVerdict, judged: np.ndarray) -> None:
        """What is wrong with rows that are judged now."""
        places = np.flatnonzero(np.isin(verdict.seq, judged))
        seq = verdict.seq[places]
        first = places[np.argsort(seq, kind="stable")[:SHOWN]]
        self._add(
            np.concatenate((self.seq, seq)),
            self.words | {int(verdict.seq[place]): verdict.describe(int(place)) for place in first.tolist()},
        )

    def _add(self, seq: np.ndarray, words: dict[int, str]) -> None:
        self.seq = np.sort(seq)
        self.words = {one: words[one] for one in sorted(words)[:SHOWN]}


class RunSummary:
    """Of some rows of one run that lie behind one another.

    `joints`: (check as shown, number of its joint) -> what it settled and keeps; `rows`: those that checks without
    joints look at, and all that is measured; `ends`: the first and last step of each instance that took a row; `totals`
    and `pairs`: what adds up; `seqs`: the first and the last.
    """

    def __init__(
        self,
        run: int,
        joints: dict[tuple[str, int], JointSummary],
        rows: Columns,
        ends: Columns,
        totals: Counter[msgspec.Struct],
        pairs: Counter[msgspec.Struct],
        seqs: tuple[int, int],
    ) -> None:
        self.run = run
        self.seqs = seqs
        self.joints = joints
        self.rows = rows
        self.ends = ends
        self.totals = totals
        self.pairs = pairs


def summarize(judges: Judges, segment: Segment) -> RunSummary:
    """The summary of a part of one run."""
    columns = segment.columns
    joints = {key: JointSummary.of(joint, segment) for key, joint in _joints_of(judges)}
    needed = [check.rows(segment) for _, protocol, check in judges.checks if not protocol and not check.joints]
    needed += [report.rows(segment) for report in judges.reports.values()]
    needed.append(judges.list_speakers(segment))
    totals = _add_up([*count_rows(segment), *row_counts(segment.columns)])
    pairs = _add_up(list_used_pairs(segment.steps, segment.lookup))
    rows = columns.select(np.unique(np.concatenate(needed)))
    ends = columns.select(_find_ends(segment))
    seqs = int(columns["seq"][0]), int(columns["seq"][-1])
    return RunSummary(int(columns["run"][0]), joints, rows, ends, totals, pairs, seqs)


def merge(judges: Judges, first: RunSummary, second: RunSummary, parameters: Parameters) -> RunSummary:
    """The summary of two parts of a run, of which one lies behind the other.

    Raises `ConfigurationError` where it does not.
    """
    if second.seqs[0] <= first.seqs[1]:
        rule = f"is not sorted by (run, seq) at run {second.run} seq {second.seqs[0]}: sort it, then judge it"
        raise ConfigurationError("trace", f"run {second.run}", rule)
    joints = {
        key: first.joints[key].join(joint, second.joints[key], judges, parameters) for key, joint in _joints_of(judges)
    }
    ends = Segment(join_columns(first.ends, second.ends), judges.lookup, parameters)
    pairs = first.pairs + second.pairs + _pairs_of(ends, judges)
    for one in (first, second):
        pairs -= _pairs_of(Segment(one.ends, judges.lookup, parameters), judges)
    rows = join_columns(first.rows, second.rows)
    kept = ends.columns.select(_find_ends(ends))
    seqs = first.seqs[0], second.seqs[1]
    return RunSummary(first.run, joints, rows, kept, first.totals + second.totals, pairs, seqs)


def finish(
    judges: Judges, summary: RunSummary, waived: Waived, parameters: Parameters, read_run: Callable[[], Columns]
) -> Iterator[Result]:
    """All results of a run, from the summary of all of its rows; `read_run` reads these again, for a check that has
    forgotten too much of them."""
    for key, joint in _joints_of(judges):
        summary.joints[key].end(joint, judges, parameters)
    segment = Segment(summary.rows, judges.lookup, parameters)
    totals = list(_amounts(summary.totals))
    has_steps = any(isinstance(one, Used | Unjudged) for one in totals)

    def verdict_of(shown: str, check: Check) -> CheckVerdict:
        found = [summary.joints[shown, number] for number in range(len(check.joints))]
        if any(one.is_lost for one in found):
            return check.judge(Segment(read_run(), judges.lookup, parameters))
        is_silent = check.stepped and not has_steps
        return _join_verdicts(summary.run, [] if is_silent else found) if found else check.judge(segment)

    yield from judges.conclude(segment, waived, verdict_of, read_run)
    yield from (("", one) for one in totals if not isinstance(one, Count))
    yield from (("", one) for one in count_events([one for one in totals if isinstance(one, Count)], segment))
    yield from (("", one) for one in _amounts(summary.pairs))


def _joints_of(judges: Judges) -> Iterator[tuple[tuple[str, int], Joint]]:
    """(check as shown, number) of every joint, and the joint."""
    for shown, _, check in judges.checks:
        yield from (((shown, number), joint) for number, joint in enumerate(check.joints))


def _join_verdicts(run: int, found: list[JointSummary]) -> CheckVerdict:
    """The verdict of a check: a row is wrong once, in the words of the last joint that says so."""
    seq = np.unique(np.concatenate([np.zeros(0, np.int64), *(one.seq for one in found)]))
    words: dict[int, str] = {}
    for one in found:
        words |= one.words
    return CheckVerdict(
        found[0].checked if found else 0, np.full(len(seq), run), seq, lambda place: words[int(seq[place])]
    )


def _find_ends(segment: Segment) -> np.ndarray:
    """The first and the last step of each instance that took a row."""
    steps = segment.steps
    order = steps.order[steps.row[steps.order] >= 0]
    instance = steps.instance[order]
    begins = np.append(True, instance[1:] != instance[:-1])[: len(order)]
    return np.unique(steps.index[order[begins | np.append(begins[1:], True)[: len(order)]]])


def _pairs_of(segment: Segment, judges: Judges) -> Counter[msgspec.Struct]:
    return _add_up(list_used_pairs(segment.steps, judges.lookup))


def _add_up(found: Any) -> Counter[msgspec.Struct]:
    """Results with a number -> the sum of their numbers; such a result stands for all that differ in it alone."""
    totals: Counter[msgspec.Struct] = Counter()
    for one in found:
        name = _number_of(one)
        totals[msgspec.structs.replace(one, **{name: 0})] += getattr(one, name)
    return totals


def _amounts(totals: Counter[msgspec.Struct]) -> Iterator[msgspec.Struct]:
    return (msgspec.structs.replace(one, **{_number_of(one): total}) for one, total in totals.items())


def _number_of(one: msgspec.Struct) -> str:
    return "rows" if isinstance(one, RunRows) else "count"
