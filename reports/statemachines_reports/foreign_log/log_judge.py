"""Log judge: files of a foreign log are read, mapped and judged.

`LogJudge.judge_table` is what this process and tasks of Spark run: of mapped rows, which hold whole processes,
instances, messages or streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.deliveries import MESSAGE, PER, STREAM, judge_deliveries
from statemachines_reports.foreign_log.event_sets import judge_events
from statemachines_reports.foreign_log.log_file import find_format, read_rows
from statemachines_reports.foreign_log.log_integrity import check_lines
from statemachines_reports.foreign_log.log_mapping import LogMapping
from statemachines_reports.foreign_log.log_rows import LogRows
from statemachines_reports.foreign_log.log_tally import LogTally, add_tallies
from statemachines_reports.foreign_log.log_verdict import LogVerdict, conclude
from statemachines_reports.foreign_log.machine_table import MachineTable, load_machine
from statemachines_reports.foreign_log.mapped_table import TableMapper
from statemachines_reports.foreign_log.state_steps import judge_states

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
