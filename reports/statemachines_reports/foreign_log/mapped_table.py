"""Mapped tables: rows of a log under the names of what they are, their texts as dictionaries, their times in ns.

The columns are `file` (its place in the command), `line`, the mapped roles, `order` (what orders ids that are numbers)
and `guard:NAME`.  Rows that the mapping ignores, and those of other runs, are left out.

Source columns: the columns of a log as its files have them, read as texts, whole numbers, truth values and times.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statemachines.kernel import ConfigurationError
from statemachines.registry import make_unknown_error
from statemachines_reports.foreign_log.log_file import RawRows
from statemachines_reports.foreign_log.log_mapping import DeliveryKind, LogMapping, format_value, list_value_names

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

    def _plain(self, name: str) -> Any:
        """The column, its texts without a dictionary."""
        column = self._table.column(name)
        return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column

    def read_whole(self, name: str) -> Any:
        """Whole numbers of 64 bits."""
        return self._cast(name, pa.int64(), "must be whole numbers of 64 bits")

    def read_truth(self, name: str) -> Any:
        """1, 0, and -1 where there is none."""
        return self._cast(name, pa.bool_(), "must be true, false or null").cast(pa.int8()).fill_null(-1)

    def _cast(self, name: str, kind: Any, rule: str) -> Any:
        column = self._plain(name)
        try:
            if pa.types.is_boolean(column.type) and pa.types.is_integer(kind):
                raise pa.ArrowInvalid("truth values")
            return column.cast(kind)
        except pa.ArrowException as error:
            raise self._wrong(name, self._find(column, kind), rule) from error

    def read_time(self, name: str, unit: str) -> Any:
        """Nanoseconds since the beginning of 1970, UTC where the log says no zone."""
        column = self._plain(name)
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


WHOLE: Final = ("time", "number")
"""Whole numbers; all other roles are texts."""


class TableMapper:
    """Maps the rows of the files; `events` and `states`: the names that the machine has, none of a delivery log."""

    def __init__(self, mapping: LogMapping, events: Iterable[str] = (), states: Iterable[str] = ()) -> None:
        self.mapping = mapping
        self.columns = list(
            dict.fromkeys([*(c for names in mapping.roles.values() for c in names), *mapping.guards.values()])
        )
        self._known = {
            "event": tuple(events),
            "state": tuple(states),
            "source": tuple(states),
            "kind": tuple(map(str, DeliveryKind)),
        }
        self._names = {role: list_value_names(mapping, role) for role in ("event", "state", "kind")}
        self._names["source"] = self._names["state"]
        for role, names in self._names.items():
            for name in names.values():
                if name not in self._known[role]:
                    raise make_unknown_error(f"--map values.{role}", name, self._known[role])
        self._ignored = frozenset(map(format_value, mapping.ignore))

    @property
    def schema(self) -> pa.Schema:
        """The columns of a mapped table."""
        fields = [("file", pa.int32()), ("line", pa.int64())]
        fields += [(role, pa.int64() if role in WHOLE else TEXT) for role in self.mapping.roles]
        if self.mapping.deliveries is not None and self.mapping.rules.every_line:
            fields.append(("kind", TEXT))
        if self._is_numbered:
            fields.append(("order", pa.int64()))
        fields += [(f"guard:{guard}", pa.int8()) for guard in self.mapping.guards]
        return pa.schema(fields)

    @property
    def _is_numbered(self) -> bool:
        return self.mapping.deliveries is not None and self.mapping.rules.order == "number"

    def map_rows(self, name: str, file: int, rows: RawRows) -> pa.Table:
        """The mapped rows of the file called `name`, the one at `file`.

        Raises `ConfigurationError` that names the file, the line, the column and the mend.
        """
        source = SourceColumns(name, rows)
        found: dict[str, Any] = {"file": pa.array(np.full(rows.table.num_rows, file, np.int32)), "line": source.lines}
        for role, columns in self.mapping.roles.items():
            if role == "time":
                found[role] = source.read_time(columns[0], self.mapping.time_unit)
            elif role in WHOLE:
                found[role] = source.read_whole(columns[0])
            else:
                found[role] = source.read_text(columns)
        for guard, column in self.mapping.guards.items():
            found[f"guard:{guard}"] = source.read_truth(column)
        rules = self.mapping.deliveries
        if rules is not None and rules.every_line:
            codes = pa.array(np.zeros(rows.table.num_rows, np.int32))
            found["kind"] = pa.DictionaryArray.from_arrays(codes, pa.array([rules.every_line]))
        table = pa.table(found)
        if self.mapping.run:
            table = table.filter(pc.equal(table.column("run").cast(pa.string()), self.mapping.run))
        table = self._name_values(name, table)
        if self._is_numbered:
            numbers = SourceColumns(name, RawRows(0, table), table.column("line")).read_whole("id")
            table = table.append_column("order", numbers)
        self._check_nulls(name, table)
        return table.select(self.schema.names)

    def _name_values(self, name: str, table: pa.Table) -> pa.Table:
        """Values as the judge calls them; ignored rows are gone."""
        role = self.mapping.value_role
        keep = None
        for one in ("event", "state", "source", "kind"):
            if one not in table.column_names:
                continue
            column = table.column(one).unify_dictionaries()
            texts = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
            ignored = [place for place, text in enumerate(texts) if one == role and text in self._ignored]
            if ignored:
                codes = _read_codes(column)
                keep = pa.array(~np.isin(codes, ignored))
            renamed = []
            for place, text in enumerate(texts):
                value = self._names[one].get(text, text)
                if value not in self._known[one] and place not in ignored:
                    self._refuse_value(name, table, column, one, place, text)
                renamed.append(value)
            table = table.set_column(table.column_names.index(one), one, _with_texts(column, renamed))
        return table if keep is None else table.filter(keep)

    def _refuse_value(self, name: str, table: pa.Table, column: Any, role: str, place: int, text: str) -> None:
        rows = np.flatnonzero(_read_codes(column) == place)
        if not len(rows):
            return
        line = table.column("line")[int(rows[0])].as_py()
        known, mend = self._known[role], f"map it in [values.{'state' if role == 'source' else role}]"
        mend += ", or list it in ignore" if role == self.mapping.value_role else ""
        rule = f"in line {line} of {name} is none of {', '.join(known)}; {mend}"
        raise ConfigurationError(role, text[:80], rule)

    def _check_nulls(self, name: str, table: pa.Table) -> None:
        """Every row has what its judging needs."""
        for role, rows in self._needed(table):
            column = table.column(role)
            if not column.null_count:
                continue
            missing = np.asarray(column.is_null())
            if rows is not None:
                missing = missing & rows
            lines = np.flatnonzero(missing)
            if len(lines):
                line = table.column("line")[int(lines[0])].as_py()
                more = f", nor have {len(lines) - 1:,} of the lines after it" if len(lines) > 1 else ""
                listed = " and ".join(self.mapping.roles.get(role, (role,)))
                rule = f"line {line} of {name} has none{more}; log it, or ignore those rows"
                raise ConfigurationError(role, listed, rule)

    def _needed(self, table: pa.Table) -> Iterable[tuple[str, np.ndarray | None]]:
        roles = self.mapping.roles
        yield from ((role, None) for role in ("instance", "process", "time", "number", "run") if role in roles)
        yield self.mapping.value_role, None
        if self.mapping.level == "states":
            yield "state", None
        if self.mapping.deliveries is None:
            return
        rules = self.mapping.rules
        column = table.column("kind").unify_dictionaries()
        texts = column.chunk(0).dictionary.to_pylist() if column.num_chunks else []
        codes = _read_codes(column)
        commits, delivers = (
            codes == (texts.index(kind) if kind in texts else -2)
            for kind in (DeliveryKind.COMMIT, DeliveryKind.DELIVER)
        )
        same = [role for role in rules.same if role not in ("consumer", "group")]
        yield from ((role, ~commits) for role in same)
        yield from ((role, delivers) for role in rules.same if role not in same)
        if rules.order != "none":
            yield from ((role, None) for role in ("stream", "id"))
        if commits.any() and (rules.order == "none" or "stream" not in rules.same):
            rule = 'acknowledges the smaller numbers of a stream: same needs "stream" and "id", and order "number"'
            raise ConfigurationError("kind", "commit", rule)


def _read_codes(column: Any) -> np.ndarray:
    return np.concatenate(
        [np.asarray(chunk.indices.fill_null(-1)) for chunk in column.chunks] or [np.zeros(0, np.int32)]
    )


def _with_texts(column: Any, texts: list[str]) -> Any:
    """The column with other texts for its codes; codes whose texts are equal become one."""
    distinct = list(dict.fromkeys(texts))
    if distinct == texts:
        chunks = [
            pa.DictionaryArray.from_arrays(chunk.indices, pa.array(texts, pa.string())) for chunk in column.chunks
        ]
        return pa.chunked_array(chunks, TEXT)
    place = {text: code for code, text in enumerate(distinct)}
    moved = np.array([place[text] for text in texts] + [-1], np.int32)
    codes = moved[_read_codes(column)]
    indices = pa.array(codes, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.string()))
