"""Log analysis: the files of a foreign log are judged, in this process or in tasks of Spark.

State steps: level `states`: each step of a log is judged by itself against the table of its machine.

Log judge: files of a foreign log are read, mapped and judged.

`LogJudge.judge_table` is what this process and tasks of Spark run: of mapped rows, which hold whole processes,
instances, messages or streams.

Log judge on Spark: tasks read and map the files; rows that are needed together are judged in one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.kernel import ConfigurationError
from statemachines.spark.spark_session import SharedSpark, raise_refusals
from statemachines.spark.spark_settings import SparkSettings
from statemachines_reports.foreign_log.deliveries import MESSAGE, PER, STREAM, judge_deliveries
from statemachines_reports.foreign_log.event_sets import InstanceRows, judge_events
from statemachines_reports.foreign_log.log_file import check_columns, estimate_rows, find_format, read_rows
from statemachines_reports.foreign_log.log_mapping import LogMapping
from statemachines_reports.foreign_log.log_rows import HOLES, LogRows, check_lines
from statemachines_reports.foreign_log.log_verdict import SHOWN, LogTally, LogVerdict, add_tallies, conclude
from statemachines_reports.foreign_log.machine_table import MachineTable, Symbol, load_machine
from statemachines_reports.foreign_log.mapped_table import TableMapper


def judge_states(log: LogRows, mapping: LogMapping, table: MachineTable) -> list[LogTally]:
    """Whole instances: steps that no row of the table takes, and those that begin where the one before did not end."""
    rows = InstanceRows(log, mapping, table)
    steps = table.fill_steps(rows.alphabet)
    order, begins = rows.order, rows.begins
    dest = np.array(rows.states)[log["state"][order]]
    before = np.full(len(order), -1)
    before[1:] = dest[:-1]
    heads = begins[:-1][begins[:-1] < begins[1:]]
    before[heads] = table.initial if mapping.begins_whole else -1
    before[rows.resets] = -1
    unclear = np.repeat(rows.unclear, np.diff(begins))
    before[unclear] = -1
    source = before
    tallies = []
    doubtful = np.repeat(rows.find_doubtful(), np.diff(begins))
    if "source" in log:
        places = {text: place for place, text in enumerate(table.states)}
        coded = np.array([*(places.get(text, -1) for text in log.list_texts("source")), -1])
        source = coded[log["source"][order]]
        checked = (source >= 0) & (before >= 0)
        tallies.append(_tally_continuity(rows, table, checked, before, source, doubtful))
        source = np.where(source < 0, before, source)
    checked = source >= 0
    legal = np.ones(len(order), bool)
    legal[checked] = steps[rows.symbols[checked], source[checked], dest[checked]]
    wrong = np.flatnonzero(~legal)
    certain = ~doubtful[wrong] if "source" not in log else np.ones(len(wrong), bool)
    details = tuple(
        _describe(rows, table, place, int(source[place]), int(dest[place])) for place in wrong[:SHOWN].tolist()
    )
    tallies.insert(0, LogTally("steps", int(checked.sum()), len(wrong), int(certain.sum()), details))
    return [*tallies, *rows.tally_unclear()]


def _tally_continuity(
    rows: InstanceRows,
    table: MachineTable,
    checked: np.ndarray,
    before: np.ndarray,
    source: np.ndarray,
    doubtful: np.ndarray,
) -> LogTally:
    wrong = np.flatnonzero(checked & (source != before))
    details = tuple(
        f"{rows.name_place(place)}: {_name_instance_at(rows, place)} begins in {table.states[source[place]]}, and "
        f"was in {table.states[before[place]]}"
        for place in wrong[:SHOWN].tolist()
    )
    return LogTally("continuity", int(checked.sum()), len(wrong), int((~doubtful[wrong]).sum()), details)


def _name_instance_at(rows: InstanceRows, place: int) -> str:
    return rows.name_instance(int(np.searchsorted(rows.begins, place, side="right")) - 1)


def _describe(rows: InstanceRows, table: MachineTable, place: int, source: int, dest: int) -> str:
    symbol = rows.alphabet[int(rows.symbols[place])]
    said = Symbol(symbol.event, symbol.guards, dest)
    return f"{rows.name_place(place)}: {_name_instance_at(rows, place)}: {table.explain_step(said, source)}"


FILES_MAX: Final = 10_000

PROCESS, INSTANCE = "process", "instance"
"""What rows are needed together, besides those of a message and a stream."""


class LogJudge:
    """Judges some files under one mapping.  It is plain data, and goes to tasks as it is."""

    def __init__(self, files: Sequence[Path], mapping: LogMapping) -> None:
        self.files = tuple(path.absolute() for path in files)
        self.names = tuple(_list_names(files))
        self.mapping = mapping
        self.table: MachineTable | None = load_machine(mapping.machine) if mapping.machine else None
        if self.table is not None:
            _check_guards(mapping, self.table)
        self.mapper = TableMapper(
            mapping, self.table.events if self.table else (), self.table.states if self.table else ()
        )
        self.formats = tuple(find_format(path, mapping.format) for path in files)

    @property
    def passes(self) -> dict[str, tuple[str, ...]]:
        """What rows are needed together -> the columns in which they agree."""
        found: dict[str, tuple[str, ...]] = {PROCESS: ("process",) if "process" in self.mapping.roles else ("file",)}
        if self.mapping.level != "deliveries":
            return found | {INSTANCE: ("instance",) if "instance" in self.mapping.roles else ()}
        same = self.mapping.rules.same
        if "stream" in same:
            return found | {f"{MESSAGE} {STREAM}": ("stream",)}
        if set(PER) & set(same):
            # What a receiver lacks is known by what it got of the stream, whose messages have keys of their own.
            return found | {f"{MESSAGE} {STREAM}": ()}
        found[MESSAGE] = ("key",)
        return found | ({STREAM: ("stream",)} if "stream" in self.mapping.roles else {})

    def map_file(self, place: int, group: int | None = None) -> Iterator[tuple[pa.Table, int]]:
        """The mapped rows of a file, some at a time, and how many torn lines were left out."""
        path, name = self.files[place], self.names[place]
        for rows in read_rows(path, self.formats[place], self.mapper.columns, group):
            yield self.mapper.map_rows(name, place, rows), rows.torn

    def judge_table(self, table: pa.Table, together: str) -> list[LogTally]:
        """What is found in rows of whole processes, instances, messages or streams."""
        log = LogRows(table, self.names)
        return check_lines(log, self.mapping) if together == PROCESS else self._judge_rows(log, together)

    def _judge_rows(self, log: LogRows, together: str) -> list[LogTally]:
        if together != INSTANCE:
            return judge_deliveries(log, self.mapping, tuple(together.split()))
        assert self.table is not None
        judge = judge_states if self.mapping.level == "states" else judge_events
        return judge(log, self.mapping, self.table)

    def conclude(self, tallies: Sequence[LogTally], torn: int) -> LogVerdict:
        """The verdict; raises `ConfigurationError` where the rows are of several runs."""
        sums = add_tallies(tallies)
        runs = sorted(set(sums["runs"].details)) if "runs" in sums else []
        if len(runs) > 1:
            rule = (
                f"the log has {len(runs)} runs: {', '.join(repr(one[:80]) for one in runs[:5])}; choose one with --run"
            )
            raise ConfigurationError("run", self.mapping.roles["run"][0], rule)
        if self.mapping.run and not runs:
            raise ConfigurationError("run", self.mapping.run, "no line is of it; another run may be meant")
        return conclude(self.mapping, sums, self.names, torn)

    def judge_here(self) -> LogVerdict:
        """Judge all files in this process."""
        torn, tables = 0, []
        for place in range(len(self.files)):
            for table, left in self.map_file(place):
                tables.append(table)
                torn += left
        whole = pa.concat_tables(tables) if tables else self.mapper.schema.empty_table()
        del tables
        log = LogRows(whole, self.names)
        del whole
        if not log.size:
            return self.conclude([], torn)
        tallies = check_lines(log, self.mapping)
        together = f"{MESSAGE} {STREAM}" if self.table is None else INSTANCE
        return self.conclude([*tallies, *self._judge_rows(log, together)], torn)


def check_files(files: Sequence[Path]) -> None:
    """Raises `ConfigurationError` for a file that is not there, or that is there twice."""
    if not files:
        raise ConfigurationError("FILE", "", "name at least one log: NDJSON, CSV or Parquet")
    if len(files) > FILES_MAX:
        raise ConfigurationError("FILE", len(files), f"at most {FILES_MAX:,} files can be judged; join some of them")
    seen: dict[tuple[int, int], Path] = {}
    for path in files:
        try:
            found = path.stat()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise ConfigurationError("log", str(path), f"cannot be read: {why}") from error
        if not path.is_file():
            raise ConfigurationError("log", str(path), "is no file; name files, or FOLDER/*.ndjson")
        before = seen.setdefault((found.st_dev, found.st_ino), path)
        if before is not path:
            raise ConfigurationError("log", str(path), f"is the same file as {before}; name it once")


def _check_guards(mapping: LogMapping, table: MachineTable) -> None:
    from statemachines.registry import make_unknown_error

    for guard in mapping.guards:
        if guard not in table.guards:
            raise make_unknown_error("guard", guard, sorted(table.guards))


def _list_names(files: Sequence[Path]) -> list[str]:
    """File names, with their folders where two are equal."""
    names = [path.name for path in files]
    return names if len(set(names)) == len(names) else [str(path) for path in files]


ROWS_HERE: Final = 50_000_000
"""More rows than that are judged by Spark."""


def judge_files(files: Sequence[Path], mapping: LogMapping, master: str = "") -> LogVerdict:
    """Judge the files of a foreign log: in this process, or by Spark above `ROWS_HERE` rows or with a `master`.

    Raises `ConfigurationError` for what is no log of this mapping: one line with the file, the line and the mend.
    """
    check_files(files)
    judge = LogJudge(files, mapping)
    check_columns(judge.files, judge.formats, judge.mapper.columns)
    rows = sum(estimate_rows(path, kind) for path, kind in zip(files, judge.formats, strict=True))
    if not master and rows <= ROWS_HERE:
        return judge.judge_here()
    from statemachines.spark.spark_settings import read_settings

    return judge_on_spark(judge, read_settings(master, ()))


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
