"""Log files: NDJSON, CSV and Parquet, some rows at a time, of the mapped columns alone.

A text file is cut at ends of lines, so neither its size nor the length of a line has to fit anywhere.  A last line that
was not ended is left out and counted: its writer was killed, or it is still writing.

NDJSON rows: JSON objects, one a line, whose mapped columns have one type each.

Text blocks: a text file cut at ends of lines, so that neither it nor a long line has to fit into memory.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.registry import make_unknown_error
from statemachines_reports.columns import reading

BLOCK: Final = 32 * 2**20
"""Bytes of a text file that are decoded at a time."""
LINE_MAX: Final = 2**20


class RawRows(NamedTuple):
    """Some rows as the file has them: `first`: the number of the first, from 1; `torn`: last lines left out."""

    first: int
    table: pa.Table
    torn: int = 0


class TextBlocks:
    """A text file cut at ends of lines; `line`: the number of the first line of the block; `torn`: what is left."""

    def __init__(self, path: Path, file: BinaryIO, first: int = 1) -> None:
        self._path, self._file = path, file
        self.line = first
        self.torn = b""

    def __iter__(self) -> Iterator[bytes]:
        kept = b""
        while part := self._file.read(BLOCK):
            block, end, rest = (kept + part).rpartition(b"\n")
            if len(rest) > LINE_MAX:
                lines = self.line + block.count(b"\n") + len(end)
                raise refuse_log(self._path, f"line {lines} is longer than {LINE_MAX} bytes; is it a log of lines?")
            kept = rest
            if end:
                yield block + end
                self.line += block.count(b"\n") + 1
        self.torn = kept if kept.strip() else b""


def refuse_log(path: Path, rule: str) -> ConfigurationError:
    """The error about a file of a log."""
    return ConfigurationError("log", str(path), rule)


LOOKED_AT: Final = 1_000
"""So many lines of NDJSON say which columns there are, and of what type, unless those that follow differ."""


def read_ndjson(path: Path, file: BinaryIO, columns: Sequence[str]) -> Iterator[RawRows]:
    """The rows of a file; raises `ConfigurationError` that names the line and the mend."""
    blocks, types = TextBlocks(path, file), dict[str, Any]()
    for block in blocks:
        yield RawRows(blocks.line, _parse_ndjson(path, block, blocks.line, columns, types))
    if blocks.torn:
        try:
            whole = isinstance(msgspec.json.decode(blocks.torn), dict)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            whole = False
        if whole:
            yield RawRows(blocks.line, _parse_ndjson(path, blocks.torn + b"\n", blocks.line, columns, types))
        elif blocks.line == 1:
            raise refuse_log(path, "line 1 is no JSON object: is it NDJSON? give format in the mapping if it is not")
        else:
            yield RawRows(blocks.line, _build_schema(columns, types).empty_table(), 1)


def _look_at(
    path: Path, block: bytes, first: int, columns: Sequence[str], types: dict[str, Any], lines_max: int
) -> None:
    """Note the types of the mapped columns, by some lines."""
    for number, line in enumerate(block.split(b"\n", lines_max)[:lines_max], first):
        if not line.strip():
            continue
        found = decode_line(path, number, line)
        for name in columns:
            value = found.get(name)
            if value is None:
                continue
            kind = _find_type(path, number, name, value)
            before = types.setdefault(name, kind)
            if before != kind:
                if {before, kind} != {pa.int64(), pa.float64()}:
                    raise _mixed(path, number, name)
                types[name] = pa.float64()


def _build_schema(columns: Sequence[str], types: dict[str, Any]) -> pa.Schema:
    return pa.schema([(name, types.get(name, pa.string())) for name in columns])


def _find_type(path: Path, line: int, name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, int):
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    raise refuse_log(path, f"line {line}: {name!r} is nested; write what is inside as a column of its own")


def decode_line(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """The object in a line; raises `ConfigurationError` where it is none."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise refuse_log(path, f"line {number} is no JSON: {error}; mend or remove that line") from error
    if not isinstance(found, dict):
        raise refuse_log(path, f"line {number} is no JSON object, but a {type(found).__name__}")
    return found


def _mixed(path: Path, line: int, name: str) -> ConfigurationError:
    return refuse_log(path, f"line {line}: {name!r} has another type than in the lines before; write one type")


def _parse_ndjson(path: Path, block: bytes, first: int, columns: Sequence[str], types: dict[str, Any]) -> pa.Table:
    lines = block.count(b"\n")
    lines_max = LOOKED_AT
    while True:
        if any(name not in types for name in columns) or lines_max > LOOKED_AT:
            _look_at(path, block, first, columns, types, lines_max)
        schema = _build_schema(columns, types)
        options = pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
        read = pa_json.ReadOptions(block_size=len(block) + 1, use_threads=False)
        try:
            table = pa_json.read_json(io.BytesIO(block), read_options=read, parse_options=options)
            break
        except (pa.ArrowException, ValueError) as error:
            if lines_max > LOOKED_AT:
                _find_wrong_line(path, block, first, schema)
                raise refuse_log(path, f"lines from {first}: {' '.join(str(error).split())[:200]}") from error
            lines_max = lines + 1
    if table.num_rows != lines:
        _find_wrong_line(path, block, first, schema)
        raise refuse_log(path, f"lines from {first}: {lines} lines hold {table.num_rows} objects; write one a line")
    return table.select(schema.names)


def _find_wrong_line(path: Path, block: bytes, first: int, schema: pa.Schema) -> None:
    """Raises for the first line that Arrow did not take."""
    for number, line in enumerate(block.split(b"\n")[:-1], first):
        if not line.strip():
            raise refuse_log(path, f"line {number} is empty; remove it")
        found = decode_line(path, number, line)
        for name, kind in zip(schema.names, schema.types, strict=True):
            value = found.get(name)
            if value is None:
                continue
            there = _find_type(path, number, name, value)
            if there != kind and (there, kind) != (pa.int64(), pa.float64()):
                raise _mixed(path, number, name)
            if there == pa.int64() and not -(2**63) <= value < 2**63:
                raise refuse_log(path, f"line {number}: {name!r} is beyond 64 bits; write it as text")


ENDINGS: Final = {".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".parquet": "parquet"}
COLUMNS_MAX: Final = 2_000
GROUP_MAX: Final = 50_000_000
"""Rows of a row group of Parquet: it is read as a whole."""


PACKED: Final = ".gz"
"""NDJSON and CSV may be packed by gzip, which makes them about ten times smaller."""


def find_format(path: Path, given: str) -> str:
    """What kind of file it is; raises `ConfigurationError` for an ending that says nothing."""
    found = given or ENDINGS.get(path.with_suffix("").suffix.lower() if _is_packed(path) else path.suffix.lower(), "")
    if not found:
        rule = f"has an ending that says nothing; name it {', '.join(ENDINGS)}, or give format in the mapping"
        raise ConfigurationError("log", str(path), rule)
    return found


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == PACKED


@contextmanager
def _open_text(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a text file, unpacked; raises `ConfigurationError` where they cannot be."""
    try:
        with gzip.open(path) if _is_packed(path) else path.open("rb") as file:
            yield cast(BinaryIO, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise refuse_log(path, f"cannot be unpacked: {error}; pack it anew, or give it unpacked") from error


def estimate_rows(path: Path, kind: str) -> int:
    """About how many rows there are."""
    if kind == "parquet":
        with reading(path, "log"):
            return int(pq.read_metadata(path).num_rows)
    return path.stat().st_size // (10 if _is_packed(path) else 100)


def read_rows(path: Path, kind: str, columns: Sequence[str], group: int | None = None) -> Iterator[RawRows]:
    """The rows of a file; `group`: of Parquet this row group alone.

    Raises `ConfigurationError` that names the file, the line and the mend.
    """
    if kind == "parquet":
        yield from _read_parquet(path, columns, group)
        return
    with _open_text(path) as file:
        yield from (read_ndjson if kind == "ndjson" else _read_csv)(path, file, columns)


# -- Parquet ------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, columns: Sequence[str], group: int | None) -> Iterator[RawRows]:
    with reading(path, "log"):
        schema = pq.read_schema(path)
    there = [one for one in columns if one in schema.names]
    nested = next((one for one in there if pa.types.is_nested(schema.field(one).type)), None)
    if nested:
        raise refuse_log(path, f"column {nested!r} is nested; write what is inside as a column of its own")
    texts = [one for one in there if _is_text(schema.field(one).type)]
    with reading(path, "log"), pq.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
        sizes = [file.metadata.row_group(one).num_rows for one in range(file.num_row_groups)]
        if max(sizes, default=0) > GROUP_MAX:
            raise refuse_log(path, f"has a row group of {max(sizes):,} rows; write groups of at most {GROUP_MAX:,}")
        wanted = range(len(sizes)) if group is None else (group,)
        for one in wanted:
            table = _add_missing(file.read_row_group(one, columns=there), columns)
            yield RawRows(1 + sum(sizes[:one]), table)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


# -- CSV ----------------------------------------------------------------------------------------------------


def _read_csv(path: Path, file: BinaryIO, columns: Sequence[str]) -> Iterator[RawRows]:
    names = _read_head(path, file)
    there = [one for one in columns if one in names]
    convert = pa_csv.ConvertOptions(
        include_columns=there,
        column_types=dict.fromkeys(there, pa.string()),
        strings_can_be_null=True,
        null_values=[""],
    )
    blocks = TextBlocks(path, file, 2)
    for block in blocks:
        read = pa_csv.ReadOptions(column_names=names, block_size=max(len(block), 1), use_threads=False)
        try:
            table = pa_csv.read_csv(io.BytesIO(block), read_options=read, convert_options=convert)
            table = _add_missing(table, columns)
        except (pa.ArrowException, ValueError) as error:
            _find_wrong_row(path, block, blocks.line, len(names))
            raise refuse_log(path, f"lines from {blocks.line}: {' '.join(str(error).split())[:200]}") from error
        if table.num_rows != block.count(b"\n"):
            _find_wrong_row(path, block, blocks.line, len(names))
            raise refuse_log(path, f"lines from {blocks.line} hold other rows than lines; write one row a line")
        yield RawRows(blocks.line, table)
    if blocks.torn:
        yield RawRows(blocks.line, pa.table({name: pa.array([], pa.string()) for name in columns}), 1)


def _find_wrong_row(path: Path, block: bytes, first: int, size: int) -> None:
    for number, line in enumerate(block.split(b"\n")[:-1], first):
        try:
            cells = next(csv.reader([line.decode()]), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise refuse_log(path, f"line {number} is no CSV: {error}") from error
        if len(cells) != size:
            raise refuse_log(
                path, f"line {number} has {len(cells)} cells, and the head {size}; mend or remove that line"
            )


def _read_head(path: Path, file: BinaryIO) -> list[str]:
    """The names in the first line of CSV."""
    head = file.readline(LINE_MAX)
    try:
        names = next(csv.reader([head.decode("utf-8-sig").rstrip("\r\n")]), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise refuse_log(path, f"line 1 is no head of CSV: {error}") from error
    if not head.endswith(b"\n"):
        raise refuse_log(path, "has no line below its head; the first line names the columns")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise refuse_log(path, f"has two columns {twice!r}; give one of them another name")
    return names


def _add_missing(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Columns that this file does not have are empty in it."""
    for name in columns:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    return table


def list_columns(path: Path, kind: str) -> list[str]:
    """The columns of a file; of NDJSON those of its first lines."""
    if kind == "parquet":
        with reading(path, "log"):
            return list(pq.read_schema(path).names)
    with _open_text(path) as file:
        if kind == "csv":
            return _read_head(path, file)
        names: dict[str, None] = {}
        for number, line in enumerate(iter(lambda: file.readline(LINE_MAX), b""), 1):
            if number > LOOKED_AT or len(names) > COLUMNS_MAX or not line.endswith(b"\n"):
                break
            if line.strip():
                names.update(dict.fromkeys(decode_line(path, number, line)))
        return list(names)


def check_columns(paths: Sequence[Path], kinds: Sequence[str], columns: Sequence[str]) -> None:
    """Some file has each of the columns; raises `ConfigurationError` for one that is in none."""
    there = dict.fromkeys(name for one in zip(paths, kinds, strict=True) for name in list_columns(*one))
    for name in columns:
        if there and name not in there:
            raise make_unknown_error("column", name, list(there)[:40], "the mapping may name it otherwise")
