"""Parquet files of a trace: whole runs in one file, sorted by (run, seq), and a table of the runs.

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

from statemachines.trace.row import TraceRow

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())

SCHEMA: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("seq", pa.int64()),
        ("t_ns", pa.int64()),
        ("node", _DICTIONARY),
        ("machine", _DICTIONARY),
        ("instance", _DICTIONARY),
        ("kind", _DICTIONARY),
        ("event", _DICTIONARY),
        ("source", _DICTIONARY),
        ("dest", _DICTIONARY),
        ("row", pa.int32()),
        ("peer", _DICTIONARY),
        ("msg", pa.int64()),
        ("key", _DICTIONARY),
        ("term", pa.int64()),
        ("grant", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("data", pa.string()),
    ]
)

RUN_SCHEMA: Final = pa.schema(
    [
        ("run", pa.int64()),
        ("scenario", pa.string()),
        ("seed", pa.int64()),
        ("parameters", pa.string()),
        ("outcome", pa.string()),
        ("versions", pa.string()),
        ("fingerprint", pa.string()),
    ]
)

ROWS_PER_GROUP = 131_072
_DELTA = ("run", "seq", "t_ns", "row", "msg", "term", "grant", "first", "last")


class Run(msgspec.Struct, frozen=True):
    """One line of the table of runs; `parameters` and `versions` are JSON objects, `outcome` is "held" or what was
    violated."""

    run: int
    scenario: str
    seed: int
    parameters: str
    outcome: str
    versions: str
    fingerprint: str


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
            use_dictionary=[field.name for field in SCHEMA if pa.types.is_dictionary(field.type)],
            column_encoding=dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
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
            body = [_array(column, field) for column, field in zip(columns, list(SCHEMA)[2:], strict=True)]
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


def _array(column: tuple[Any, ...], field: Any) -> Any:
    if pa.types.is_dictionary(field.type):
        return pa.array(column, pa.string()).dictionary_encode()
    return pa.array(column, field.type)


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")
