"""Trace pieces: a long file is cut at row groups, small files are put together, and each task has some pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from statemachines.kernel import ConfigurationError
from statemachines.s3_path import address_of
from statemachines.whole_file import store_path
from statemachines_reports.columns import SEGMENT
from statemachines_reports.trace_set import RowSpan, TraceSet

ROWS_PER_TASK: Final = "spark.gapless.rowsPerTask"
"""The setting of Spark by which a user says how many rows a task has."""

MOST_ROWS: Final = 4_000_000
"""Rows of a task: some seconds of work, against some tenths of a second that a task costs."""

TASKS_A_CORE: Final = 3
"""At least, where there are rows enough: so that all cores end at about the same time."""

MOST_JOBS: Final = 8
"""The tasks of an analysis are so many jobs.  What an interruption leaves is what whole jobs have judged."""

UNITS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("begins_amid", pa.bool_()),
        ("ends_amid", pa.bool_()),
    ]
)


class TracePiece(NamedTuple):
    """The runs of a file that begin from row `begin` on and before row `end`.

    A long run is cut.  Then the piece `begins_amid` or `ends_amid` it, and has those of its rows that lie between.
    """

    path: Path
    begin: int
    end: int
    begins_amid: bool = False
    ends_amid: bool = False


Pieces = list[TracePiece]
"""What one task judges."""


def count_task_rows(rows: int, cores: int, named: str = "") -> int:
    """How many rows a task has, of a trace of so many; raises `ConfigurationError` where `named` is no number."""
    if named:
        if not named.isdecimal() or not int(named):
            raise ConfigurationError(ROWS_PER_TASK, named, "must be a number of rows, 1 or more")
        return int(named)
    return max(SEGMENT, min(MOST_ROWS, rows // (TASKS_A_CORE * cores)))


def cut_file(path: Path, groups: Iterable[int], size: int, long_runs: Sequence[RowSpan] = ()) -> Iterator[TracePiece]:
    """A file with row groups of so many rows, cut behind a row group wherever a piece has `size` rows.  A run of more
    than `size` rows is cut, too."""
    cuts, end = [0], 0
    for rows in groups:
        end += rows
        if end - cuts[-1] >= size:
            cuts.append(end)
    if end > cuts[-1] or len(cuts) == 1:
        cuts.append(end)
    long = [span for span in long_runs if span[1] - span[0] >= size]
    is_amid = [any(first <= cut <= last for first, last in long) for cut in cuts]
    is_amid[0] = is_amid[-1] = False
    return (
        TracePiece(path, first, last, *amid)
        for (first, last), amid in zip(pairwise(cuts), pairwise(is_amid), strict=True)
    )


def plan_jobs(trace: TraceSet, size: int) -> list[list[Pieces]]:
    """Jobs of tasks: each task has about `size` rows, of one file or of several, and each file is in one job."""
    jobs: list[list[Pieces]] = [[]]
    least = trace.rows / MOST_JOBS
    pieces: Pieces = []
    rows = done = 0
    for path in trace.files:
        for number, piece in enumerate(cut_file(path, trace.groups[path], size, trace.long_runs[path])):
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
    """The pieces of a task as lines; `piece_of` reads one."""
    return pa.Table.from_pylist([one._asdict() | {"path": address_of(one.path)} for one in pieces], UNITS)


def piece_of(line: Mapping[str, Any]) -> TracePiece:
    """The piece of such a line."""
    return TracePiece(**{**line, "path": store_path(line["path"])})
