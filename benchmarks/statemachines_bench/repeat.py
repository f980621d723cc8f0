"""Repeat: a trace of any length from a short one, for measuring what judging costs.

The copies differ in their run numbers only, so the judge meets as many runs, instances and breaks as in a real trace of
that length.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.trace.parquet import DELTA, ROWS_PER_GROUP, SCHEMA, TEXTS, write_runs
from statemachines_reports.trace_set import read_runs


def repeat(directory: Path, out: Path, *, copies: int, files: int) -> int:
    """Write `copies` of the trace in `directory` to `files` trace files in `out`; how many rows that are.

    The runs of copy n are numbered from n * (highest run + 1).  Whole runs stay in one file, sorted by (run, seq).
    """
    if copies < 1 or files < 1 or files > copies:
        raise ConfigurationError(
            "copies", copies, f"must be at least the number of files ({files}), and that at least 1"
        )
    out.mkdir(parents=True, exist_ok=True)
    table = pa.concat_tables(pq.read_table(path) for path in sorted(directory.glob("trace-*.parquet")))
    table = table.sort_by([("run", "ascending"), ("seq", "ascending")]).cast(SCHEMA).unify_dictionaries()
    runs = read_runs(directory)
    stride = max(runs) + 1
    rows = 0
    for file in range(files):
        shifts = [number * stride for number in range(file * copies // files, (file + 1) * copies // files)]
        rows += _write(table, out / f"trace-{file:04}.parquet", shifts)
        shifted = [msgspec.structs.replace(run, run=run.run + shift) for shift in shifts for run in runs.values()]
        write_runs(out / f"runs-{file:04}.parquet", shifted)
    return rows


def _write(table: pa.Table, path: Path, shifts: list[int]) -> int:
    """The table once for each shift of its run numbers."""
    partial = path.with_name(path.name + ".partial")
    with pq.ParquetWriter(partial, SCHEMA, compression="zstd", use_dictionary=TEXTS, column_encoding=DELTA) as writer:
        for shift in shifts:
            run = pc.add(table.column("run"), pa.scalar(shift, pa.int64()))
            writer.write_table(table.set_column(0, SCHEMA.field("run"), run), row_group_size=ROWS_PER_GROUP)
    os.replace(partial, path)
    return int(table.num_rows) * len(shifts)
