"""NDJSON rows: JSON objects, one a line, whose mapped columns have one type each."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
import pyarrow.json as pa_json

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.text_blocks import RawRows, TextBlocks, refuse_log

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
