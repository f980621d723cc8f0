"""Columns: a trace file in memory, its strings as integers; a segment of it is what checks and measures look at.

Trace footer: what the row groups of a Parquet file say of its runs, and of its data, before they are read.

Intervals of rows, of which none may begin before an earlier one of its group has ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.s3_path import file_system_of, show_path
from statemachines.trace import COLUMNS
from statemachines.trace.parquet import ROWS_PER_GROUP, TEXTS
from statemachines_reports.lookup import Lookup, code_column

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
        if place + rows >= row and (latest is None or _one_run(about) != latest):
            run = file.read_row_group(group, columns=["run"]).column("run").fill_null(-1).to_numpy()
            if latest is None:
                latest = int(run[row - 1 - place])
            others = np.flatnonzero(run[max(row - place, 0) :] != latest)
            if len(others):
                return max(row, place) + int(others[0]), latest
        place += rows
    return place, -1 if latest is None else latest


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


T = TypeVar("T")

STEPS = ("step", "timer")
"""The kinds of rows that are steps."""

NEEDED = tuple(column for column in COLUMNS if column != "data")
"""What the checks look at, but for level replay."""

ANALYZED = (*NEEDED, "data")
"""What an analysis reads."""

SEGMENT = 4 * ROWS_PER_GROUP

FEW_CODES = 8
"""Comparing a column with so many codes, one by one, is cheaper than looking its codes up."""


class Columns:
    """Some whole runs: integers as they are (-1 for null), strings as codes into `texts[column]`; `data`: as Arrow has
    it (None: it was not read)."""

    def __init__(self, table: pa.Table) -> None:
        self.rows = table.num_rows
        self.texts: dict[str, list[str]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._rows_of: dict[tuple[str, ...], np.ndarray] = {}
        self._kept: dict[Any, Any] = {}
        self.data: Any = table.column("data") if "data" in table.column_names else None
        for name in table.column_names:
            if name == "data":
                continue
            self._arrays[name] = self._read(name, table.column(name))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray], texts: dict[str, list[str]]) -> Self:
        """Columns of these integers, without data; the code behind the last text of a column says: none."""
        columns = cls.__new__(cls)
        columns.rows = len(arrays["run"])
        columns.texts, columns.data = texts, None
        columns._arrays, columns._rows_of, columns._kept = arrays, {}, {}
        return columns

    def select(self, rows: np.ndarray) -> Columns:
        """Some of the rows, in order, with the texts that they use; without data."""
        arrays, texts = {}, {}
        for name, array in self._arrays.items():
            arrays[name] = array[rows]
            if name in self.texts:
                arrays[name], texts[name] = _use_texts(arrays[name], self.texts[name])
        return Columns.of_arrays(arrays, texts)

    def text(self, name: str, row: int) -> str:
        """The text of a column in a row; "" where there is none."""
        code, texts = self._arrays[name][row], self.texts[name]
        return texts[code] if code < len(texts) else ""

    def runs(self) -> list[tuple[int, int]]:
        """The runs, in order, and how many rows each has."""
        return self.keep(("runs",), self._count_runs)

    def _count_runs(self) -> list[tuple[int, int]]:
        run = self._arrays["run"]
        begins = np.concatenate(([0], np.flatnonzero(run[1:] != run[:-1]) + 1))
        return list(zip(run[begins].tolist(), np.diff(begins, append=len(run)).tolist(), strict=True))

    def rows_of(self, *kinds: str, **texts: tuple[str, ...]) -> np.ndarray:
        """The rows of these kinds, and with one of these texts in each column that is named (no text: any), in order.
        They are in the order of (run, seq), so row numbers serve as times within a run."""
        found = self._rows_of.get(kinds)
        if found is None:
            found = self._rows_of[kinds] = np.flatnonzero(self.is_one_of("kind", kinds))
        for column, wanted in texts.items():
            if wanted:
                found = found[self.is_one_of(column, wanted, found)]
        return found

    def groups(self, column: str, rows: np.ndarray) -> np.ndarray:
        """A number for each of these rows: the same for those of one run with one text in the column."""
        return np.asarray(self["run"][rows] * (len(self.texts[column]) + 1) + self[column][rows])

    def __getstate__(self) -> dict[str, Any]:
        """What can be made again is not sent to another process."""
        return vars(self) | {"_rows_of": {}, "_kept": {}}

    def keep(self, name: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What `make` gives, made once for all that ask for it by this name."""
        if name not in self._kept:
            self._kept[name] = make()
        kept: T = self._kept[name]
        return kept

    def is_one_of(self, column: str, texts: tuple[str, ...], rows: np.ndarray | None = None) -> np.ndarray:
        """Which of the rows (None: all) have one of these texts in the column."""
        wanted = [code for code, text in enumerate(self.texts[column]) if text in texts]
        if not wanted:
            return np.zeros(self.rows if rows is None else len(rows), bool)
        codes = self._arrays[column] if rows is None else self._arrays[column].take(rows)
        if len(wanted) > FEW_CODES:
            is_wanted = np.zeros(len(self.texts[column]) + 1, bool)
            is_wanted[wanted] = True
            return np.asarray(is_wanted.take(codes))
        found = codes == wanted[0]
        for code in wanted[1:]:
            found |= codes == code
        return np.asarray(found)

    def _read(self, name: str, column: Any) -> np.ndarray:
        if name not in TEXTS:
            return _numbers(column.chunks, column.type.to_pandas_dtype(), -1)
        chunks = column.unify_dictionaries().chunks
        self.texts[name] = chunks[0].dictionary.to_pylist() if chunks else []
        return _numbers([chunk.indices for chunk in chunks], np.int32, len(self.texts[name]))


def join_columns(first: Columns, second: Columns) -> Columns:
    """The rows of one behind those of another, with the columns of the first; without data."""
    arrays, texts = {}, {}
    for name, array in first._arrays.items():
        other = second[name]
        if name in first.texts:
            codes = {text: code for code, text in enumerate(dict.fromkeys([*first.texts[name], *second.texts[name]]))}
            texts[name] = list(codes)
            array = np.append(np.arange(len(first.texts[name]), dtype=np.int32), np.int32(len(codes)))[array]
            other = np.array([*(codes[text] for text in second.texts[name]), len(codes)], np.int32)[other]
        arrays[name] = np.concatenate((array, other))
    return Columns.of_arrays(arrays, texts)


def _use_texts(codes: np.ndarray, texts: list[str]) -> tuple[np.ndarray, list[str]]:
    """The codes of those texts alone that are used, and these."""
    is_used = np.zeros(len(texts) + 1, bool)
    is_used[codes] = True
    kept = np.flatnonzero(is_used[:-1]).tolist()
    again = np.full(len(texts) + 1, len(kept), np.int32)
    again[kept] = np.arange(len(kept))
    return again[codes], [texts[code] for code in kept]


class Steps:
    """The steps of a segment that can be judged, coded for the lookup; `index`: their rows.  `unjudged`: protocol that
    is not installed -> how many steps of its machines there are besides."""

    def __init__(self, columns: Columns, lookup: Lookup) -> None:
        self.columns = columns
        self.index = columns.rows_of(*STEPS)
        self.unjudged = self._leave_out(lookup.missing)
        self.run = columns["run"][self.index]
        self.seq = columns["seq"][self.index]
        self.instance = columns["instance"][self.index]
        self.row = columns["row"][self.index]
        self.machine = self._coded("machine", lookup.machines)
        self.event = self._coded("event", lookup.events)
        self.source = self._coded("source", lookup.states)
        self.dest = self._coded("dest", lookup.states)
        # Continuity is judged per instance of a run; the file is in the order of (run, seq), and the sort is stable.
        self.order = stable_order(self.instance, len(columns.texts["instance"]) + 1)
        instance, run = self.instance[self.order], self.run[self.order]
        self.first = np.ones(len(instance), bool)
        self.first[1:] = (instance[1:] != instance[:-1]) | (run[1:] != run[:-1])

    def _leave_out(self, protocols: tuple[str, ...]) -> dict[str, int]:
        found = {}
        for protocol in protocols:
            machines = tuple(text for text in self.columns.texts["machine"] if text.partition("/")[0] == protocol)
            theirs = self.columns.is_one_of("machine", machines, self.index)
            found[protocol] = int(theirs.sum())
            self.index = self.index[~theirs]
        return found

    def _coded(self, name: str, codes: dict[str, int]) -> np.ndarray:
        values = code_column([*self.columns.texts[name], ""], codes)
        return np.asarray(values[self.columns[name][self.index]])

    def text(self, name: str, position: int) -> str:
        """The text of a column of the step at `position`."""
        return self.columns.text(name, self.index[position])


def stable_order(codes: np.ndarray, limit: int) -> np.ndarray:
    """Positions sorted by code (0 to `limit`), equal ones in their order; NumPy sorts 16 bits at a time by radix."""
    order = np.argsort(codes.astype(np.uint16), kind="stable")
    return order if limit <= 2**16 else order[np.argsort((codes[order] >> 16).astype(np.uint16), kind="stable")]


class Segment:
    """Some whole runs, to be judged and measured: `columns`, their `steps`, and the tables as arrays (`lookup`).

    `parameters(run)`: those of the run, as the table of runs has them.
    """

    def __init__(self, columns: Columns, lookup: Lookup, parameters: Callable[[int], Mapping[str, Any]]) -> None:
        self.columns = columns
        self.lookup = lookup
        self.steps = Steps(columns, lookup)
        self.parameters = parameters


def _numbers(chunks: list[Any], kind: Any, null: int) -> np.ndarray:
    """The integers of all chunks, `null` where there is none.  Chunk by chunk: copies of a whole column would cost
    more than judging it."""
    numbers = np.empty(sum(map(len, chunks)), kind)
    begin = 0
    for chunk in chunks:
        end = begin + len(chunk)
        numbers[begin:end] = (chunk.fill_null(null) if chunk.null_count else chunk).to_numpy()
        begin = end
    return numbers


@contextmanager
def reading(path: Path, key: str = "trace") -> Iterator[None]:
    """What Parquet finds wrong meanwhile is wrong with this file: raises `ConfigurationError`, which names it."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), show_path(path)) from error
        why = " ".join(str(error).split())[:200]
        rule = f"is not a Parquet file, or damaged: {why}; restore it from a copy, or take it out"
        raise ConfigurationError(key, show_path(path), rule) from error


def read_run(path: Path, columns: Sequence[str], run: int | None = None, texts: Sequence[str] = ()) -> pa.Table:
    """These columns of a trace file, of one run or of all; `texts`: those that are to be dictionaries."""
    filters = None if run is None else [("run", "=", run)]
    with reading(path):
        return pq.read_table(
            str(path),
            columns=list(columns),
            filters=filters,
            read_dictionary=list(texts),
            page_checksum_verification=True,
            filesystem=file_system_of(path),
        )


def open_trace(path: Path) -> Any:
    """The Parquet file, its columns and their types checked; raises `ConfigurationError` for any other."""
    with reading(path):
        schema = pq.read_schema(str(path), filesystem=file_system_of(path))
    missing = [column for column in COLUMNS if column not in schema.names]
    wrong = [
        f"{name} is {schema.field(name).type}"
        for name in NEEDED
        if name in schema.names and not _fits(name, schema.field(name).type)
    ]
    if missing or wrong:
        what = (
            f"lacks the columns {', '.join(missing)}" if missing else f"has columns of other types: {', '.join(wrong)}"
        )
        raise ConfigurationError("trace", show_path(path), f"is no trace: it {what}")
    with reading(path):
        texts = [name for name in NEEDED if name in TEXTS]
        return pq.ParquetFile(
            str(path), read_dictionary=texts, page_checksum_verification=True, filesystem=file_system_of(path)
        )


def _fits(name: str, kind: Any) -> bool:
    """Texts are strings, with or without a dictionary; everything else is whole numbers."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if name in TEXTS:
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
    return bool(pa.types.is_integer(kind))


def read_columns(
    path: Path, wanted: tuple[str, ...] = ANALYZED, begin: int = 0, end: int | None = None
) -> Iterator[Columns]:
    """The wanted columns of a trace file, some whole runs at a time: about `SEGMENT` rows, or one run where that has
    more.  `begin`, `end`: only runs whose first row is one of these rows of the file.

    What is judged then stays in the cache, and a file may be larger than the memory.  Raises `ConfigurationError` where
    columns are missing, rows are not sorted, or it is no Parquet file.
    """
    with open_trace(path) as file:
        with reading(path):
            first, latest = find_run_begin(file, begin)
            last, _ = find_run_begin(file, file.metadata.num_rows if end is None else end)
        for table in read_tables(path, file, wanted, first, last):
            with reading(path):
                columns = Columns(table)
            check_order(path, columns, latest)
            latest = int(columns["run"][-1])
            yield columns


def columns_of_run(path: Path, run: int) -> Columns:
    """One run of a trace file; `ConfigurationError` as above."""
    open_trace(path).close()
    table = read_run(path, NEEDED, run, [name for name in NEEDED if name in TEXTS])
    return Columns(_with_dictionaries(table))


def read_tables(
    path: Path, file: Any, wanted: tuple[str, ...], begin: int, end: int, is_cut: bool = False
) -> Iterator[pa.Table]:
    """The rows from `begin` to `end`, row group by row group: put together, and cut again where a run ends.  One run of
    `SEGMENT` rows and more is cut, too, if `is_cut`."""
    parts: list[pa.Table] = []
    place = 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        first, last = max(begin - place, 0), min(end - place, rows)
        place += rows
        if first >= last:
            continue
        with reading(path):
            read = _with_dictionaries(file.read_row_group(group, columns=list(wanted)))
        parts.append(read.slice(first, last - first))
        if sum(part.num_rows for part in parts) >= SEGMENT:
            table = pa.concat_tables(parts)
            run = table.column("run").to_numpy()
            last_run = np.flatnonzero(run != run[-1])
            cut = int(last_run[-1]) + 1 if len(last_run) else 0
            if not cut and is_cut:
                cut = table.num_rows
            if cut:
                yield table.slice(0, cut)
            parts = [table.slice(cut)]
    if sum(part.num_rows for part in parts):
        yield pa.concat_tables(parts)


def _with_dictionaries(table: pa.Table) -> pa.Table:
    """Texts of a file that was written without dictionaries get them here."""
    for place, name in enumerate(table.column_names):
        if name in TEXTS and not pa.types.is_dictionary(table.column(name).type):
            table = table.set_column(place, name, table.column(name).cast(pa.string()).dictionary_encode())
    return table


def check_order(path: Path, columns: Columns, latest: int) -> None:
    """What is judged relies on it: whole runs one after the other, each in the order of seq."""
    run, seq = columns["run"], columns["seq"]
    later = (run[1:] > run[:-1]) | ((run[1:] == run[:-1]) & (seq[1:] > seq[:-1]))
    row = 0 if run[0] <= latest else int(np.argmin(later)) + 1 if not later.all() else -1
    if row >= 0:
        rule = f"is not sorted by (run, seq) at run {run[row]} seq {seq[row]}: sort it, then judge it"
        raise ConfigurationError("trace", show_path(path), rule)


def find_overlaps(group: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Positions of intervals of rows that begin before an earlier one of their group has ended."""
    if not len(group):
        return group
    order = np.lexsort((begin, group))
    group, begin, end = group[order], begin[order], end[order]
    new = np.concatenate(([True], group[1:] != group[:-1]))
    # The latest end so far within the group: ends are lifted by group, so that one running maximum serves all.
    lift = (np.cumsum(new) - 1) * (int(end.max()) + 1)
    latest = np.maximum.accumulate(lift + end) - lift
    before = np.concatenate(([-1], latest[:-1]))
    return np.asarray(order[~new & (begin <= before)])
