"""Log rows: a mapped table as arrays, texts as codes (-1: none), in the order of (file, line).

Log integrity: the lines of each process follow each other in time and number; what does not is no log to judge.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.log_mapping import COMMON_ROLES, LogMapping
from statemachines_reports.foreign_log.log_verdict import SHOWN, LogTally

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


RUNS_SHOWN: Final = 20
CLOCK_STEP_NS: Final = 500_000
"""A clock that is kept right may be set back by so much; nothing is said of lines that are that close."""
HOLES: Final = "holes"
"""The column that Spark adds: what `find_holes` finds."""


def check_lines(log: LogRows, mapping: LogMapping) -> list[LogTally]:
    """The rows of whole processes: how many lines are missing, and the runs that they are of.

    Raises `ConfigurationError` for lines that are doubled or out of order, or that nothing orders.
    """
    if not any(role in log for role in COMMON_ROLES):
        return [LogTally("lines", log.size)]
    codes, count = code_rows(log.process)
    order, begins = group_rows(codes, count)
    follows = np.ones(log.size, bool)
    follows[begins[:-1]] = False
    _check_files(log, order, follows)
    tallies = [LogTally("lines", log.size)]
    if "number" in log:
        tallies = [_check_numbers(log, order, follows)]
    if "time" in log:
        _check_times(log, mapping, order, follows)
    if "run" in log and log.size:
        names = log.list_texts("run")
        runs = sorted(names[code] for code in np.unique(log["run"]).tolist())
        tallies.append(LogTally("runs", len(runs), details=tuple(runs[:RUNS_SHOWN])))
    return tallies


def _check_files(log: LogRows, order: np.ndarray, follows: np.ndarray) -> None:
    """Several files of one process are ordered by something."""
    if "process" not in log or "time" in log or "number" in log:
        return
    file = log["file"][order]
    changes = np.flatnonzero((file[1:] != file[:-1]) & follows[1:])
    if len(changes):
        before, after = int(order[changes[0]]), int(order[changes[0] + 1])
        rule = (
            f"has lines in {log.names[file[changes[0]]]} and in {log.names[file[changes[0] + 1]]}, and nothing says "
            "which come first; map columns.time or columns.number, or put its lines into one file"
        )
        assert before != after
        raise ConfigurationError("process", log.name_process(after), rule)


def _check_numbers(log: LogRows, order: np.ndarray, follows: np.ndarray) -> LogTally:
    number = log["number"][order]
    step = np.diff(number, prepend=number[:1])
    bad = np.flatnonzero(follows & (step <= 0))
    if len(bad):
        row, before = int(order[bad[0]]), int(order[bad[0] - 1])
        if step[bad[0]] == 0:
            rule = f"is also that of {log.name_place(before)}: the line is there twice; remove one of them"
        else:
            rule = (
                f"comes after {log['number'][before]} ({log.name_place(before)}): the log is out of order, or of two "
                "runs; sort it, give older files first, or map columns.run"
            )
        raise ConfigurationError(
            "number", f"{log['number'][row]} of {log.name_process(row)} in {log.name_place(row)}", rule
        )
    holes = np.flatnonzero(follows & (step > 1))
    details = []
    for place in holes[:SHOWN].tolist():
        row = int(order[place])
        details.append(f"{log.name_process(row)}: {step[place] - 1:,} lines are missing before {log.name_place(row)}")
    return LogTally("lines", log.size, int((step[holes] - 1).sum()), 0, tuple(details))


def find_holes(log: LogRows) -> np.ndarray:
    """For each row, how many holes its process has up to it."""
    if HOLES in log:
        return log[HOLES]
    holes = np.zeros(log.size, np.int64)
    if "number" not in log or not log.size:
        return holes
    codes, count = code_rows(log.process)
    order, begins = group_rows(codes, count)
    number = log["number"][order]
    jumps = np.diff(number, prepend=number[0] - 1) != 1
    jumps[begins[:-1]] = False
    sums = np.cumsum(jumps)
    holes[order] = sums - np.repeat(sums[begins[:-1]], np.diff(begins))
    return holes


def _check_times(log: LogRows, mapping: LogMapping, order: np.ndarray, follows: np.ndarray) -> None:
    time = log["time"][order]
    allowed = max(int((mapping.clock_error_ms or 0.0) * 1e6), CLOCK_STEP_NS)
    back = np.flatnonzero(follows[1:] & (time[1:] < time[:-1] - allowed)) + 1
    if len(back):
        row, before = int(order[back[0]]), int(order[back[0] - 1])
        ms = (time[back[0] - 1] - time[back[0]]) / 1e6
        rule = (
            f"{log.name_place(row)} is {ms:,.3f} ms before {log.name_place(before)}: the log is out of order, or of "
            "two runs; sort it, give older files first, map columns.run, or declare clock_error_ms if the clock was "
            "set back"
        )
        raise ConfigurationError("time", log.name_process(row), rule)
