"""Session: Spark judges a trace; tasks read pieces of its files, SQL makes tables of what they found."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from statemachines.kernel import Protocol
from statemachines.registry import check_importable
from statemachines.spark.spark_session import SharedSpark, refusals
from statemachines_reports.judge import Judges
from statemachines_reports.protocol import Records, Tables
from statemachines_reports.tables import Results, make_tables, settings_of
from statemachines_reports.trace_piece import ROWS_PER_TASK, Pieces, count_task_rows, plan_jobs, table_of
from statemachines_reports.trace_set import TraceSet

TYPES: Final = {pa.int64(): "bigint", pa.string(): "string", pa.bool_(): "boolean"}

Given = tuple[tuple[Protocol, ...], tuple[str, ...], Mapping[str, frozenset[int]]]
"""What a task judges with: protocols, names of those that are not installed, runs that do not promise a check."""


def judge_units(batches: Iterator[pa.RecordBatch], given: bytes) -> Iterator[pa.RecordBatch]:
    """What is found in each unit (path, begin, end); a task runs it."""
    judges, results, waived = make_judges(given)
    for batch in batches:
        for unit in batch.to_pylist():
            yield results.batch(judges.judge_path(Path(unit["path"]), waived, unit["begin"], unit["end"]))


@lru_cache(1)
def make_judges(given: bytes) -> tuple[Judges, Results, Mapping[str, frozenset[int]]]:
    """The judges of a process of Python, which runs one task after the other.  Nothing of a protocol may be registered
    there: it is given what registers it."""
    protocols, missing, waived = pickle.loads(given)
    judges = Judges(protocols, missing)
    return judges, Results(judges), waived


class Session(SharedSpark):
    """A Spark session that judges traces."""

    def tables(self, trace: TraceSet, judges: Judges, *, partly: bool = False) -> Tables:
        """Judge the trace; every table as a list of records.  Where Ctrl-C comes and some of its files are judged, of
        those alone (`partly`)."""
        with refusals():
            self.ship_code(judges.protocols.values())
            jobs = self.plan(trace)
            results = [self.judge(trace, judges, job).cache() for job in jobs]
            judged = self._judge_jobs(trace, jobs, results, partly)
            reduce(lambda one, other: one.union(other), judged).createOrReplaceTempView("result")
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
        waived = {check: runs for check, runs in judges.list_waived_runs(trace).items() if runs}
        given: Given = tuple(judges.protocols.values()), judges.missing, waived
        shape = ", ".join(f"`{field.name}` {TYPES[field.type]}" for field in Results(judges).schema)
        units = [table_of(pieces) for pieces in tasks]
        return self.map_tasks(units, f"{__name__}:judge_units", pickle.dumps(given), shape)

    def sql(self, query: str) -> Records:
        """The lines of a query."""
        return [line.asDict() for line in self._spark.sql(query).collect()]
