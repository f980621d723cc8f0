"""Pipeline: a trace is opened, judged, and what was found becomes checks, tables and a summary.

Local engine: a trace is judged in this process, or in some beside it, and DuckDB makes the tables.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.interrupts import defer_interrupts
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json
from statemachines.registry import check_importable
from statemachines.spark.spark_settings import NO_SETTINGS, SparkSettings
from statemachines.trace.parquet import describe_table
from statemachines.whole_file import check_folder, make_folder, store_path, whole_file, write_whole
from statemachines.workers import open_workers
from statemachines_reports.coverage import RowCoverage, coverage_of, list_untaken
from statemachines_reports.judge import MONITORS, Judges
from statemachines_reports.neutral.replay_check import LEVEL as REPLAY
from statemachines_reports.piece_judge import give_judges, judge_parts, judge_piece, make_judges
from statemachines_reports.protocol import Records, Tables
from statemachines_reports.session import Session
from statemachines_reports.tables import Results, amounts_of, fit_number, make_tables, name_tables, settings_of
from statemachines_reports.trace_set import TracePiece, TraceSet, count_task_rows, plan_jobs

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


HELD: Final = "held"
VIOLATED: Final = "VIOLATED"
NOT_PROMISED: Final = "not promised by this configuration"
NOT_JUDGED: Final = "not judged: not installed here: "
NO_LOG: Final = "not judged: no log of "
NO_DATA: Final = "not judged: its rows have no data (simulate --data)"

LOCAL: Final = "local"
SPARK: Final = "spark"
SPARK_ROWS: Final = 100_000_000
"""From so many rows on Spark is chosen: on two cores one process is done sooner below."""

SHOWN_LOGS: Final = 3
"""Of logs that are missing, so many are named."""

SHORT: Final = ("findings", "scenarios", "latencies", "faults", "never", "totals", "unjudged", "absent")
"""The tables that are in `summary.json` too, besides those that a protocol names."""


class EngineChoice(msgspec.Struct, frozen=True):
    """What judges: `name` is `LOCAL` or `SPARK`, and why it was chosen."""

    name: str
    why: str


AS_NAMED: Final = EngineChoice(LOCAL, "as named")


class CheckSummary(msgspec.Struct, frozen=True):
    """A verdict over everything: `level` rows or properties; `checked` in what the check looks at; `protocol` whose
    check it is ("": of any).

    `verdict` is `HELD`, `VIOLATED`, `NOT_PROMISED` where no run promises it, `NOT_JUDGED` with the protocols whose
    tables are not here, `NO_LOG` with those whose logs are not, or `NO_DATA`.  `waived` counts what would be wrong, had
    the configuration of its run promised it.  Only what is violated is not `held`.
    """

    name: str
    level: str
    claim: str
    held: bool
    checked: int
    wrong: int
    waived: int
    verdict: str
    protocol: str = ""


class Analysis(msgspec.Struct):
    """What `analyze` found: the checks, and the tables as lists of records (also in `out/tables`)."""

    trace: TraceSet
    judges: Judges
    runs: int
    rows: int
    torn: int
    checks: list[CheckSummary]
    coverage: list[RowCoverage]
    tables: Tables
    engine: EngineChoice = AS_NAMED

    @property
    def unjudged_files(self) -> int:
        """So many files of the trace were not judged any more."""
        return len(self.trace.left)

    @property
    def is_held(self) -> bool:
        """Every check held."""
        return all(check.held for check in self.checks)

    @property
    def unjudged_steps(self) -> dict[str, int]:
        """Protocol that is not installed here -> steps of its machines, which nobody could judge."""
        return {line["missing"]: line["count"] for line in self.tables["unjudged"]}

    @property
    def absent(self) -> list[str]:
        """Whose logs are missing, in one run or another."""
        return sorted({line["log"] for line in self.tables["absent"]})


Judge = Callable[[TraceSet, Judges], Tables]
"""What makes the tables of a trace: `Session.tables`, or `duckdb_tables`."""

Say = Callable[[str], None]


def analyze(
    directory: Path,
    out: Path,
    progress: Say | None = None,
    *,
    spark: bool | None = None,
    settings: SparkSettings = NO_SETTINGS,
) -> Analysis:
    """Judge the trace in `directory`, whatever protocols it is of; tables and `summary.json` go to `out`.

    With `spark` on Spark, by `settings`; without (False) in this process, with the same results; None: by the number of
    rows.  `progress` is called with what begins.
    """
    (analysis,) = analyze_all([(directory, out)], progress, spark=spark, settings=settings)
    return analysis


def analyze_all(
    traces: Sequence[tuple[Path, Path]],
    progress: Say | None = None,
    *,
    spark: bool | None = None,
    settings: SparkSettings = NO_SETTINGS,
    partly: bool = False,
    named: Sequence[str] = (),
    are_compared: bool = True,
) -> list[Analysis]:
    """Judge several traces, each (directory, out) as `analyze` does it; Spark is started once.

    Raises `ConfigurationError` where they are compared and not of the same protocols, or of none of a protocol that is
    `named`.

    `partly`: Ctrl-C ends it with what is judged by then, and whoever called looks at how many there are, and at `left`
    of the last one: files of a trace that are not judged.
    """
    say = progress or (lambda text: None)
    traces = [(directory, store_path(out, "--out")) for directory, out in traces]
    for _, out in traces:
        check_folder(out, "--out")
    opened = [TraceSet(directory, out) for directory, out in traces]
    if are_compared:
        check_protocols([str(directory) for directory, _ in traces], opened, named)
    engine = choose_engine(opened, spark, settings)
    say(f"engine {engine.name}: {engine.why}")
    found: list[Analysis] = []

    def judge_each(tables_of: Judge) -> None:
        for trace, (_, out) in zip(opened, traces, strict=True):
            found.append(judge(trace, out, tables_of, say))
            found[-1].engine = engine
            if found[-1].unjudged_files:
                return

    try:
        if engine.name == LOCAL or not opened:
            judge_each(partial(duckdb_tables, partly=partly))
        else:
            say("starting Spark")
            with Session(settings) as session:
                judge_each(partial(session.tables, partly=partly))
    except KeyboardInterrupt:
        if not partly:
            raise
    return found


def choose_engine(traces: Sequence[TraceSet], spark: bool | None, settings: SparkSettings) -> EngineChoice:
    """Spark or this process, and why: what the user names binds, otherwise the rows in the footers decide."""
    if spark is not None:
        return EngineChoice(SPARK, "as named") if spark else AS_NAMED
    if settings.all_settings:
        return EngineChoice(SPARK, f"{', '.join(sorted(settings.all_settings))} is named")
    rows = sum(trace.rows for trace in traces)
    if rows < SPARK_ROWS:
        return EngineChoice(LOCAL, f"{rows:,} rows; below {SPARK_ROWS:,} one process is done sooner than Spark")
    return EngineChoice(SPARK, f"{rows:,} rows; from {SPARK_ROWS:,} on Spark")


def check_protocols(directories: Sequence[str], traces: Sequence[TraceSet], named: Sequence[str]) -> None:
    """Traces are put side by side that are of the same protocols; raises `ConfigurationError`."""
    of = [sorted({*(one.name for one in trace.protocols), *trace.missing}) for trace in traces]
    for directory, names in zip(directories, of, strict=True):
        if names != of[0]:
            rule = (
                f"is of {' and '.join(names) or 'no protocol'}, and {directories[0]} of {' and '.join(of[0])}: "
                "traces of the same protocols are compared; analyze each by itself"
            )
            raise ConfigurationError("trace", directory, rule)
    for name in named:
        if name not in (known := sorted({one for names in of for one in names})):
            rule = f"has no machine in what is analyzed, which is of {', '.join(known) or 'no protocol'}"
            raise ConfigurationError("--protocol", name, rule)


def judge(trace: TraceSet, out: Path, tables_of: Judge, say: Say) -> Analysis:
    """One trace."""
    say(f"judging {len(trace.files)} files")
    judges = Judges(trace.protocols, trace.missing)
    tables = tables_of(trace, judges)
    trace.check_runs([line["run"] for line in tables["runs"]])
    say("writing tables")
    family = judges.lookup.family
    tables["never"] = list_untaken(tables["coverage"], family)
    analysis = Analysis(
        trace,
        judges,
        len(trace.runs),
        sum(line["rows"] for line in tables["runs"]),
        trace.torn,
        checks_of(tables, judges, trace),
        coverage_of(tables["coverage"], tables["pairs"], family),
        tables,
    )
    write_tables(out / "tables", tables)
    write_summary(out / "summary.json", analysis)
    return analysis


def checks_of(tables: Tables, judges: Judges, trace: TraceSet) -> list[CheckSummary]:
    """The checks in the order of the judges, then what the monitors said while the runs were made."""
    by_name = {line["check"]: line for line in tables["verdicts"]}
    waived = judges.list_waived_runs(trace)
    unjudged = [line["missing"] for line in tables["unjudged"]]
    checks = []
    for shown, protocol, check in judges.checks:
        line = by_name.get(shown, {"checked": 0, "wrong": 0, "waived": 0})
        verdict = VIOLATED if line["wrong"] else HELD
        absent = _absent_of(tables, protocol)
        if len(waived[shown]) == len(trace.runs_of(protocol)):
            verdict = NOT_PROMISED
        elif unjudged and check.level == "rows" and not line["wrong"]:
            verdict = NOT_JUDGED + ", ".join(unjudged)
        elif absent and (check.whole or line["waived"]) and not line["wrong"]:
            verdict = NO_LOG + absent
        elif check.level == REPLAY and not line["checked"] and not line["wrong"]:
            verdict = NO_DATA
        counts = line["checked"], line["wrong"], line["waived"]
        checks.append(CheckSummary(shown, check.level, check.claim, not line["wrong"], *counts, verdict, protocol))
    wrong = sum(run.outcome != "held" for run in trace.runs.values())
    verdict = VIOLATED if wrong else HELD
    return [*checks, CheckSummary("monitors", "properties", MONITORS, not wrong, len(trace.runs), wrong, 0, verdict)]


def _absent_of(tables: Tables, protocol: str) -> str:
    """Whose logs are missing for the checks of a protocol, in words; "" where all are there."""
    lines = [line for line in tables["absent"] if line["protocol"] in ("", protocol)]
    runs = len({line["run"] for line in lines})
    logs = sorted({line["log"] for line in lines})
    more = f" and {len(logs) - SHOWN_LOGS} more" if len(logs) > SHOWN_LOGS else ""
    where = f" ({runs} of {len(tables['runs'])} runs)" if len(tables["runs"]) > 1 else ""
    return f"{', '.join(logs[:SHOWN_LOGS])}{more}{where}" if logs else ""


def write_tables(out: Path, tables: Tables) -> None:
    """Each table as a Parquet file; one that an earlier analysis left and this one has not is removed."""
    make_folder(out, "--out")
    for name, lines in tables.items():
        path = out / f"{name.replace('/', '.')}.parquet"
        if lines:
            with whole_file(path) as unfinished:
                pq.write_table(make_table(name, lines), unfinished, compression="zstd")
        else:
            path.unlink(missing_ok=True)


def make_table(name: str, lines: Records) -> pa.Table:
    """A table with its units.  A column that is null in every line is one of numbers: a percentile, or a ratio."""
    table = pa.Table.from_pylist([{key: fit_number(value) for key, value in line.items()} for line in lines])
    fields = [pa.field(one.name, pa.float64()) if pa.types.is_null(one.type) else one for one in table.schema]
    return table.cast(describe_table(pa.schema(fields), name, {one: unit_of(one) for one in table.column_names}, {}))


def unit_of(column: str) -> str:
    """The unit of a column of results, by the end of its name ("": a count, a number, or a text)."""
    ends = {"_ns": "ns", "_units": "units", "_bytes": "bytes"}
    return next((unit for end, unit in ends.items() if column.endswith(end)), "")


def write_summary(path: Path, analysis: Analysis) -> None:
    """What a program wants to know: everything but the long tables."""
    write_whole(path, msgspec.json.format(plain_json(summary_of(analysis)), indent=2).encode())


def summary_of(analysis: Analysis) -> dict[str, Any]:
    """What stands in `summary.json`."""
    return {
        "held": analysis.is_held,
        "runs": analysis.runs,
        "rows": analysis.rows,
        "torn": analysis.torn,
        "left": analysis.unjudged_files,
        "checks": analysis.checks,
        "coverage": analysis.coverage,
        **{name: analysis.tables[name] for name in (*SHORT, *short_of(analysis.judges))},
    }


def short_of(judges: Judges) -> list[str]:
    """The tables of protocols that are short, as shown."""
    shown = name_tables(judges)
    return [shown[protocol, name] for protocol, report in judges.reports.items() for name in report.short]


def own_tables(analysis: Analysis, protocol: str) -> Tables:
    """The tables under the names that the protocol itself gives to its tables and amounts."""
    judges, report = analysis.judges, analysis.judges.reports[protocol]
    shown = name_tables(judges)
    tables = analysis.tables | {name: analysis.tables[shown[protocol, name]] for name in report.tables}
    amounts = {
        amount.name: name for name, owner, amount in amounts_of(judges) if owner == protocol and amount.scenarios
    }
    tables["scenarios"] = [
        line | {name: line[shown_as] for name, shown_as in amounts.items()} for line in tables["scenarios"]
    ]
    return tables
