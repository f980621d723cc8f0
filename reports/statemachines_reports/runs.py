"""Runs: everything that can be found out about whole runs by themselves, file by file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from statemachines import catalogue
from statemachines_reports.account import account_for, judge_acknowledged, judge_duplicates
from statemachines_reports.columns import Columns, read_columns
from statemachines_reports.judge import Steps, Verdict, judge_file
from statemachines_reports.lookup import Lookup
from statemachines_reports.measure import Count, Latency, counts, latencies, used_pairs, used_rows
from statemachines_reports.recovery import SILENCE, follow

Result = tuple[str, Any]
"""A kind of result (a key of `queries.SHAPES`), and a value of that shape."""


def machines_of(protocol: str) -> Any:
    """The machines of a protocol."""
    return catalogue.machines(protocol)


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
    for run, rows in columns.runs():
        yield "runs", {"run": run, "rows": rows}
    for verdict in verdicts:
        yield "verdict", verdict
        for finding in verdict.findings:
            yield "finding", finding
    for stream in streams:
        yield "stream", stream
    for latency in latencies(columns, steps, lookup):
        yield "latency", latency
    for followed in follow(columns, steps, lookup):
        for over in followed.fail_overs:
            yield "latency", Latency("failover", over.run, over.value_ns, over.cause)
        for recovery in followed.recoveries:
            yield "recovery", recovery
            if recovery.fault == SILENCE:  # no row tells of it
                yield "count", Count(recovery.run, "fault", SILENCE, 1)
    for used in used_rows(steps, lookup):
        yield "used", used
    for pair in used_pairs(steps, lookup):
        yield "pair", pair
    for count in counts(columns, steps, lookup):
        yield "count", count
