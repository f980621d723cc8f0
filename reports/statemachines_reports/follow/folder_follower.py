"""Folder follower: a query of Spark that takes in the files of a folder as they come, until the run ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from statemachines.kernel import ConfigurationError
from statemachines.spark.spark_link import find_client
from statemachines.spark.spark_session import raise_refusals
from statemachines.spark.spark_settings import SparkSettings, is_connect
from statemachines.trace.log_segments import RUN_END
from statemachines.whole_file import check_folder, check_name
from statemachines_reports.follow.batch_ledger import BatchLedger, FileBatch, join_files, join_lives
from statemachines_reports.follow.batch_sink import LOGS, BatchSink
from statemachines_reports.judge import Judges
from statemachines_reports.local_engine import duckdb_tables, join_results
from statemachines_reports.pipeline import SPARK, Analysis, EngineChoice, judge
from statemachines_reports.protocol import Tables
from statemachines_reports.session import Session
from statemachines_reports.tables import Results
from statemachines_reports.trace_set import TraceSet

FILES: Final = "{trace-*.parquet,*.ndjson}"
FILES_PER_BATCH: Final = "spark.gapless.filesPerBatch"
MOST_FILES: Final = "100"
LOOK_S: Final = 0.5
"""How often the folder is looked at."""

NEVER: Final = "36500d"
"""So old a file may be."""

SCHEMA: Final = "path string, modificationTime timestamp, length long, content binary"


class FollowTimes(msgspec.Struct, frozen=True):
    """`lateness_s`: so long after the run's end marker files may come; `idle_s`: so long without a file ends it all
    (None: nothing does but the marker)."""

    lateness_s: float = 5.0
    idle_s: float | None = None


class FollowResult(msgspec.Struct):
    """What came of it: the batches, and the analysis of the run: of whole runs always, of logs when the run has ended.
    `is_stopped`: Ctrl-C came."""

    batches: list[FileBatch]
    analysis: Analysis | None
    is_ended: bool
    is_stopped: bool


def follow(
    directory: Path,
    out: Path,
    settings: SparkSettings,
    times: FollowTimes,
    report: Callable[[FileBatch], None],
) -> FollowResult:
    """Judge what comes into a folder until its run ends; tables go to `out` then.  Begun again with the same `out` it
    goes on where it was, however it ended."""
    check_name(directory, "trace")
    if not directory.is_dir():
        raise ConfigurationError("trace", str(directory), "is no directory")
    check_folder(out, "--out")
    if is_connect(settings.master) or find_client() is not None:
        rule = "is Spark Connect, whose batches are judged at the server; name a master that has its driver here"
        raise ConfigurationError("--master", settings.master or "sc://", rule)
    ledger = BatchLedger(out / "batches")
    is_stopped = False
    with Session(settings) as session, raise_refusals():
        sink = BatchSink(session, directory, out, ledger, report)
        query = start_query(session.spark, directory, out, sink)
        try:
            wait_for_end(query, directory, sink, times)
        except KeyboardInterrupt:
            is_stopped = True
        finally:
            query.stop()
    batches = ledger.read_batches()
    is_ended = has_ended(directory)
    return FollowResult(batches, analyze_files(directory, out, batches, ledger, is_ended), is_ended, is_stopped)


def has_ended(directory: Path) -> bool:
    """The end marker is there: no node writes to the folder any more."""
    return (directory / RUN_END).exists()


def start_query(spark: Any, directory: Path, out: Path, sink: BatchSink) -> Any:
    """The query: names and sizes of files, each once."""
    files = spark.readStream.format("binaryFile").schema(SCHEMA).option("pathGlobFilter", FILES)
    files = files.option("maxFilesPerTrigger", spark.conf.get(FILES_PER_BATCH, MOST_FILES)).option("maxFileAge", NEVER)
    stream = files.load(str(directory.resolve())).select("path", "length").writeStream.foreachBatch(sink)
    stream = stream.option("checkpointLocation", str((out / "checkpoint").resolve()))
    return stream.trigger(processingTime=f"{int(LOOK_S * 1000)} milliseconds").start()


def wait_for_end(query: Any, directory: Path, sink: BatchSink, times: FollowTimes) -> None:
    """Return when the run has ended, or nothing has come for long, and all files that are there are taken in."""
    marked: float | None = None
    while True:
        if (error := query.exception()) is not None:
            raise error
        now = time.monotonic()
        if marked is None and has_ended(directory):
            marked = now
        is_over = marked is not None and now - marked >= times.lateness_s
        if is_over or (times.idle_s is not None and now - sink.quiet_since >= times.idle_s):
            before = sink.quiet_since
            query.processAllAvailable()
            if is_over or sink.quiet_since == before:
                return
        time.sleep(LOOK_S / 5)


def analyze_files(
    directory: Path, out: Path, batches: list[FileBatch], ledger: BatchLedger, is_ended: bool
) -> Analysis | None:
    """The analysis of the files that were taken in, as a batch analysis has it."""
    files = join_files(batches)
    engine = EngineChoice(SPARK, "a folder is followed")
    if not files:
        return None
    if any(name.endswith(LOGS) for name in files):
        if not is_ended:
            return None
        analysis = judge(TraceSet(directory, out), out, duckdb_tables, say_nothing)
    else:

        def tables_of(trace: TraceSet, judges: Judges) -> Tables:
            numbers = [batch.number for batch in batches if batch.files]
            return join_results(trace, judges, ledger.read_results(numbers, Results(judges).schema))

        analysis = judge(TraceSet(directory, out, files), out, tables_of, say_nothing)
    analysis.engine = engine
    return analysis


def say_nothing(text: str) -> None:
    """Its progress was shown batch by batch."""


def count_wrong(batches: list[FileBatch]) -> dict[str, int]:
    """Check -> violations, over all batches."""
    wrong: dict[str, int] = {}
    for batch in batches:
        for check, count in batch.wrong.items():
            wrong[check] = wrong.get(check, 0) + count
    return wrong


def list_waiting(batches: list[FileBatch]) -> int:
    """How many segments wait for one before them."""
    judged = sum(state.segments for state in join_lives(batches).values())
    return len(join_files(batches)) - judged
