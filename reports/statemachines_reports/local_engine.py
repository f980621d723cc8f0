"""Local engine: a trace is judged in this process, or in some beside it, and DuckDB makes the tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from statemachines.interrupts import defer_interrupts
from statemachines.registry import check_importable
from statemachines.workers import open_workers
from statemachines_reports.judge import Judges
from statemachines_reports.piece_judge import give_judges, judge_parts, judge_piece, make_judges
from statemachines_reports.protocol import Records, Tables
from statemachines_reports.tables import Results, make_tables, settings_of
from statemachines_reports.trace_piece import TracePiece, count_task_rows, plan_jobs
from statemachines_reports.trace_set import TraceSet

PARALLEL_ROWS: Final = 4_000_000
"""From so many rows on there are more processes: each takes a second to begin."""

MACROS: Final = (
    """interpolated(found, place) AS found[floor(place)::bigint + 1]::double + (place - floor(place))
       * (found[ceil(place)::bigint + 1]::double - found[floor(place)::bigint + 1]::double)""",
    """percentile(x, share) AS interpolated(list_sort(list(x) FILTER (x IS NOT NULL)),
       (count(x) - 1)::double * share::double)""",
)
"""`percentile` in DuckDB, with the arithmetic of Spark's: to the last bit the same."""


def duckdb_tables(trace: TraceSet, judges: Judges, *, partly: bool = False) -> Tables:
    """Judge the trace and make the tables with DuckDB.  Where Ctrl-C comes and some files are judged, of those alone
    (`partly`)."""
    pieces = list_pieces(trace, os.cpu_count() or 1)
    batches: list[pa.RecordBatch] = []
    try:
        for batch in judge_each(trace, judges, pieces):
            batches.append(batch)
    except KeyboardInterrupt:
        left = Counter(piece.path for piece in pieces[len(batches) :])
        ended = [path for path in trace.files if path not in left]
        if not partly or not ended:
            raise
        batches = [batch for batch, piece in zip(batches, pieces, strict=False) if piece.path not in left]
        trace.stop_at([path.name for path in ended])
    return join_results(trace, judges, batches)


def list_pieces(trace: TraceSet, processes: int) -> list[TracePiece]:
    """A piece for each file, or such as tasks of Spark have, where several processes judge them."""
    if processes == 1 or trace.rows < PARALLEL_ROWS:
        return [TracePiece(path, 0, sum(trace.groups[path])) for path in trace.files]
    jobs = plan_jobs(trace, count_task_rows(trace.rows, processes))
    return [piece for job in jobs for task in job for piece in task]


def judge_each(trace: TraceSet, judges: Judges, pieces: list[TracePiece]) -> Iterator[pa.RecordBatch]:
    """What is found in each piece, in order."""
    processes = min(os.cpu_count() or 1, len(pieces)) if trace.rows >= PARALLEL_ROWS else 1
    if processes == 1:
        waived, results = judges.list_waived_runs(trace), Results(judges)
        for piece in pieces:
            yield results.batch(judge_piece(judges, piece, waived))
        return
    for one in judges.protocols.values():
        check_importable(one, "analyze in one process")
    with open_workers(processes, _begin, give_judges(trace, judges)) as pool:
        yield from pool.map(_judge, pieces)


_GIVEN: list[bytes] = []
"""What a process beside this one makes its judges of."""


def _begin(given: bytes) -> None:
    _GIVEN[:] = [given]


def _judge(piece: TracePiece) -> pa.RecordBatch:
    judges, waived = make_judges(_GIVEN[0])
    return Results(judges).batch(judge_piece(judges, piece, waived))


def join_results(trace: TraceSet, judges: Judges, batches: list[pa.RecordBatch]) -> Tables:
    """The tables of a trace, by DuckDB, from what was found in its pieces: in any order, however it was cut."""
    import duckdb

    results = Results(judges)
    parts = list(results.parts(batches))
    whole = results.batch(judge_parts(judges, parts, judges.list_waived_runs(trace) if parts else {}))
    with duckdb.connect() as connection:
        connection.register("result", pa.Table.from_batches([*batches, whole], results.schema))
        connection.register("settings", settings_of(trace, judges))
        for macro in MACROS:
            connection.execute(f"CREATE MACRO {macro}")

        def sql(query: str) -> Records:
            with defer_interrupts():  # amid a query DuckDB makes an error of its own of Ctrl-C, each time another one
                done = connection.execute(query)
                names = [column[0] for column in done.description or ()]
                return [dict(zip(names, line, strict=True)) for line in done.fetchall()]

        return make_tables(sql, judges)
