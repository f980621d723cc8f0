"""Parquet: files of a trace: whole runs in one file, sorted by (run, seq), and a table of the runs.

`trace-*.parquet` hold the rows, `runs-*.parquet` one row per run.  Strings are dictionary encoded, integers delta
encoded, everything is compressed with zstd: some ten bytes a row.  A file is written under another name and renamed
when it is whole.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.trace.row import ROW, TRACE, TraceRow
from statemachines.trace.row import Run as Run

_KINDS: Final = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "text": pa.dictionary(pa.int32(), pa.string()),
    "json": pa.string(),
}

SCHEMA: Final = pa.schema([(column.name, _KINDS[column.kind]) for column in TRACE])

RUN_SCHEMA: Final = pa.schema(
    [(field.name, pa.int64() if field.type is int else pa.string()) for field in msgspec.structs.fields(Run)]
)

ROWS_PER_GROUP = 131_072
TEXTS: Final = [column.name for column in TRACE if column.kind == "text"]
DELTA: Final = dict.fromkeys((column.name for column in TRACE if "int" in column.kind), "DELTA_BINARY_PACKED")
"""How columns are encoded: texts by a dictionary, whole numbers by their differences."""


class TraceWriter:
    """Writes `trace-NAME.parquet` and `runs-NAME.parquet` in `directory`: `with TraceWriter(...) as writer:
    writer.add(run, rows)` for each run, in the order of their numbers."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"trace-{name}.parquet"
        self._runs_path = directory / f"runs-{name}.parquet"
        self._runs: list[Run] = []
        self._writer: Any = None
        self.rows = 0

    def __enter__(self) -> TraceWriter:
        self._writer = pq.ParquetWriter(
            _partial(self._path),
            SCHEMA,
            compression="zstd",
            use_dictionary=TEXTS,
            column_encoding=DELTA,
        )
        return self

    def add(self, run: Run, rows: list[TraceRow]) -> None:
        """One whole run; the rows get their `seq` in this order."""
        for begin in range(0, len(rows), ROWS_PER_GROUP):
            part = rows[begin : begin + ROWS_PER_GROUP]
            columns = list(zip(*part, strict=True))
            head = [
                pa.array([run.run] * len(part), pa.int64()),
                pa.array(range(begin, begin + len(part)), pa.int64()),
            ]
            body = [_array(cells, column.kind) for cells, column in zip(columns, ROW, strict=True)]
            self._writer.write_batch(pa.record_batch([*head, *body], schema=SCHEMA))
        self._runs.append(run)
        self.rows += len(rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._writer.close()
        if kind is not None:
            _partial(self._path).unlink(missing_ok=True)
            return
        write_runs(self._runs_path, self._runs)
        os.replace(_partial(self._path), self._path)


def write_runs(path: Path, runs: list[Run]) -> None:
    """The table of runs."""
    table = pa.Table.from_pylist([msgspec.structs.asdict(run) for run in runs], schema=RUN_SCHEMA)
    pq.write_table(table, _partial(path), compression="zstd")
    os.replace(_partial(path), path)


def _array(cells: tuple[Any, ...], kind: str) -> Any:
    if kind == "text":
        return pa.array(cells, pa.string()).dictionary_encode()
    return pa.array(cells, _KINDS[kind])


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")
