"""Log judge on Spark: tasks read and map the files; rows that are needed together are judged in one task."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.spark.spark_session import SharedSpark, raise_refusals
from statemachines.spark.spark_settings import SparkSettings
from statemachines_reports.foreign_log.log_integrity import HOLES
from statemachines_reports.foreign_log.log_judge import INSTANCE, LogJudge
from statemachines_reports.foreign_log.log_tally import LogTally
from statemachines_reports.foreign_log.log_verdict import LogVerdict

ROWS_IN_TASK: Final = 5_000_000
TALLY: Final = "check string, checked bigint, found bigint, certain bigint, details array<string>"
TYPES: Final = {pa.int64(): "bigint", pa.int32(): "int", pa.int8(): "tinyint"}
TORN: Final = "torn"


def judge_on_spark(judge: LogJudge, settings: SparkSettings) -> LogVerdict:
    """Judge all files of a judge in tasks of Spark; raises what a task raises."""
    with SharedSpark(settings) as session, raise_refusals():
        session.ship_code(())
        tallies = _collect(judge, session.spark, session.link.count_cores())
    torn = sum(one.checked for one in tallies if one.check == TORN)
    return judge.conclude([one for one in tallies if one.check != TORN], torn)


def _collect(judge: LogJudge, spark: Any, cores: int) -> list[LogTally]:
    parts = _list_parts(judge)
    schema = judge.mapper.schema
    shape = ", ".join(f"`{field.name}` {TYPES.get(field.type, 'string')}" for field in schema) + ", `torn` int"
    plain = _plain_schema(judge)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                place, group = parts[number]
                for table, torn in judge.map_file(place, None if group < 0 else group):
                    table = table.cast(plain)
                    column = pa.array([0] * table.num_rows, pa.int32())
                    yield from table.append_column("torn", column).to_batches(100_000)
                    if torn:
                        yield _torn_row(plain, place, torn)

    rows = spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, shape).cache()
    tasks = max(cores, count_tasks(judge))
    found = [_judge_pass(judge, rows, together, columns, tasks) for together, columns in judge.passes.items()]
    torn_rows = rows.where("torn > 0").selectExpr(
        f"'{TORN}' AS check", "CAST(torn AS bigint) AS checked", "0L AS found", "0L AS certain", "array('') AS details"
    )
    lines = reduce(lambda one, other: one.union(other), [*found, torn_rows]).collect()
    rows.unpersist()
    return [LogTally(one[0], one[1], one[2], one[3], tuple(one[4])) for one in lines]


def _judge_pass(judge: LogJudge, rows: Any, together: str, columns: tuple[str, ...], tasks: int) -> Any:
    plain = _plain_schema(judge)
    if together == INSTANCE and "number" in judge.mapping.roles:
        # The rows of an instance are not all of its process: holes are found before they are parted.
        rows, plain = _add_holes(judge, rows), plain.append(pa.field(HOLES, pa.int64()))

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        there = [batch for batch in batches if batch.num_rows]
        table = pa.Table.from_batches(there).drop_columns(["torn"]).cast(plain) if there else plain.empty_table()
        tallies = judge.judge_table(table, together) if there else []
        columns = [[getattr(one, name) for one in tallies] for name in ("check", "checked", "found", "certain")]
        arrays = [pa.array(columns[0], pa.string()), *(pa.array(one, pa.int64()) for one in columns[1:])]
        arrays.append(pa.array([list(one.details) for one in tallies], pa.list_(pa.string())))
        yield pa.record_batch(arrays, ["check", "checked", "found", "certain", "details"])

    there = rows.where("torn = 0")
    apart = there.repartition(tasks, *columns) if columns else there.coalesce(1)
    return apart.sortWithinPartitions("file", "line").mapInArrow(task, TALLY)


def _plain_schema(judge: LogJudge) -> pa.Schema:
    """The columns of mapped rows, their texts as Spark has them."""
    return pa.schema(
        [pa.field(one.name, one.type if one.type in TYPES else pa.string()) for one in judge.mapper.schema]
    )


def _add_holes(judge: LogJudge, rows: Any) -> Any:
    """Rows with a column more: how many holes their process has up to them."""
    process = "process" if "process" in judge.mapping.roles else "file"
    window = f"OVER (PARTITION BY {process} ORDER BY file, line)"
    stepped = rows.selectExpr("*", f"CAST(number - lag(number) {window} > 1 AS bigint) AS jump")
    return stepped.selectExpr("*", f"sum(coalesce(jump, 0L)) {window} AS {HOLES}").drop("jump")


def count_tasks(judge: LogJudge) -> int:
    """So many tasks that each has a few million rows."""
    from statemachines_reports.foreign_log.log_file import estimate_rows

    rows = sum(estimate_rows(path, kind) for path, kind in zip(judge.files, judge.formats, strict=True))
    return rows // ROWS_IN_TASK + 1


def _list_parts(judge: LogJudge) -> list[tuple[int, int]]:
    """A task a file, and of Parquet a task a row group."""
    parts = []
    for place, (path, kind) in enumerate(zip(judge.files, judge.formats, strict=True)):
        if kind == "parquet":
            groups = pq.read_metadata(path).num_row_groups
            parts += [(place, group) for group in range(groups)] or [(place, -1)]
        else:
            parts.append((place, -1))
    return parts


def _torn_row(schema: pa.Schema, place: int, torn: int) -> pa.RecordBatch:
    """A row that stands for last lines that were left out."""
    arrays = [pa.array([None], field.type) for field in schema]
    arrays[0], arrays[1] = pa.array([place], pa.int32()), pa.array([0], pa.int64())
    return pa.record_batch([*arrays, pa.array([torn], pa.int32())], [*schema.names, "torn"])
