"""Parquet: files of a trace: whole runs in one file, sorted by (run, seq), and a table of the runs.

`trace-*.parquet` hold the rows, `runs-*.parquet` one row per run.  Strings are dictionary encoded, integers delta
encoded, everything is compressed with zstd: some ten bytes a row.  A file is written under another name and renamed
when it is whole.
"""

from __future__ import annotations

from array import array
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.trace.row import ABOUT_RUNS, ROW, TRACE, TraceRow
from statemachines.trace.row import Run as Run
from statemachines.whole_file import drop_partial, make_folder, name_file, partial_of, whole_file

_KINDS: Final = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "text": pa.dictionary(pa.int32(), pa.string()),
    "json": pa.string(),
}


def describe_table(schema: pa.Schema, table: str, units: dict[str, str], about: dict[str, str]) -> pa.Schema:
    """The schema with metadata that stand in the file: `gapless.table`, and `gapless.columns`, a JSON object: column ->
    its unit, and what it is about."""
    given = {"unit": units, "about": about}
    columns = {name: {what: texts[name] for what, texts in given.items() if texts.get(name)} for name in schema.names}
    metadata = {"gapless.table": table, "gapless.columns": msgspec.json.encode(columns).decode()}
    return schema.with_metadata({**(schema.metadata or {}), **metadata})


SCHEMA: Final = describe_table(
    pa.schema([(column.name, _KINDS[column.kind]) for column in TRACE]),
    "trace",
    {column.name: column.unit for column in TRACE},
    {column.name: column.about for column in TRACE},
)

RUN_SCHEMA: Final = describe_table(
    pa.schema(
        [(field.name, pa.int64() if field.type is int else pa.string()) for field in msgspec.structs.fields(Run)]
    ),
    "runs",
    {},
    ABOUT_RUNS,
)

ROWS_PER_GROUP = 131_072
ROWS_AT_ONCE = 512
"""Rows that are turned into columns together."""
TEXTS: Final = [column.name for column in TRACE if column.kind == "text"]
DELTA: Final = dict.fromkeys((column.name for column in TRACE if "int" in column.kind), "DELTA_BINARY_PACKED")
"""How columns are encoded: texts by a dictionary, whole numbers by their differences."""
SOUGHT: Final = ["run", "seq", "t_ns"]
"""Columns whose least and greatest values are kept by row group, so that who looks for some runs reads no others."""


class TraceWriter:
    """Writes `trace-NAME.parquet` and `runs-NAME.parquet` in `directory`: `with TraceWriter(...) as writer:
    writer.add(run, rows)` for each run, in the order of their numbers."""

    def __init__(self, directory: Path, name: str) -> None:
        make_folder(directory, "trace")
        self._path = directory / f"trace-{name}.parquet"
        self._runs_path = directory / f"runs-{name}.parquet"
        self._runs: list[Run] = []
        self._writer: Any = None
        self.rows = 0

    def __enter__(self) -> TraceWriter:
        with name_file(self._path):
            self._writer = pq.ParquetWriter(
                partial_of(self._path),
                SCHEMA,
                compression="zstd",
                use_dictionary=TEXTS,
                column_encoding=DELTA,
                write_statistics=SOUGHT,
                write_page_checksum=True,
            )
        return self

    def add(self, run: Run, rows: list[TraceRow]) -> None:
        """One whole run; the rows get their `seq` in this order."""
        for begin in range(0, len(rows), ROWS_PER_GROUP):
            part = rows[begin : begin + ROWS_PER_GROUP]
            batch = make_batch(run.run, _make_numbers(begin, begin + len(part)), part)
            with name_file(self._path):
                self._writer.write_batch(batch)
        self._runs.append(run)
        self.rows += len(rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is not None:
            with suppress(OSError):  # where there was no room for its rows there is none for its end
                self._writer.close()
            drop_partial(self._path)
            return
        with whole_file(self._path):
            self._writer.close()
            write_runs(self._runs_path, self._runs)


def make_batch(run: int, seq: Any, rows: list[TraceRow]) -> Any:
    """Rows of a run as a batch of columns; `seq`: an Arrow array of their numbers."""
    head = [pa.repeat(pa.scalar(run, pa.int64()), len(rows)), seq]
    body = [_array(cells, column.kind) for cells, column in zip(_columns_of(rows), ROW, strict=True)]
    return pa.record_batch([*head, *body], schema=SCHEMA)


def write_runs(path: Path, runs: list[Run]) -> None:
    """The table of runs."""
    table = pa.Table.from_pylist([msgspec.structs.asdict(run) for run in runs], schema=RUN_SCHEMA)
    with whole_file(path) as partial:
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)


def _array(cells: list[Any], kind: str) -> Any:
    if kind == "text":
        return pa.array(cells, pa.string()).dictionary_encode()
    return pa.array(cells, _KINDS[kind])


def _columns_of(rows: list[TraceRow]) -> list[list[Any]]:
    """The cells by column.  Few rows at a time: each is read once for every column, and has to stay in the cache."""
    columns: list[list[Any]] = [[] for _ in ROW]
    for begin in range(0, len(rows), ROWS_AT_ONCE):
        for column, cells in zip(columns, zip(*rows[begin : begin + ROWS_AT_ONCE], strict=True), strict=True):
            column.extend(cells)
    return columns


def _make_numbers(begin: int, end: int) -> Any:
    """The numbers from `begin` to `end`, by their memory: each made an object of its own would be slow."""
    return pa.Array.from_buffers(pa.int64(), end - begin, [None, pa.py_buffer(array("q", range(begin, end)))])
