"""Folder follower: a query of Spark that takes in the files of a folder as they come, until the run ends.

Batch sink: judges the files of each batch, and writes what is found once, however often the batch comes.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from statemachines.kernel import ConfigurationError
from statemachines.registry import check_importable
from statemachines.spark.spark_link import find_client
from statemachines.spark.spark_session import raise_refusals
from statemachines.spark.spark_settings import SparkSettings, is_connect
from statemachines.trace.log import read_head
from statemachines.trace.log_segments import RUN_END, parse_name
from statemachines.trace.tables import join_fingerprints
from statemachines.whole_file import check_folder, check_name
from statemachines_reports.follow import log_piece
from statemachines_reports.follow.log_piece import (
    GROWS,
    BatchLedger,
    FileBatch,
    JudgedPiece,
    LifeState,
    LogPiece,
    PieceFinding,
    join_files,
    join_lives,
)
from statemachines_reports.judge import Found, Judges
from statemachines_reports.pipeline import SPARK, Analysis, EngineChoice, duckdb_tables, join_results, judge
from statemachines_reports.protocol import Finding, Tables
from statemachines_reports.session import Session
from statemachines_reports.tables import Results, Shape
from statemachines_reports.trace_set import TraceSet, find_installed

Line = TypeVar("Line", bound=msgspec.Struct)

LOGS: Final = ".ndjson"
END_MAX: Final = 64
"""An end line is no longer, in bytes."""


class BatchSink:
    """What `foreachBatch` calls.  `report` is called with each batch that brought files, as soon as it is written."""

    def __init__(
        self, session: Session, directory: Path, out: Path, ledger: BatchLedger, report: Callable[[FileBatch], None]
    ) -> None:
        self._session = session
        self._directory = directory
        self._out = out
        self._ledger = ledger
        self._report = report
        self._lock = Lock()
        self.quiet_since = time.monotonic()
        """When the last batch was done."""

    def __call__(self, frame: Any, number: int) -> None:
        """Judge the files of a batch."""
        with self._lock:
            files = {Path(line["path"]).name: line["length"] for line in frame.select("path", "length").collect()}
            before = self._ledger.read_batches(number)
            query = read_query(self._out)
            if before and before[0].query != query:
                rule = "holds what another query has followed: give --out a folder of its own"
                raise ConfigurationError("--out", str(self._out), rule)
            batch, results = (
                self._judge(FileBatch(query, number, files), before) if files else (FileBatch(query, number), None)
            )
            self._ledger.write_batch(batch, results)
            if files:
                self._report(batch)
            self.quiet_since = time.monotonic()

    def _judge(self, batch: FileBatch, before: list[FileBatch]) -> tuple[FileBatch, pa.Table | None]:
        there = [*join_files(before), *batch.files]
        logs, traces = ([name for name in there if name.endswith(LOGS) == is_log] for is_log in (True, False))
        if logs and traces:
            rule = f"holds logs ({logs[0]}) beside a trace ({traces[0]}): give each a folder of its own"
            raise ConfigurationError("trace", str(self._directory), rule)
        for name, size in batch.files.items():
            if (self._directory / name).stat().st_size != size:
                raise ConfigurationError("trace", str(self._directory / name), f"has changed its size: {GROWS}")
        return self._judge_logs(batch, before) if logs else self._judge_traces(batch, before)

    def _judge_traces(self, batch: FileBatch, before: list[FileBatch]) -> tuple[FileBatch, pa.Table]:
        """Whole runs: every check judges them, and what is found is final."""
        trace = TraceSet(self._directory, self._out, batch.files)
        judges = Judges(trace.protocols, trace.missing)
        schema = Results(judges).schema
        earlier = next((one for one in before if one.files), None)
        if earlier is not None and self._ledger.read_columns(earlier.number) != schema.names:
            rule = "is of other protocols than the files before it: follow it in a folder of its own"
            raise ConfigurationError("trace", str(self._directory / min(batch.files)), rule)
        session = self._session
        session.ship_code(judges.protocols.values())
        tasks = [task for job in session.plan(trace) for task in job]
        results = session.judge(trace, judges, tasks).toArrow().cast(schema)
        wrong: dict[str, int] = {}
        for one in read_lines(results, Found):
            if one.wrong:
                wrong[one.check] = wrong.get(one.check, 0) + one.wrong
        found = [one for one in read_lines(results, Finding) if one.promised]
        found.sort(key=lambda one: (one.run, one.seq, one.check))
        findings = [PieceFinding(one.check, f"run {one.run}", one.seq, one.detail) for one in found]
        return msgspec.structs.replace(batch, wrong=wrong, findings=findings), results

    def _judge_logs(self, batch: FileBatch, before: list[FileBatch]) -> tuple[FileBatch, None]:
        """The segments that come next in the log of each life; a segment waits for those before it."""
        files = {**join_files(before), **batch.files}
        lives = join_lives(before)
        tables, pieces = [], []
        for life, paths in self._group(files).items():
            state = lives.get(life, LifeState())
            numbers = {parse_name(path).number: path for path in paths}
            if 0 in numbers and numbers[0].name in batch.files:
                check_ended(numbers[0])
            first = numbers.get(0) or numbers.get(1)
            if first is None:
                continue
            head = read_head(first)
            if head.life != life:
                raise ConfigurationError("trace log", str(first), f"is the log of {head.life}: give it its name again")
            tables.append(head.fingerprints)
            come: list[str] = []
            while (path := numbers.get(state.segments + len(come) + (0 not in numbers))) is not None:
                come.append(str(path.resolve()))
            if come:
                pieces.append(LogPiece(life, come, state))
        protocols, missing = find_installed(str(self._directory), join_fingerprints(str(self._directory), tables))
        found = self._judge_pieces(pieces, (protocols, tuple(missing))) if pieces else []
        wrong: Counter[str] = Counter()
        for one in found:
            wrong.update(one.wrong)
        findings = [finding for one in found for finding in one.findings]
        judged = {one.life: one.state for one in found}
        return msgspec.structs.replace(batch, wrong=wrong, findings=findings, lives=judged), None

    def _group(self, files: dict[str, int]) -> dict[str, list[Path]]:
        lives: dict[str, list[Path]] = {}
        for name in sorted(files):
            lives.setdefault(parse_name(Path(name)).life, []).append(self._directory / name)
        return lives

    def _judge_pieces(self, pieces: list[LogPiece], given: tuple[Any, ...]) -> list[JudgedPiece]:
        session = self._session
        for one in given[0]:
            check_importable(one, "analyze when its nodes have ended (--engine local)")
        session.ship_code(given[0])
        units = [pa.table({"piece": pa.array([msgspec.json.encode(piece)], pa.binary())}) for piece in pieces]
        place = f"{log_piece.__name__}:judge_pieces"
        lines = session.map_tasks(units, place, pickle.dumps(given), log_piece.SHAPE).collect()
        found = [msgspec.json.decode(line["piece"], type=JudgedPiece) for line in lines]
        return sorted(found, key=lambda one: one.life)


def read_lines(results: pa.Table, kind: type[Line]) -> list[Line]:
    """The lines of the wide table that are of one neutral type."""
    shape = Shape("", kind)
    columns = {shape.column(name): name for name in shape.fields}
    lines = results.filter(pc.field("what") == shape.what).select(list(columns)).to_pylist()
    return [kind(**{columns[column]: value for column, value in line.items()}) for line in lines]


def read_query(out: Path) -> str:
    """The id of the query, as Spark keeps it with its checkpoint."""
    return str(msgspec.json.decode((out / "checkpoint" / "metadata").read_bytes())["id"])


def check_ended(path: Path) -> None:
    """A log in one file has its end line; raises `ConfigurationError` for one that may grow."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - END_MAX))
        last = file.read().rpartition(b"\n{")[2]
    if not last.startswith(b'"end":') or not last.endswith(b"\n"):
        raise ConfigurationError("trace log", str(path), f"has no end line: {GROWS}")


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
    wrong: Counter[str] = Counter()
    for batch in batches:
        wrong.update(batch.wrong)
    return wrong


def list_waiting(batches: list[FileBatch]) -> int:
    """How many segments wait for one before them."""
    judged = sum(state.segments for state in join_lives(batches).values())
    return len(join_files(batches)) - judged
