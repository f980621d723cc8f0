"""Log rows: a mapped table as arrays, texts as codes (-1: none), in the order of (file, line)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statemachines.kernel import ConfigurationError

PART: Final = 2**20
"""So many rows are sorted at a time."""
TEXT_MAX: Final = 200
NOTHING: Final = np.iinfo(np.int64).min


class LogRows:
    """Rows of a log; `names`: of its files."""

    def __init__(self, table: pa.Table, names: Sequence[str]) -> None:
        self.size = table.num_rows
        self.names = names
        self._texts: dict[str, Any] = {}
        self._arrays: dict[str, np.ndarray] = {}
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            column = table.column(name)
            if pa.types.is_string(kind):
                column = column.dictionary_encode()
            if pa.types.is_dictionary(column.type):
                chunks = column.unify_dictionaries().chunks
                self._texts[name] = chunks[0].dictionary if chunks else pa.array([], pa.string())
                parts = [np.asarray(_fill(chunk.indices, -1)) for chunk in chunks]
            else:
                null = NOTHING if pa.types.is_int64(kind) else -1
                parts = [np.asarray(_fill(chunk, null)) for chunk in column.chunks]
            self._arrays[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def list_texts(self, name: str) -> list[str]:
        """The texts of a column by code."""
        return list(self._texts[name].to_pylist())

    def count_texts(self, name: str) -> int:
        """How many texts a column has."""
        return len(self._texts[name])

    def read_text(self, name: str, row: int) -> str:
        """The text of a column in a row, for people: its beginning, and "" where there is none."""
        code = int(self._arrays[name][row])
        return str(self._texts[name][code].as_py())[:TEXT_MAX] if code >= 0 else ""

    def name_place(self, row: int) -> str:
        """Where a row stands, for people."""
        return f"{self.names[int(self['file'][row])]} line {int(self['line'][row])}"

    @property
    def process(self) -> np.ndarray:
        """Codes of the processes: by their column, else by file."""
        return self["process"] if "process" in self else self["file"]

    def name_process(self, row: int) -> str:
        """The process of a row."""
        return self.read_text("process", row) if "process" in self else self.names[int(self["file"][row])]

    def read_order(self, kind: str) -> np.ndarray:
        """What orders the ids of streams, as integers that can be compared; raises `ConfigurationError` where an id is
        none of the kind."""
        if kind == "number":
            return self["order"]
        used = np.unique(self["id"])
        texts = self._texts["id"].take(pa.array(used))
        fits = pc.match_substring_regex(texts, r"^[0-9]{1,18}-[0-9]{1,18}$").to_numpy(zero_copy_only=False)
        if not fits.all():
            code = int(used[np.flatnonzero(~fits)[0]])
            row = int(np.flatnonzero(self["id"] == code)[0])
            rule = (
                f"{self.name_place(row)}: must be MILLISECONDS-NUMBER; say another order in [deliveries] if it is not"
            )
            raise ConfigurationError("id", self.read_text("id", row)[:80], rule)
        parts = pc.split_pattern(texts, "-").flatten().cast(pa.int64()).to_numpy().reshape(-1, 2)
        order = np.lexsort((parts[:, 1], parts[:, 0]))
        sorted_parts = parts[order]
        ranks = np.zeros(len(parts), np.int64)
        ranks[order] = np.cumsum(np.any(np.diff(sorted_parts, axis=0, prepend=-1) != 0, axis=1))
        return np.asarray(ranks[np.searchsorted(used, self["id"])])


def _fill(chunk: Any, null: int) -> Any:
    return chunk.fill_null(null) if chunk.null_count else chunk


def code_rows(*columns: np.ndarray) -> tuple[np.ndarray, int]:
    """One code a row for the values of several columns, from 0, and how many codes there are."""
    code, size = _dense(columns[0])
    for column in columns[1:]:
        own, count = _dense(column)
        if size * count >= 2**62:
            code, size = _dense(code)
        code, size = code * count + own, size * count
    return (code, size) if len(columns) == 1 else _dense(code)


def _dense(column: np.ndarray) -> tuple[np.ndarray, int]:
    """The values as codes from 0, in their order."""
    if not len(column):
        return column.astype(np.int64), 0
    low, high = int(column.min()), int(column.max())
    if high - low < 4 * len(column) + 1_024:
        shifted = column.astype(np.int64) - low
        there = np.zeros(high - low + 1, bool)
        there[shifted] = True
        if there.all():
            return shifted, len(there)
        return (np.cumsum(there) - 1)[shifted], int(there.sum())
    values, codes = np.unique(column, return_inverse=True)
    return codes, len(values)


def group_rows(codes: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in the order of their codes, equal ones in their own, and where each code begins (one more at the end).

    Parts of the rows are sorted side by side (NumPy lets threads), and then put together code by code.
    """
    from statemachines_reports.columns import stable_order

    counts = np.bincount(codes, minlength=count)
    begins = np.concatenate(([0], np.cumsum(counts)))
    parts = [codes[at : at + PART] for at in range(0, len(codes), PART)]
    if count > 2**32 or len(parts) < 2 or count > PART:
        order = np.argsort(codes, kind="stable") if count > 2**32 else stable_order(codes, count)
        return order, begins
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        orders = list(pool.map(lambda part: stable_order(part, count), parts))
    whole = np.empty(len(codes), np.int64)
    place = begins[:-1].copy()
    for number, (part, order) in enumerate(zip(parts, orders, strict=True)):
        own = np.bincount(part, minlength=count)
        # Where the rows of a code go, less where they stand in their part.
        shift = np.repeat(place - (np.cumsum(own) - own), own)
        whole[np.arange(len(part)) + shift] = order + number * PART
        place += own
    return whole, begins
