"""Piece judge: what is found in a piece of a trace file, and in runs of which several pieces have a part."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from statemachines.kernel import Protocol
from statemachines_reports.columns import Columns, Segment, columns_of_run
from statemachines_reports.judge import Judges, Result, RunPart
from statemachines_reports.part_reader import read_parts
from statemachines_reports.run_summary import Parameters, RunSummary, Waived, finish, merge, summarize
from statemachines_reports.trace_piece import TracePiece
from statemachines_reports.trace_set import RunParameters, TraceSet


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
