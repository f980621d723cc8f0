"""Trace frames: the tables of a trace and of an analysis as DataFrames of Spark, whose columns say what they mean."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from statemachines.trace.row import ABOUT_RUNS, TRACE

_TYPES: Final = {"int64": "bigint", "int32": "int", "text": "string", "json": "string"}


def read_trace(spark: Any, path: str) -> Any:
    """The rows of the trace in a folder, in no order: `run` and `seq` say it.

    Each column has its unit and its meaning in the metadata of its field (`unit`, `comment`).  The schema is given, so
    no footer is read before the query runs.

    Example:
        rows = read_trace(spark, "out/sim")
        rows.where("kind = 'drop'").groupBy("event").count()
    """
    fields = [(one.name, _TYPES[one.kind], one.about, one.unit) for one in TRACE]
    return _read(spark, f"{path}/trace-*.parquet", fields)


def read_runs(spark: Any, path: str) -> Any:
    """The runs of the trace in a folder; `parameters`, `versions` and `fingerprints` are JSON objects."""
    fields = [
        (name, "bigint" if name in ("run", "seed") else "string", about, "") for name, about in ABOUT_RUNS.items()
    ]
    return _read(spark, f"{path}/runs-*.parquet", fields)


def read_result(spark: Any, path: str, table: str) -> Any:
    """A table of an analysis (`--out`), such as `findings` or `latencies`; its columns have their units."""
    place = f"{path}/tables/{table}.parquet"
    frame = spark.read.parquet(place)
    columns = read_columns_metadata(place)
    for name in frame.columns:
        frame = frame.withMetadata(name, columns.get(name, {}))
    return frame


def read_columns_metadata(path: str) -> dict[str, dict[str, str]]:
    """Column -> `unit` and `about`, as a file of ours says; {} for one that says nothing."""
    from pyarrow import fs

    system, place = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    metadata = pq.read_schema(place, filesystem=system).metadata or {}
    return msgspec.json.decode(metadata.get(b"gapless.columns", b"{}"), type=dict[str, dict[str, str]])


def _read(spark: Any, place: str, fields: list[tuple[str, str, str, str]]) -> Any:
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    types = {"bigint": LongType(), "int": IntegerType(), "string": StringType()}
    schema = StructType(
        [
            StructField(name, types[kind], True, {"comment": about, **({"unit": unit} if unit else {})})
            for name, kind, about, unit in fields
        ]
    )
    return spark.read.schema(schema).parquet(place)
