"""Session: Spark judges a trace; tasks read pieces of its files, SQL makes tables of what they found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any, Final

import pyarrow as pa

from statemachines.registry import check_importable
from statemachines.spark.spark_session import SharedSpark, raise_refusals
from statemachines.spark.spark_task import make_task
from statemachines_reports.judge import Judges, RunPart
from statemachines_reports.piece_judge import give_judges, judge_parts, judge_piece, make_judges
from statemachines_reports.protocol import Records, Tables
from statemachines_reports.tables import Results, make_tables, settings_of
from statemachines_reports.trace_set import (
    ROWS_PER_TASK,
    Pieces,
    TraceSet,
    count_task_rows,
    piece_of,
    plan_jobs,
    table_of,
)

TYPES: Final = {pa.int64(): "bigint", pa.string(): "string", pa.bool_(): "boolean", pa.binary(): "binary"}


def judge_units(batches: Iterator[pa.RecordBatch], given: bytes) -> Iterator[pa.RecordBatch]:
    """What is found in each unit, a piece of a trace file; a task runs it."""
    judges, waived = make_judges(given)
    results = Results(judges)
    for batch in batches:
        for unit in batch.to_pylist():
            yield results.batch(judge_piece(judges, piece_of(unit), waived))


def join_units(batches: Iterator[pa.RecordBatch], given: bytes) -> Iterator[pa.RecordBatch]:
    """What is found in runs, from all of their parts; a task runs it."""
    judges, waived = make_judges(given)
    results = Results(judges)
    yield results.batch(judge_parts(judges, results.parts(batches), waived))


def shape_of(judges: Judges) -> str:
    """The columns of results, as Spark has them."""
    return ", ".join(f"`{field.name}` {TYPES[field.type]}" for field in Results(judges).schema)


class Session(SharedSpark):
    """A Spark session that judges traces."""

    def tables(self, trace: TraceSet, judges: Judges, *, partly: bool = False) -> Tables:
        """Judge the trace; every table as a list of records.  Where Ctrl-C comes and some of its files are judged, of
        those alone (`partly`)."""
        with raise_refusals():
            self.ship_code(judges.protocols.values())
            jobs = self.plan(trace)
            results = [self.judge(trace, judges, job).cache() for job in jobs]
            judged = self._judge_jobs(trace, jobs, results, partly)
            found = reduce(lambda one, other: one.union(other), judged)
            found.union(self.join_runs(found, trace, judges)).createOrReplaceTempView("result")
            return self._make_tables(trace, judges)

    def plan(self, trace: TraceSet) -> list[list[Pieces]]:
        """The jobs of an analysis, their tasks, and the pieces of each."""
        named = self._spark.conf.get(ROWS_PER_TASK, "")
        return plan_jobs(trace, count_task_rows(trace.rows, self.link.count_cores(), named))

    def _judge_jobs(self, trace: TraceSet, jobs: list[list[Pieces]], results: list[Any], partly: bool) -> list[Any]:
        """Results of the jobs that have ended: of all, or of those before Ctrl-C."""
        ended: list[int] = []
        counting: list[Callable[[], int]] = [one.count for one in results]
        try:
            for number, _ in self.run_jobs(counting):
                ended.append(number)
        except KeyboardInterrupt:
            if not partly or not ended:
                raise
            trace.stop_at([piece.path.name for number in ended for task in jobs[number] for piece in task])
        return [results[number] for number in sorted(ended)]

    def _make_tables(self, trace: TraceSet, judges: Judges) -> Tables:
        self._spark.createDataFrame(settings_of(trace, judges)).createOrReplaceTempView("settings")
        return make_tables(self.sql, judges)

    def judge(self, trace: TraceSet, judges: Judges, tasks: list[Pieces]) -> Any:
        """A DataFrame of results, of tasks that each have some pieces."""
        for one in judges.protocols.values():
            check_importable(one, "analyze without Spark (--engine local)")
        units = [table_of(pieces) for pieces in tasks]
        return self.map_tasks(units, f"{__name__}:judge_units", give_judges(trace, judges), shape_of(judges))

    def join_runs(self, found: Any, trace: TraceSet, judges: Judges) -> Any:
        """A DataFrame of results, of runs that several tasks have parts of: a task has all parts of some."""
        part = Results(judges).shape(RunPart)
        parts = found.where(f"what = '{part.what}'").repartition(part.column("run")).cache()
        task = make_task(f"{__name__}:join_units", give_judges(trace, judges))
        return parts.mapInArrow(task, shape_of(judges)).cache()

    def sql(self, query: str) -> Records:
        """The lines of a query."""
        return [line.asDict() for line in self._spark.sql(query).collect()]
