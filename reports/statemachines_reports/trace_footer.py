"""Trace footer: what the row groups of a Parquet file say of its runs, and of its data, before they are read."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from statemachines.trace.parquet import ROWS_PER_GROUP

SMALL: Final = 4 * ROWS_PER_GROUP
"""A file of no more rows is not cut within a run."""

EMPTY_BYTES: Final = 256
"""So much a column of a row group takes at most in which every row is null."""


def find_run_begin(file: Any, row: int) -> tuple[int, int]:
    """The first row from `row` on in which a run begins (the number of rows: in none), and the run before it (-1:
    none).  It follows from the file and the row alone, so pieces of a file that are cut at any rows share its runs."""
    if row <= 0 or row >= file.metadata.num_rows:
        return max(0, min(row, file.metadata.num_rows)), -1
    place, latest = 0, None
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        rows = about.num_rows
        if place + rows >= row and not _has_one_run(about, latest):
            run = file.read_row_group(group, columns=["run"]).column("run").fill_null(-1).to_numpy()
            if latest is None:
                latest = int(run[row - 1 - place])
            others = np.flatnonzero(run[max(row - place, 0) :] != latest)
            if len(others):
                return max(row, place) + int(others[0]), latest
        place += rows
    return place, -1 if latest is None else latest


def _has_one_run(about: Any, run: int | None) -> bool:
    """The statistics of a row group say that all of its rows are of this run."""
    return run is not None and _one_run(about) == run


def _one_run(about: Any) -> int | None:
    """The run that all rows of a row group are of, by its statistics; None: there are several, or nobody says."""
    names = [about.column(place).path_in_schema for place in range(about.num_columns)]
    statistics = about.column(names.index("run")).statistics
    known = statistics is not None and statistics.has_min_max and statistics.min == statistics.max
    return statistics.min if known else None


def find_long_runs(file: Any) -> list[tuple[int, int]]:
    """Rows (first, behind the last) of whole row groups that are of one run."""
    found: list[tuple[int, int]] = []
    place, before = 0, None
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        run, end = _one_run(about), place + about.num_rows
        if run is not None and run == before:
            found[-1] = found[-1][0], end
        elif run is not None:
            found.append((place, end))
        place, before = end, run
    return found


def has_data(file: Any) -> bool:
    """Steps of the file have the fields of their events: level `replay` steps through a run from its begin to its end.
    Faults alone may have data in any trace."""
    metadata = file.metadata
    if metadata.num_rows <= SMALL:
        return True  # it is read as a whole
    place = file.schema_arrow.names.index("data")
    return any(_has_values(metadata.row_group(group).column(place)) for group in range(metadata.num_row_groups))


def _has_values(chunk: Any) -> bool:
    """Many rows have data: one in eight, or where no statistics say so, more than a byte a row."""
    statistics = chunk.statistics
    if statistics is not None and statistics.has_null_count:
        return bool((chunk.num_values - statistics.null_count) * 8 > chunk.num_values)
    return bool(chunk.total_uncompressed_size > EMPTY_BYTES + chunk.num_values)
