"""Part reader: the rows of a piece of a trace file, some at a time, and which of its runs are not whole there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from statemachines_reports.columns import (
    ANALYZED,
    NEEDED,
    SEGMENT,
    Columns,
    check_order,
    open_trace,
    read_tables,
    reading,
)
from statemachines_reports.trace_footer import find_run_begin, has_data
from statemachines_reports.trace_piece import TracePiece

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
