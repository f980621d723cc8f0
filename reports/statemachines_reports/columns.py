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
NEEDED = tuple(column for column in COLUMNS if column not in ("data", "msg", "term", "peer"))
"""What judging reads; the rest stays on disk."""


class Columns:
    """The needed columns of a file: integers as they are (-1 for null), strings as codes into `texts[column]`."""

    def __init__(self, table: pa.Table) -> None:
        self.rows = table.num_rows
        self.texts: dict[str, list[str]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        for name in table.column_names:
            self._arrays[name] = self._read(name, table.column(name))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def code(self, column: str, text: str) -> int:
        """The code of a text in this file; -1 where it does not occur."""
        try:
            return self.texts[column].index(text)
        except ValueError:
            return -1

    def is_one_of(self, column: str, texts: tuple[str, ...]) -> np.ndarray:
        """Rows whose column has one of these texts."""
        wanted = np.array([text in texts for text in self.texts[column]] + [False])
        return np.asarray(wanted[self._arrays[column]])

    def _read(self, name: str, column: Any) -> np.ndarray:
        if name in TEXT:
            combined = column.unify_dictionaries().combine_chunks()
            if isinstance(combined, pa.ChunkedArray):
                combined = pa.concat_arrays(combined.chunks) if combined.num_chunks else pa.array([], combined.type)
            self.texts[name] = combined.dictionary.to_pylist()
            return np.asarray(combined.indices.fill_null(len(self.texts[name])).to_numpy(zero_copy_only=False))
        return np.asarray(column.fill_null(-1).to_numpy())


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
    return Columns(table)
