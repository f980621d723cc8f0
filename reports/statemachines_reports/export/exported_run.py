"""Exported run: the rows of one run of a trace, for writers of other formats."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from statemachines.kernel import ConfigurationError
from statemachines.trace.parquet import TEXTS
from statemachines_reports.columns import read_run
from statemachines_reports.trace_set import TraceSet

ROWS_MAX: Final = 1_000_000
"""Other tools show no more rows than these."""
COLUMNS: Final = ("t_ns", "node", "machine", "instance", "kind", "event", "source", "dest", "row", "peer", "msg", "key")


class ExportRow(NamedTuple):
    """A row; a text is "" where the trace has none."""

    t_ns: int
    node: str
    machine: str
    instance: str
    kind: str
    event: str
    source: str
    dest: str
    row: int
    peer: str
    msg: int
    key: str


class ExportedRun(NamedTuple):
    """A run: its number, its scenario, and its rows in order."""

    run: int
    scenario: str
    rows: list[ExportRow]

    @property
    def nodes(self) -> dict[str, int]:
        """Node -> its number, from 1, in the order in which they come."""
        return {node: number for number, node in enumerate(dict.fromkeys(row.node for row in self.rows if row.node), 1)}


Write = Callable[[ExportedRun], Iterator[str]]
"""Gives a file of another format in pieces."""


def read_exported(directory: Path, run: int | None = None) -> ExportedRun:
    """A run of a trace; logs of real nodes are merged first.

    Args:
        directory: Parquet files of a trace, or the logs of a run.
        run: its number; None: the only one.

    Raises:
        ConfigurationError: there is no such run, or there are several and none is named, or it has too many rows.
    """
    with tempfile.TemporaryDirectory(prefix="gapless-export-") as merged:
        trace = TraceSet(directory, Path(merged))
        numbers = sorted(trace.runs)
        if run is None and len(numbers) != 1:
            raise ConfigurationError("--run", "", f"is missing: {directory} holds runs {numbers[0]} to {numbers[-1]}")
        number = numbers[0] if run is None else run
        if number not in trace.runs:
            rule = f"is in no file of {directory}, which holds runs {numbers[0]} to {numbers[-1]}"
            raise ConfigurationError("--run", number, rule)
        rows = [row for path in trace.files for row in _read(path, number)]
        return ExportedRun(number, trace.runs[number].scenario, rows)


def _read(path: Path, run: int) -> Iterator[ExportRow]:
    table = read_run(path, COLUMNS, run, [name for name in COLUMNS if name in TEXTS])
    if table.num_rows > ROWS_MAX:
        rule = f"has {table.num_rows:,} rows, and at most {ROWS_MAX:,} are exported: take a shorter run"
        raise ConfigurationError("--run", run, rule)
    columns = [table.column(name).fill_null("" if name in TEXTS else -1).to_pylist() for name in COLUMNS]
    return map(ExportRow, *columns)
