"""Log integrity: the lines of each process follow each other in time and number; what does not is no log to judge."""

from __future__ import annotations

from typing import Final

import numpy as np

from statemachines.kernel import ConfigurationError
from statemachines_reports.foreign_log.log_mapping import COMMON_ROLES, LogMapping
from statemachines_reports.foreign_log.log_rows import LogRows, code_rows, group_rows
from statemachines_reports.foreign_log.log_tally import SHOWN, LogTally

RUNS_SHOWN: Final = 20
CLOCK_STEP_NS: Final = 500_000
"""A clock that is kept right may be set back by so much; nothing is said of lines that are that close."""
HOLES: Final = "holes"
"""The column that Spark adds: what `find_holes` finds."""


def check_lines(log: LogRows, mapping: LogMapping) -> list[LogTally]:
    """The rows of whole processes: how many lines are missing, and the runs that they are of.

    Raises `ConfigurationError` for lines that are doubled or out of order, or that nothing orders.
    """
    if not any(role in log for role in COMMON_ROLES):
        return [LogTally("lines", log.size)]
    codes, count = code_rows(log.process)
    order, begins = group_rows(codes, count)
    follows = np.ones(log.size, bool)
    follows[begins[:-1]] = False
    _check_files(log, order, follows)
    tallies = [LogTally("lines", log.size)]
    if "number" in log:
        tallies = [_check_numbers(log, order, follows)]
    if "time" in log:
        _check_times(log, mapping, order, follows)
    if "run" in log and log.size:
        names = log.list_texts("run")
        runs = sorted(names[code] for code in np.unique(log["run"]).tolist())
        tallies.append(LogTally("runs", len(runs), details=tuple(runs[:RUNS_SHOWN])))
    return tallies


def _check_files(log: LogRows, order: np.ndarray, follows: np.ndarray) -> None:
    """Several files of one process are ordered by something."""
    if "process" not in log or "time" in log or "number" in log:
        return
    file = log["file"][order]
    changes = np.flatnonzero((file[1:] != file[:-1]) & follows[1:])
    if len(changes):
        before, after = int(order[changes[0]]), int(order[changes[0] + 1])
        rule = (
            f"has lines in {log.names[file[changes[0]]]} and in {log.names[file[changes[0] + 1]]}, and nothing says "
            "which come first; map columns.time or columns.number, or put its lines into one file"
        )
        assert before != after
        raise ConfigurationError("process", log.name_process(after), rule)


def _check_numbers(log: LogRows, order: np.ndarray, follows: np.ndarray) -> LogTally:
    number = log["number"][order]
    step = np.diff(number, prepend=number[:1])
    bad = np.flatnonzero(follows & (step <= 0))
    if len(bad):
        row, before = int(order[bad[0]]), int(order[bad[0] - 1])
        if step[bad[0]] == 0:
            rule = f"is also that of {log.name_place(before)}: the line is there twice; remove one of them"
        else:
            rule = (
                f"comes after {log['number'][before]} ({log.name_place(before)}): the log is out of order, or of two "
                "runs; sort it, give older files first, or map columns.run"
            )
        raise ConfigurationError(
            "number", f"{log['number'][row]} of {log.name_process(row)} in {log.name_place(row)}", rule
        )
    holes = np.flatnonzero(follows & (step > 1))
    details = []
    for place in holes[:SHOWN].tolist():
        row = int(order[place])
        details.append(f"{log.name_process(row)}: {step[place] - 1:,} lines are missing before {log.name_place(row)}")
    return LogTally("lines", log.size, int((step[holes] - 1).sum()), 0, tuple(details))


def find_holes(log: LogRows) -> np.ndarray:
    """For each row, how many holes its process has up to it."""
    if HOLES in log:
        return log[HOLES]
    holes = np.zeros(log.size, np.int64)
    if "number" not in log or not log.size:
        return holes
    codes, count = code_rows(log.process)
    order, begins = group_rows(codes, count)
    number = log["number"][order]
    jumps = np.diff(number, prepend=number[0] - 1) != 1
    jumps[begins[:-1]] = False
    sums = np.cumsum(jumps)
    holes[order] = sums - np.repeat(sums[begins[:-1]], np.diff(begins))
    return holes


def _check_times(log: LogRows, mapping: LogMapping, order: np.ndarray, follows: np.ndarray) -> None:
    time = log["time"][order]
    allowed = max(int((mapping.clock_error_ms or 0.0) * 1e6), CLOCK_STEP_NS)
    back = np.flatnonzero(follows[1:] & (time[1:] < time[:-1] - allowed)) + 1
    if len(back):
        row, before = int(order[back[0]]), int(order[back[0] - 1])
        ms = (time[back[0] - 1] - time[back[0]]) / 1e6
        rule = (
            f"{log.name_place(row)} is {ms:,.3f} ms before {log.name_place(before)}: the log is out of order, or of "
            "two runs; sort it, give older files first, map columns.run, or declare clock_error_ms if the clock was "
            "set back"
        )
        raise ConfigurationError("time", log.name_process(row), rule)
