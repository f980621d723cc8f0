"""Piece judge: what is found in a piece of a trace file, and in runs of which several pieces have a part.

Part reader: the rows of a piece of a trace file, some at a time, and which of its runs are not whole there.

RunSummary: what a part of a run says of it, and what it leaves open; two parts in a row make one by `merge`.

A long run is cut into parts that are judged apart.  Each part settles what its own rows decide.  It keeps the rows that
decide the rest, so summaries stay small where checks have joints.  `merge` is associative: parts may be put together in
any tree, as long as neighbours are.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import msgspec
import numpy as np

from statemachines.kernel import ConfigurationError, Protocol
from statemachines_reports.columns import (
    ANALYZED,
    NEEDED,
    SEGMENT,
    Columns,
    Segment,
    check_order,
    columns_of_run,
    find_run_begin,
    has_data,
    join_columns,
    open_trace,
    read_tables,
    reading,
)
from statemachines_reports.judge import (
    SHOWN,
    Count,
    Judges,
    Result,
    RunPart,
    RunRows,
    Unjudged,
    Used,
    count_events,
    count_rows,
    find_speakers,
    list_used_pairs,
    row_counts,
)
from statemachines_reports.protocol import Check, CheckVerdict, Joint, SealedNumbers
from statemachines_reports.trace_set import RunParameters, TracePiece, TraceSet

T = TypeVar("T")


class TracePart(NamedTuple):
    """Rows of a trace file.  `begins_amid`: its first run has rows before these; `ends_amid`: its last run may have
    rows behind these."""

    columns: Columns
    begins_amid: bool
    ends_amid: bool


def read_parts(piece: TracePiece) -> Iterator[TracePart]:
    """The runs whose first row is in the piece, and what it has of runs that are cut at its begin or end.  A run of
    more than `SEGMENT` rows comes in parts, unless its rows have data.
    """
    path, begin, end, begins_amid, ends_amid = piece
    with open_trace(path) as file:
        with reading(path):
            first, latest = (begin, -1) if begins_amid else find_run_begin(file, begin)
            last = end if ends_amid else find_run_begin(file, end)[0]
        is_cut = not has_data(file)
        follows = begins_amid
        tables = list_with_last(read_tables(path, file, NEEDED if is_cut else ANALYZED, first, last, is_cut))
        for table, is_last in tables:
            with reading(path):
                columns = Columns(table)
            follows = (follows and columns["run"][0] == latest) or begins_amid
            check_order(path, columns, latest - 1 if follows else latest)
            is_long = is_cut and columns.rows >= SEGMENT and columns["run"][0] == columns["run"][-1]
            is_open = ends_amid if is_last else is_long
            yield TracePart(columns, follows, is_open)
            follows, begins_amid, latest = is_open, False, int(columns["run"][-1])


def list_with_last(tables: Iterator[T]) -> Iterator[tuple[T, bool]]:
    """Each one, and whether no other follows."""
    before = None
    for table in tables:
        if before is not None:
            yield before, False
        before = table
    if before is not None:
        yield before, True


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
    needed.append(find_speakers(segment.columns, judges.unlogged))
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


class OpenRun:
    """The parts of a run so far, neighbours of like length merged: so each row is merged a few times alone."""

    def __init__(self, judges: Judges, parameters: Parameters, begins_amid: bool = False) -> None:
        self.begins_amid = begins_amid
        self._judges = judges
        self._parameters = parameters
        self._found: list[tuple[int, RunSummary]] = []

    def add(self, summary: RunSummary) -> None:
        """The next part."""
        size = 1
        while self._found and self._found[-1][0] <= size:
            before, first = self._found.pop()
            summary, size = merge(self._judges, first, summary, self._parameters), before + size
        self._found.append((size, summary))

    def total(self) -> RunSummary:
        """Of all parts; there is one at least."""
        *others, (_, summary) = self._found
        for _, first in reversed(others):
            summary = merge(self._judges, first, summary, self._parameters)
        return summary


class PieceJudge:
    """Judges one piece: whole runs at once, and of the others their parts."""

    def __init__(self, judges: Judges, piece: TracePiece, waived: Waived) -> None:
        self._judges = judges
        self._piece = piece
        self._waived = waived
        self._parameters = RunParameters(piece.path)
        self._open: OpenRun | None = None

    def judge(self) -> Iterator[Result]:
        """All results of the piece."""
        for columns, begins_amid, ends_amid in read_parts(self._piece):
            begin, end = 0, columns.rows
            counts = columns.runs()
            if not begins_amid:
                yield from self._close(is_ended=True)
            else:
                begin = counts[0][1]
                self._add(columns, 0, begin, is_begun=self._open is not None)
                if begin == end:
                    continue
                yield from self._close(is_ended=True)
            if ends_amid:
                end -= counts[-1][1]
            if begin < end:
                yield from self._judges.judge(self._segment(columns, begin, end), self._waived)
            if ends_amid:
                self._add(columns, end, columns.rows, is_begun=True)
        yield from self._close(is_ended=not self._piece.ends_amid)

    def _add(self, columns: Columns, begin: int, end: int, is_begun: bool) -> None:
        """These rows are the next part of a run; not `is_begun`: an earlier piece has the first."""
        if self._open is None:
            self._open = OpenRun(self._judges, self._parameters, begins_amid=not is_begun)
        self._open.add(summarize(self._judges, self._segment(columns, begin, end)))

    def _close(self, is_ended: bool) -> Iterator[Result]:
        """The open run has no more rows here."""
        if self._open is None:
            return
        summary = self._open.total()
        if is_ended and not self._open.begins_amid:
            read_run = partial(columns_of_run, self._piece.path, summary.run)
            yield from finish(self._judges, summary, self._waived, self._parameters, read_run)
        else:
            yield "", RunPart(summary.run, str(self._piece.path), self._piece.begin, pickle.dumps(summary))
        self._open = None

    def _segment(self, columns: Columns, begin: int, end: int) -> Segment:
        if (begin, end) != (0, columns.rows):
            columns = columns.select(np.arange(begin, end))
        return Segment(columns, self._judges.lookup, self._parameters)


def judge_piece(judges: Judges, piece: TracePiece, waived: Waived) -> Iterator[Result]:
    """All results of a piece.  A run that is cut at its begin or end gives a `RunPart`."""
    return PieceJudge(judges, piece, waived).judge()


def judge_parts(judges: Judges, parts: Iterable[RunPart], waived: Waived) -> Iterator[Result]:
    """All results of the runs that these are the parts of, in any order."""
    runs: dict[tuple[str, int], list[RunPart]] = {}
    for part in parts:
        runs.setdefault((part.file, part.run), []).append(part)
    for (file, number), some in sorted(runs.items()):
        parameters = RunParameters(Path(file))
        run = OpenRun(judges, parameters)
        for part in sorted(some, key=lambda part: part.begin):
            run.add(pickle.loads(part.summary))
        yield from finish(judges, run.total(), waived, parameters, partial(columns_of_run, Path(file), number))


Given = tuple[tuple[Protocol, ...], tuple[str, ...], Waived]
"""What another process judges with: protocols, names of those that are not installed, runs that do not promise a
check."""


def give_judges(trace: TraceSet, judges: Judges) -> bytes:
    """What another process makes the judges of."""
    waived = {check: runs for check, runs in judges.list_waived_runs(trace).items() if runs}
    given: Given = tuple(judges.protocols.values()), judges.missing, waived
    return pickle.dumps(given)


@lru_cache(1)
def make_judges(given: bytes) -> tuple[Judges, Waived]:
    """The judges of a process that judges one piece after the other.  Nothing of a protocol may be registered there: it
    is given what registers it."""
    protocols, missing, waived = pickle.loads(given)
    return Judges(protocols, missing), waived
