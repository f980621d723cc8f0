"""Source columns: the columns of a log as its files have them, read as texts, whole numbers, truth values and times."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.text_blocks import RawRows

UNITS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
TEXT: Final = pa.dictionary(pa.int32(), pa.string())


class SourceColumns:
    """The raw columns of some rows, and the errors about them."""

    def __init__(self, name: str, rows: RawRows, lines: Any = None) -> None:
        self._name, self._table = name, rows.table
        self._first = rows.first
        self.lines = pa.array(np.arange(rows.first, rows.first + rows.table.num_rows)) if lines is None else lines

    def read_text(self, columns: tuple[str, ...]) -> Any:
        """Dictionary-encoded texts; several columns are joined by "/"."""
        parts = [self._as_text(one, join=len(columns) > 1) for one in columns]
        found = parts[0]
        if len(parts) > 1:
            found = pc.binary_join_element_wise(*parts, "/").cast(pa.string()).dictionary_encode()
        try:
            for chunk in found.chunks:
                chunk.validate(full=True)
        except pa.ArrowException as error:
            raise self._wrong(
                columns[0], None, "has texts that are not UTF-8, or is damaged; write them so, or as hexadecimal"
            ) from error
        return found

    def _as_text(self, name: str, join: bool) -> Any:
        column = self._table.column(name)
        kind = column.type
        if pa.types.is_dictionary(kind):
            return column.cast(pa.string()) if join else column.cast(TEXT)
        if pa.types.is_floating(kind) or pa.types.is_nested(kind) or pa.types.is_decimal(kind):
            raise self._wrong(name, None, f"is {kind}, and must be text or whole numbers")
        try:
            text = column.cast(pa.string())
        except pa.ArrowException as error:
            raise self._wrong(name, None, f"is {kind}, and must be text: {_shorten(error)}") from error
        return text if join else text.dictionary_encode()

    def read_whole(self, name: str) -> Any:
        """Whole numbers of 64 bits."""
        column = self._table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        try:
            if pa.types.is_boolean(column.type):
                raise pa.ArrowInvalid("truth values")
            return column.cast(pa.int64())
        except pa.ArrowException as error:
            raise self._wrong(name, self._find(column, pa.int64()), "must be whole numbers of 64 bits") from error

    def read_truth(self, name: str) -> Any:
        """1, 0, and -1 where there is none."""
        column = self._table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        try:
            return column.cast(pa.bool_()).cast(pa.int8()).fill_null(-1)
        except pa.ArrowException as error:
            raise self._wrong(name, self._find(column, pa.bool_()), "must be true, false or null") from error

    def read_time(self, name: str, unit: str) -> Any:
        """Nanoseconds since the beginning of 1970, UTC where the log says no zone."""
        column = self._table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        if pa.types.is_timestamp(column.type):
            try:
                return column.cast(pa.timestamp("ns", column.type.tz)).cast(pa.int64())
            except pa.ArrowException as error:
                raise self._wrong(name, None, "has times that do not fit into 64 bits of nanoseconds") from error
        if unit == "iso":
            return self._read_iso(name, column)
        said = f"must be numbers of {unit} (time_unit)"
        if pa.types.is_string(column.type):
            whole = column.cast(pa.float64()) if self._find(column, pa.float64()) is None else None
            if whole is None:
                raise self._wrong(name, self._find(column, pa.float64()), f"{said}; texts of dates are time_unit iso")
            column = column.cast(pa.int64()) if self._find(column, pa.int64()) is None else whole
        if pa.types.is_integer(column.type):
            try:
                return pc.multiply_checked(column.cast(pa.int64()), UNITS[unit])
            except pa.ArrowException as error:
                raise self._wrong(name, None, f"{said}: too large; is the unit right?") from error
        if not pa.types.is_floating(column.type):
            raise self._wrong(name, None, f"{said}, and is {column.type}")
        scaled = pc.round(pc.multiply(column.cast(pa.float64()), float(UNITS[unit])))
        try:
            return scaled.cast(pa.int64())
        except pa.ArrowException as error:
            raise self._wrong(name, None, f"{said}: no number, or too large; is the unit right?") from error

    def _read_iso(self, name: str, column: Any) -> Any:
        if not pa.types.is_string(column.type):
            raise self._wrong(
                name, None, f"must be texts like 2026-01-31T23:59:59.123Z (time_unit), and is {column.type}"
            )
        plain = pa.timestamp("ns")
        for kind in (plain, pa.timestamp("ns", "UTC")):
            try:
                return column.cast(kind).cast(pa.int64())
            except pa.ArrowException:
                continue
        lines = self._find(column, pa.timestamp("ns", "UTC")) or self._find(column, plain)
        raise self._wrong(name, lines, "must be texts like 2026-01-31T23:59:59.123Z, all with a zone or none")

    def _find(self, column: Any, kind: Any) -> int | None:
        """The first row that cannot be cast, by halves; None: all can."""

        def can(begin: int, end: int) -> bool:
            try:
                column.slice(begin, end - begin).cast(kind)
            except pa.ArrowException:
                return False
            return True

        begin, end = 0, len(column)
        if can(begin, end):
            return None
        while end - begin > 1:
            middle = (begin + end) // 2
            begin, end = (begin, middle) if not can(begin, middle) else (middle, end)
        return begin

    def _wrong(self, name: str, row: int | None, rule: str) -> ConfigurationError:
        if row is None:
            return ConfigurationError("column", name, f"of {self._name} {rule}")
        value = str(self._table.column(name)[row].as_py())[:80]
        return ConfigurationError(
            "column", name, f"line {self.lines[row].as_py()} of {self._name} has {value!r}: {rule}"
        )


def _shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
