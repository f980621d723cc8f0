"""Columns: a trace file in memory, its strings as integers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.trace import COLUMNS

TEXT = ("node", "machine", "instance", "kind", "event", "source", "dest", "peer", "key")
NEEDED = tuple(column for column in COLUMNS if column not in ("data", "msg", "term", "peer", "grant"))
"""What judging reads; the rest stays on disk."""


class Columns:
    """The needed columns of a file: integers as they are (-1 for null), strings as codes into `texts[column]`."""

    def __init__(self, table: pa.Table) -> None:
        self.rows = table.num_rows
        self.texts: dict[str, list[str]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._rows_of: dict[tuple[str, ...], np.ndarray] = {}
        for name in table.column_names:
            self._arrays[name] = self._read(name, table.column(name))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def runs(self) -> list[int]:
        """The runs of the file, in order."""
        run = self._arrays["run"]
        begins = np.flatnonzero(run[1:] != run[:-1]) + 1
        return [int(number) for number in run[np.concatenate(([0], begins))]] if len(run) else []

    def rows_of(self, *kinds: str, event: tuple[str, ...] = ()) -> np.ndarray:
        """The rows of these kinds (and events), in order.  A file is in the order of (run, seq), so row numbers serve
        as times within a run."""
        found = self._rows_of.get(kinds)
        if found is None:
            found = self._rows_of[kinds] = np.flatnonzero(self.is_one_of("kind", kinds))
        return found[self.is_one_of("event", event, found)] if event else found

    def is_one_of(self, column: str, texts: tuple[str, ...], rows: np.ndarray | None = None) -> np.ndarray:
        """Which of the rows (None: all) have one of these texts in the column."""
        wanted = np.array([text in texts for text in self.texts[column]] + [False])
        codes = self._arrays[column]
        return np.asarray(wanted[codes if rows is None else codes[rows]])

    def _read(self, name: str, column: Any) -> np.ndarray:
        if name in TEXT:
            whole = _in_one(column.unify_dictionaries())
            self.texts[name] = whole.dictionary.to_pylist()
            return _numbers(whole.indices, len(self.texts[name]))
        return _numbers(_in_one(column), -1)


def _in_one(column: Any) -> Any:
    """A column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _numbers(array: Any, null: int) -> np.ndarray:
    """The integers, `null` where there is none."""
    return np.asarray((array.fill_null(null) if array.null_count else array).to_numpy())


def read_columns(path: Path, columns: tuple[str, ...] = NEEDED) -> Columns:
    """The columns of a trace file; raises `ConfigurationError` where some are missing or it is no Parquet file."""
    try:
        file = pq.ParquetFile(path, read_dictionary=[name for name in columns if name in TEXT])
    except (pa.ArrowInvalid, OSError) as error:
        raise ConfigurationError("trace", str(path), f"is not a Parquet file: {error}") from error
    with file:
        missing = [column for column in COLUMNS if column not in file.schema_arrow.names]
        if missing:
            raise ConfigurationError("trace", str(path), f"lacks the columns {', '.join(missing)}")
        table = file.read(columns=list(columns))
    for name in columns:
        if name in TEXT and not pa.types.is_dictionary(table.column(name).type):
            table = table.set_column(
                table.column_names.index(name), name, table.column(name).cast(pa.string()).dictionary_encode()
            )
    read = Columns(table)
    _check_order(path, read)
    return read


def _check_order(path: Path, columns: Columns) -> None:
    """What is judged relies on it: whole runs one after the other, each in the order of seq."""
    run, seq = columns["run"], columns["seq"]
    later = (run[1:] > run[:-1]) | ((run[1:] == run[:-1]) & (seq[1:] > seq[:-1]))
    if not later.all():
        row = int(np.argmin(later)) + 1
        raise ConfigurationError(
            "trace", str(path), f"is not sorted by (run, seq) at row {row}: sort it, then judge it"
        )
