"""TraceSet: the files of a trace and the table of its runs, checked before anything is judged.

Trace pieces: a long file is cut at row groups, small files are put together, and each task has some pieces.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines import registry
from statemachines.kernel import ConfigurationError, Protocol
from statemachines.s3_path import S3Path, address_of, file_system_of, show_path
from statemachines.trace import RUN_COLUMNS, TraceRow
from statemachines.trace.log import find_unended, find_unlogged, find_unsent, merge, read_logs
from statemachines.trace.log_segments import list_logs
from statemachines.trace.parquet import TraceWriter
from statemachines.trace.row import Run
from statemachines.trace.tables import check_tables, join_fingerprints
from statemachines.whole_file import check_name, store_path
from statemachines_reports.columns import SEGMENT, find_long_runs, has_data, open_trace, read_run, reading

RowSpan = tuple[int, int]
"""Rows of a file from the first up to the second, without that."""


class TraceSet:
    """`files`: the trace files by name; `groups`: file -> the rows of each of its row groups; `long_runs`: file -> rows
    that are surely of one run, where it can be cut; `runs`: run -> its line
    of the table; `torn`: cut last lines of logs; `left`: files that nobody came to judge;
    `protocols` of its machines that are installed here, and the names of those that are not (`missing`).

    `directory` holds Parquet files as the simulator writes them, or the logs of one real run, which are merged into
    `out` first.  `names`: of those trace files alone, each with its own table of runs (`runs-NAME.parquet`) beside it.
    Raises `ConfigurationError` for whatever does not fit together.
    """

    def __init__(self, directory: Path, out: Path, names: Collection[str] | None = None) -> None:
        check_name(directory, "trace")
        directory = store_path(directory)
        if not directory.is_dir():
            raise ConfigurationError("trace", show_path(directory), "is no directory")
        self.torn = 0
        self.left: list[Path] = []
        is_local = not isinstance(directory, S3Path)
        logs = [path for paths in list_logs(directory).values() for path in paths] if is_local else []
        tables = sorted(directory.glob("trace-*.parquet"))
        if logs and tables:
            rule = f"holds logs ({logs[0].name}) beside a trace ({tables[0].name}): give each a folder of its own"
            raise ConfigurationError("trace", str(directory), rule)
        if logs:
            self.torn = merge_logs(directory, out / "merged")
            directory = out / "merged"
        self.files = sorted(directory.glob("trace-*.parquet"))
        if names is not None:
            self.files = [directory / name for name in sorted(names)]
        if not self.files:
            raise ConfigurationError("trace", show_path(directory), "holds no trace (trace-*.parquet, or *.ndjson)")
        footers = {path: _read_footer(path) for path in self.files}
        self.groups = {path: groups for path, (groups, _) in footers.items()}
        self.long_runs = {path: spans for path, (_, spans) in footers.items()}
        self.runs = read_runs(directory) if names is None else read_run_files(map(find_runs_beside, self.files))
        self._protocols = {number: fingerprints_of(run) for number, run in self.runs.items()}
        self.protocols, self.missing = find_installed(
            show_path(directory), join_fingerprints(show_path(directory), self._protocols.values())
        )

    @property
    def rows(self) -> int:
        """Rows of all files, as their footers say."""
        return sum(sum(self.groups[path]) for path in self.files)

    def stop_at(self, judged: Collection[str]) -> None:
        """The files of these names are judged, and no more will be: the others, and the runs in them, do not count."""
        self.left = [path for path in self.files if path.name not in judged]
        self.files = [path for path in self.files if path.name in judged]
        there = {run for path in self.files for run in read_run(path, ["run"])["run"].unique().to_pylist()}
        self.runs = {number: run for number, run in self.runs.items() if number in there}

    @cached_property
    def parameters(self) -> dict[int, dict[str, Any]]:
        """Run -> its parameters."""
        return {number: read_parameters(run) for number, run in self.runs.items()}

    def runs_of(self, protocol: str) -> list[int]:
        """The runs that hold machines of the protocol ("": all): nobody else knows their parameters."""
        return sorted(run for run in self.runs if not protocol or protocol in self._protocols[run])

    def check_runs(self, found: list[int]) -> None:
        """The runs of the files are those of the table, and each is in one file."""
        numbers = set(found)
        for missing, where in (
            (numbers - self.runs.keys(), "in the trace files, not in the table of runs"),
            (self.runs.keys() - numbers, "in the table of runs, not in the trace files"),
            ({number for number, count in Counter(found).items() if count > 1}, "in more than one trace file"),
        ):
            if missing:
                rule = f"{where}; so are {len(missing)} runs in all: keep the files of a campaign together"
                raise ConfigurationError("run", min(missing), rule)


def _read_footer(path: Path) -> tuple[tuple[int, ...], list[RowSpan]]:
    """The rows of each row group of a trace file, and those of them that are of one run: (begin, end).  A file whose
    rows have data has none of these.  Raises `ConfigurationError` for any other file."""
    with open_trace(path) as file:
        groups = tuple(file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
        return groups, [] if has_data(file) else find_long_runs(file)


def read_parameters(run: Run) -> dict[str, Any]:
    """The parameters of a run; its settings are those that it had, with what its seed drew.  Raises
    `ConfigurationError` where they are no object, or those of a simulated run count no faults."""
    try:
        found = _with_drawn(msgspec.json.decode(run.parameters, type=dict[str, Any]))
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            "parameters", run.parameters[:80], f"of run {run.run} are no object: {error}"
        ) from error
    if '"simpy"' in run.versions and "faults" not in found:
        raise ConfigurationError(
            "parameters", run.parameters[:80], f"of run {run.run}, which was simulated, count no faults: restore them"
        )
    return found


def _with_drawn(given: dict[str, Any]) -> dict[str, Any]:
    """A swarm writes down its own settings, and beside them what each seed drew in place of some, by their paths."""
    swarm = given.get("swarm")
    for path, value in swarm.items() if isinstance(swarm, dict) else ():
        *folders, name = path.split(".")
        section = given.get("settings")
        for folder in folders:
            section = section.get(folder) if isinstance(section, dict) else None
        if isinstance(section, dict) and name in section:
            section[name] = value
    return given


def fingerprints_of(run: Run) -> dict[str, str]:
    """Protocol -> fingerprint of the tables that the run was made with."""
    try:
        return msgspec.json.decode(run.fingerprints, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            "fingerprints", run.fingerprints[:80], f"of run {run.run} are no object of texts: {error}"
        ) from error


class RunParameters:
    """The parameters of the runs in a trace file, run -> parameters.  They are read when asked for first: from the
    table beside the file (`runs-NAME.parquet`), and only for a run that is not in there from all tables.  No other
    run is decoded: a table may have the runs of all files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._runs: dict[int, Run] = {}
        self._found: dict[int, dict[str, Any]] = {}

    def __call__(self, run: int) -> dict[str, Any]:
        if run not in self._found:
            self._found[run] = read_parameters(self._find_run(run))
        return self._found[run]

    def _find_run(self, run: int) -> Run:
        beside = find_runs_beside(self._path)
        if not self._runs and beside.is_file():
            self._runs = read_run_files([beside])
        if run not in self._runs:
            self._runs = read_runs(self._path.parent)
        if run not in self._runs:
            raise ConfigurationError("run", run, f"of {self._path.name} is in no table of runs (runs-*.parquet)")
        return self._runs[run]


def find_runs_beside(path: Path) -> Path:
    """The table of the runs in a trace file, where it is written with the file."""
    return path.with_name(path.name.replace("trace", "runs", 1))


def read_runs(directory: Path) -> dict[int, Run]:
    """The table of runs, from every `runs*.parquet`."""
    runs = read_run_files(sorted(directory.glob("runs*.parquet")))
    if not runs:
        raise ConfigurationError("runs", show_path(directory), "holds no table of runs (runs-*.parquet)")
    return runs


def read_run_files(paths: Iterable[Path]) -> dict[int, Run]:
    """The tables of runs in these files, together."""
    runs: dict[int, Run] = {}
    for path in paths:
        with reading(path, "runs"):
            table = pq.read_table(str(path), page_checksum_verification=True, filesystem=file_system_of(path))
            missing = [column for column in RUN_COLUMNS if column not in table.column_names]
            if missing:
                raise ConfigurationError("runs", show_path(path), f"lacks the columns {', '.join(missing)}")
            lines = table.select(list(RUN_COLUMNS)).to_pylist()
        for line in lines:
            try:
                run = msgspec.convert(line, Run)
            except msgspec.ValidationError as error:
                raise ConfigurationError("runs", show_path(path), f"is no table of runs: {error}") from error
            if run.run in runs:
                raise ConfigurationError("runs", show_path(path), f"names run {run.run} a second time")
            runs[run.run] = run
    return runs


def find_installed(where: str, tables: dict[str, str]) -> tuple[list[Protocol], list[str]]:
    """The protocols that are installed here, their tables checked, and the names of those that are not."""
    names = sorted(tables)
    missing = [name for name in names if name not in registry.names()]
    here = [name for name in names if name not in missing]
    check_tables(where, {name: tables[name] for name in here})
    return [registry.protocol(name) for name in here], missing


def merge_logs(directory: Path, out: Path) -> int:
    """The logs of a real run as one run of a trace in `out`; how many lines were torn."""
    run, rows = read_real_run(directory)
    with TraceWriter(out, "real") as writer:
        writer.add(run, rows)
    return int(msgspec.json.decode(run.parameters)["torn"])


def read_real_run(directory: Path, number: int = 0) -> tuple[Run, list[TraceRow]]:
    """The logs of a real run, merged, and its line of the table of runs.  Raises `ConfigurationError` where they are
    not of one run, or of other tables than are installed here."""
    logs = read_logs(directory)
    torn = sum(log.torn for log in logs)
    unended = [(f"the end of {life}", "") for life in find_unended(logs)]
    lacking = [*find_unsent(logs), *find_unlogged(logs), *unended]
    facts = {"nodes": [log.head.life for log in logs], "torn": torn, "lacking": lacking}
    tables = join_fingerprints(str(directory), (log.head.fingerprints for log in logs))
    find_installed(str(directory), tables)
    versions = json.dumps({"gapless": version("gapless")})
    run = Run(number, "real", number, json.dumps(facts), "held", versions, json.dumps(tables))
    return run, list(merge(logs))


ROWS_PER_TASK: Final = "spark.gapless.rowsPerTask"
"""The setting of Spark by which a user says how many rows a task has."""

MOST_ROWS: Final = 4_000_000
"""Rows of a task: some seconds of work, against some tenths of a second that a task costs."""

TASKS_A_CORE: Final = 3
"""At least, where there are rows enough: so that all cores end at about the same time."""

MOST_JOBS: Final = 8
"""The tasks of an analysis are so many jobs.  What an interruption leaves is what whole jobs have judged."""

UNITS: Final = pa.schema(
    [
        ("path", pa.string()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("begins_amid", pa.bool_()),
        ("ends_amid", pa.bool_()),
    ]
)


class TracePiece(NamedTuple):
    """The runs of a file that begin from row `begin` on and before row `end`.

    A long run is cut.  Then the piece `begins_amid` or `ends_amid` it, and has those of its rows that lie between.
    """

    path: Path
    begin: int
    end: int
    begins_amid: bool = False
    ends_amid: bool = False


Pieces = list[TracePiece]
"""What one task judges."""


def count_task_rows(rows: int, cores: int, named: str = "") -> int:
    """How many rows a task has, of a trace of so many; raises `ConfigurationError` where `named` is no number."""
    if named:
        if not named.isdecimal() or not int(named):
            raise ConfigurationError(ROWS_PER_TASK, named, "must be a number of rows, 1 or more")
        return int(named)
    return max(SEGMENT, min(MOST_ROWS, rows // (TASKS_A_CORE * cores)))


def cut_file(path: Path, groups: Iterable[int], size: int, long_runs: Sequence[RowSpan] = ()) -> Iterator[TracePiece]:
    """A file with row groups of so many rows, cut behind a row group wherever a piece has `size` rows.  A run of more
    than `size` rows is cut, too."""
    cuts, end = [0], 0
    for rows in groups:
        end += rows
        if end - cuts[-1] >= size:
            cuts.append(end)
    if end > cuts[-1] or len(cuts) == 1:
        cuts.append(end)
    long = [span for span in long_runs if span[1] - span[0] >= size]
    is_amid = [any(first <= cut <= last for first, last in long) for cut in cuts]
    is_amid[0] = is_amid[-1] = False
    return (
        TracePiece(path, first, last, *amid)
        for (first, last), amid in zip(pairwise(cuts), pairwise(is_amid), strict=True)
    )


def plan_jobs(trace: TraceSet, size: int) -> list[list[Pieces]]:
    """Jobs of tasks: each task has about `size` rows, of one file or of several, and each file is in one job."""
    jobs: list[list[Pieces]] = [[]]
    least = trace.rows / MOST_JOBS
    pieces: Pieces = []
    rows = done = 0
    for path in trace.files:
        for number, piece in enumerate(cut_file(path, trace.groups[path], size, trace.long_runs[path])):
            more = piece.end - piece.begin
            if pieces and rows + more > size:
                jobs[-1].append(pieces)
                pieces, rows = [], 0
                if number == 0 and done >= least * len(jobs):
                    jobs.append([])
            pieces.append(piece)
            rows, done = rows + more, done + more
    if pieces:
        jobs[-1].append(pieces)
    return jobs


def table_of(pieces: Pieces) -> pa.Table:
    """The pieces of a task as lines; `piece_of` reads one."""
    return pa.Table.from_pylist([one._asdict() | {"path": address_of(one.path)} for one in pieces], UNITS)


def piece_of(line: Mapping[str, Any]) -> TracePiece:
    """The piece of such a line."""
    return TracePiece(**{**line, "path": store_path(line["path"])})
