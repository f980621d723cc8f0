"""Trace pieces: a long file is cut at row groups, small files are put together, and each task has some pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from statemachines.kernel import ConfigurationError
from statemachines_reports.columns import SEGMENT
from statemachines_reports.trace_set import TraceSet

ROWS_PER_TASK: Final = "spark.gapless.rowsPerTask"
"""The setting of Spark by which a user says how many rows a task has."""

MOST_ROWS: Final = 4_000_000
"""Rows of a task: some seconds of work, against some tenths of a second that a task costs."""

TASKS_A_CORE: Final = 3
"""At least, where there are rows enough: so that all cores end at about the same time."""

MOST_JOBS: Final = 8
"""The tasks of an analysis are so many jobs.  What an interruption leaves is what whole jobs have judged."""

UNITS: Final = pa.schema([("path", pa.string()), ("begin", pa.int64()), ("end", pa.int64())])


class TracePiece(NamedTuple):
    """The runs of a file that begin from row `begin` on and before row `end`."""

    path: Path
    begin: int
    end: int


Pieces = list[TracePiece]
"""What one task judges."""


def count_task_rows(rows: int, cores: int, named: str = "") -> int:
    """How many rows a task has, of a trace of so many; raises `ConfigurationError` where `named` is no number."""
    if named:
        if not named.isdecimal() or not int(named):
            raise ConfigurationError(ROWS_PER_TASK, named, "must be a number of rows, 1 or more")
        return int(named)
    return max(SEGMENT, min(MOST_ROWS, rows // (TASKS_A_CORE * cores)))


def cut_file(path: Path, groups: Iterable[int], size: int) -> Iterator[TracePiece]:
    """A file with row groups of so many rows, cut behind a row group wherever a piece has `size` rows."""
    cuts, end = [0], 0
    for rows in groups:
        end += rows
        if end - cuts[-1] >= size:
            cuts.append(end)
    if end > cuts[-1] or len(cuts) == 1:
        cuts.append(end)
    return (TracePiece(path, first, last) for first, last in pairwise(cuts))


def plan_jobs(trace: TraceSet, size: int) -> list[list[Pieces]]:
    """Jobs of tasks: each task has about `size` rows, of one file or of several, and each file is in one job."""
    jobs: list[list[Pieces]] = [[]]
    least = trace.rows / MOST_JOBS
    pieces: Pieces = []
    rows = done = 0
    for path in trace.files:
        for number, piece in enumerate(cut_file(path, trace.groups[path], size)):
            more = piece.end - piece.begin
            if pieces and rows + more > size:
                jobs[-1].append(pieces)
                pieces, rows = [], 0
                if number == 0 and done >= least * len(jobs):
                    jobs.append([])
            pieces.append(piece)
            rows, done = rows + more, done + more
    if pieces:
        jobs[-1].append(pieces)
    return jobs


def table_of(pieces: Pieces) -> pa.Table:
    """The pieces of a task as lines (path, begin, end)."""
    lines = [{"path": str(one.path.resolve()), "begin": one.begin, "end": one.end} for one in pieces]
    return pa.Table.from_pylist(lines, UNITS)
