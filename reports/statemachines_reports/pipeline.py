"""Pipeline: Spark tasks judge whole-run files; Spark SQL makes tables of what they found.

A task reads its own file and judges it in columns (`mapInArrow` over a DataFrame of file names); what comes back is
small.  Starting Spark takes some seconds, which only this command pays.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines.kernel import GaplessError
from statemachines_reports.account import account_for, judge_acknowledged, judge_duplicates
from statemachines_reports.columns import Columns, read_columns
from statemachines_reports.judge import Steps, Verdict, judge_file
from statemachines_reports.lookup import Lookup
from statemachines_reports.measure import counts, latencies, used_rows
from statemachines_reports.trace_set import TraceSet

Result = tuple[str, Any]
"""A kind of `SHAPES`, and a value of that shape."""

RESULTS: Final = "what string, file string, body string"
"""What a task gives back: the kind of a result, its file, the result as JSON."""

SHAPES: Final = {
    "verdict": "check string, checked bigint, wrong bigint",
    "finding": "check string, run bigint, seq bigint, detail string",
    "stream": "run bigint, key string, published bigint, delivered bigint, duplicates bigint, acknowledged bigint, "
    "missing bigint, unknown bigint",
    "latency": "measure string, run bigint, value_ns bigint",
    "used": "machine string, row int, source string, dest string, count bigint",
    "count": "run bigint, kind string, event string, count bigint",
    "runs": "runs array<bigint>, rows bigint",
}

TABLES: Final = {
    "verdicts": "SELECT check, sum(checked) AS checked, sum(wrong) AS wrong FROM verdict GROUP BY check ORDER BY check",
    "findings": "SELECT * FROM finding ORDER BY check, run, seq LIMIT 200",
    "accounts": "SELECT * FROM stream ORDER BY run, key",
    "latencies": """
        SELECT measure, count(*) AS measured, percentile(value_ns, 0.5) AS p50_ns, percentile(value_ns, 0.9) AS p90_ns,
               percentile(value_ns, 0.99) AS p99_ns, max(value_ns) AS max_ns
        FROM latency GROUP BY measure ORDER BY measure""",
    "histograms": """
        SELECT measure, cast(floor(log10(greatest(value_ns, 1000)) * 8) AS int) AS bin, count(*) AS measured
        FROM latency GROUP BY measure, bin ORDER BY measure, bin""",
    "coverage": """
        SELECT machine, row, source, dest, sum(count) AS count FROM used
        GROUP BY machine, row, source, dest ORDER BY machine, row, source""",
    "totals": "SELECT kind, event, sum(count) AS count FROM count GROUP BY kind, event ORDER BY kind, event",
    "faults": """
        SELECT f.event AS fault, count(DISTINCT f.run) AS runs, sum(f.count) AS injected,
               round(avg(s.duplicates), 2) AS duplicates_a_run, round(avg(d.dropped), 2) AS dropped_a_run
        FROM (SELECT run, event, count FROM count WHERE kind = 'fault') f
        LEFT JOIN (SELECT run, sum(duplicates) AS duplicates FROM stream GROUP BY run) s ON s.run = f.run
        LEFT JOIN (SELECT run, sum(count) AS dropped FROM count WHERE kind = 'drop' GROUP BY run) d ON d.run = f.run
        GROUP BY f.event ORDER BY f.event""",
}

LEVELS: Final = {
    "rows": "rows",
    "continuity": "rows",
    "assignments": "properties",
    "exclusivity": "properties",
    "duplicates": "properties",
    "acknowledged": "properties",
}

CLAIMS: Final = {
    "rows": "every step takes a row of its table",
    "continuity": "every step begins where the one before ended",
    "assignments": "a leader gives a stream to one borrower at a time (S2)",
    "exclusivity": "a stream is delivered by one session at a time (S5)",
    "duplicates": "nothing is delivered twice without a reason (S13)",
    "acknowledged": "every published message is acknowledged (L5)",
}


class Check(msgspec.Struct, frozen=True):
    """A verdict over everything: `level` as in DESIGN (rows, properties); `checked` in what the check looks at."""

    name: str
    level: str
    claim: str
    held: bool
    checked: int
    wrong: int


class Analysis(msgspec.Struct):
    """What `analyze` found: the checks, and the tables as lists of records (also in `out/tables`)."""

    runs: int
    rows: int
    torn: int
    checks: list[Check]
    tables: dict[str, list[dict[str, Any]]]

    @property
    def held(self) -> bool:
        """Every check held."""
        return all(check.held for check in self.checks)


def analyze(
    directory: Path,
    out: Path,
    protocol: str = "shared_subscriptions",
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Judge the trace in `directory`, write the tables below `out`."""
    say = progress or (lambda text: None)
    trace = TraceSet(directory, out, machines_of(protocol))
    say(f"starting Spark for {len(trace.files)} files")
    with Session() as spark:
        say("judging")
        results = spark.judge(trace, protocol)
        results.cache()
        register(results)
        found = {number for line in spark.sql("SELECT runs FROM runs") for number in line["runs"]}
        trace.check_runs(found)
        rows = spark.sql("SELECT sum(rows) AS rows FROM runs")[0]["rows"]
        tables = {name: spark.sql(query) for name, query in TABLES.items()}
    say("writing tables")
    write_tables(out / "tables", tables)
    return Analysis(len(trace.runs), rows, trace.torn, checks_of(tables["verdicts"]), tables)


def checks_of(verdicts: list[dict[str, Any]]) -> list[Check]:
    """The checks in the order of `CLAIMS`."""
    by_name = {line["check"]: line for line in verdicts}
    return [
        Check(name, LEVELS[name], claim, line["wrong"] == 0, line["checked"], line["wrong"])
        for name, claim in CLAIMS.items()
        if (line := by_name.get(name)) is not None
    ]


def machines_of(protocol: str) -> Any:
    """The machines of a protocol."""
    return importlib.import_module(f"statemachines.{protocol}").MACHINES


def lookup_of(protocol: str) -> Lookup:
    """Their tables as arrays."""
    return Lookup(machines_of(protocol))


def judge_path(path: Path, lookup: Lookup, exclusive: dict[int, bool]) -> Iterator[Result]:
    """All results of one file."""
    for columns in read_columns(path):
        yield from judge_runs(columns, lookup, exclusive)


def judge_runs(columns: Columns, lookup: Lookup, exclusive: dict[int, bool]) -> Iterator[Result]:
    """All results of some whole runs."""
    steps = Steps(columns, lookup)
    streams = account_for(columns)
    verdicts: list[Verdict] = [
        *judge_file(steps, lookup, exclusive),
        judge_acknowledged(streams),
        judge_duplicates(columns, exclusive),
    ]
    yield "runs", {"runs": columns.runs(), "rows": columns.rows}
    for verdict in verdicts:
        yield "verdict", verdict
        for finding in verdict.findings:
            yield "finding", finding
    for stream in streams:
        yield "stream", stream
    for latency in latencies(columns, steps, lookup):
        yield "latency", latency
    for used in used_rows(steps, lookup):
        yield "used", used
    for count in counts(columns, steps, lookup):
        yield "count", count


def write_tables(out: Path, tables: dict[str, list[dict[str, Any]]]) -> None:
    """Each table as a Parquet file."""
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in tables.items():
        if lines:
            pq.write_table(pa.Table.from_pylist(lines), out / f"{name}.parquet", compression="zstd")


def register(results: Any) -> None:
    """A view per kind of result, typed."""
    from pyspark.sql.functions import col, from_json

    for what, shape in SHAPES.items():
        typed = results.filter(col("what") == what).select(from_json(col("body"), shape).alias("it")).select("it.*")
        typed.createOrReplaceTempView(what)


@contextmanager
def quiet_start(log: Path) -> Iterator[None]:
    """What the Java process says while it starts goes to a file, and is shown only if it does not start."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    except BaseException as error:
        text = log.read_text(errors="replace").strip().splitlines()
        raise GaplessError(f"Spark does not start: {text[-1] if text else error}; it needs Java 17 or later") from error
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class Session:
    """A Spark session on all cores of this machine, whose files go to a temporary directory."""

    def __enter__(self) -> Session:
        if shutil.which("java") is None:
            raise GaplessError("Spark needs Java 17 or later: install openjdk-17-jre-headless (Debian's name)")
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        self._directory = tempfile.mkdtemp(prefix="gapless-spark-")
        builder = SparkSession.builder.master("local[*]").appName("gapless")
        for key, value in self._settings().items():
            builder = builder.config(key, value)
        with quiet_start(Path(self._directory) / "start.log"):
            self._spark = builder.getOrCreate()
            self._spark.sparkContext.setLogLevel("ERROR")
        return self

    def __exit__(self, *_: object) -> None:
        self._spark.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def judge(self, trace: TraceSet, protocol: str) -> Any:
        """A DataFrame of results, a task a file."""
        exclusive = trace.exclusive

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            lookup = lookup_of(protocol)
            encoder = msgspec.json.Encoder(enc_hook=int)
            for batch in batches:
                for path in batch.column(0).to_pylist():
                    results = list(judge_path(Path(path), lookup, exclusive))
                    yield pa.record_batch(
                        [
                            pa.array([what for what, _ in results], pa.string()),
                            pa.array([Path(path).name] * len(results), pa.string()),
                            pa.array([encoder.encode(body).decode() for _, body in results], pa.string()),
                        ],
                        names=["what", "file", "body"],
                    )

        # The largest first, each in a partition of its own: the tasks end at about the same time.
        paths = sorted(trace.files, key=lambda path: -path.stat().st_size)
        names = self._spark.sparkContext.parallelize([(str(path.resolve()),) for path in paths], len(paths))
        return self._spark.createDataFrame(names, "path string").mapInArrow(task, RESULTS)

    def sql(self, query: str) -> list[dict[str, Any]]:
        """The lines of a query."""
        return [line.asDict() for line in self._spark.sql(query).collect()]

    def _settings(self) -> dict[str, str]:
        return {
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": f"{self._directory}/warehouse",
            "spark.local.dir": self._directory,
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self._directory}",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
        }
