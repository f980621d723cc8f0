"""Pipeline: a trace is opened, judged, and what was found becomes checks, tables and a summary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines_reports.plain import plain_tables
from statemachines_reports.runs import lookup_of, machines_of
from statemachines_reports.session import Session, Tables
from statemachines_reports.trace_set import TraceSet

LEVELS: Final = {
    "rows": "rows",
    "continuity": "rows",
    "assignments": "properties",
    "exclusivity": "properties",
    "duplicates": "properties",
    "acknowledged": "properties",
    "monitors": "properties",
}

CLAIMS: Final = {
    "rows": "every step takes a row of its table",
    "continuity": "every step begins where the one before ended",
    "assignments": "a leader gives a stream to one borrower at a time (S2)",
    "exclusivity": "a stream is delivered by one session at a time (S5)",
    "duplicates": "nothing is delivered twice without a reason (S13)",
    "acknowledged": "every published message is acknowledged, and no other (L5)",
    "monitors": "nothing was violated while the run was made",
}


class Check(msgspec.Struct, frozen=True):
    """A verdict over everything: `level` as in DESIGN (rows, properties); `checked` in what the check looks at."""

    name: str
    level: str
    claim: str
    held: bool
    checked: int
    wrong: int


class Coverage(msgspec.Struct, frozen=True):
    """How many rows of a machine's table were taken; rows that refuse an event cannot be and do not count."""

    machine: str
    taken: int
    rows: int


class Analysis(msgspec.Struct):
    """What `analyze` found: the checks, and the tables as lists of records (also in `out/tables`)."""

    runs: int
    rows: int
    torn: int
    checks: list[Check]
    coverage: list[Coverage]
    tables: Tables

    @property
    def held(self) -> bool:
        """Every check held."""
        return all(check.held for check in self.checks)


def analyze(
    directory: Path,
    out: Path,
    protocol: str = "shared_subscriptions",
    progress: Callable[[str], None] | None = None,
    *,
    spark: bool = True,
) -> Analysis:
    """Judge the trace in `directory`; tables and `summary.json` go to `out`.

    Without Spark everything is done in this process, with the same results: sooner where there are less than some
    million steps.  `progress` is called with what begins.
    """
    say = progress or (lambda text: None)
    trace = TraceSet(directory, out, machines_of(protocol))
    if spark:
        say(f"starting Spark for {len(trace.files)} files")
        with Session() as session:
            say("judging")
            tables = session.tables(trace, protocol)
    else:
        say(f"judging {len(trace.files)} files")
        tables = plain_tables(trace, protocol)
    trace.check_runs([line["run"] for line in tables["runs"]])
    say("writing tables")
    analysis = Analysis(
        len(trace.runs),
        sum(line["rows"] for line in tables["runs"]),
        trace.torn,
        checks_of(tables["verdicts"], trace),
        coverage_of(tables["coverage"], protocol),
        tables,
    )
    write_tables(out / "tables", tables)
    write_summary(out / "summary.json", analysis)
    return analysis


def checks_of(verdicts: list[dict[str, Any]], trace: TraceSet) -> list[Check]:
    """The checks in the order of `CLAIMS`."""
    by_name = {line["check"]: (line["checked"], line["wrong"]) for line in verdicts}
    by_name["monitors"] = len(trace.runs), sum(run.outcome != "held" for run in trace.runs.values())
    return [
        Check(name, LEVELS[name], claim, by_name[name][1] == 0, *by_name[name])
        for name, claim in CLAIMS.items()
        if name in by_name
    ]


def coverage_of(used: list[dict[str, Any]], protocol: str) -> list[Coverage]:
    """Rows taken, per machine."""
    taken = {(line["machine"], line["row"]) for line in used}
    return [
        Coverage(
            fsm.name,
            sum((fsm.name, line.number) in taken for line in fsm.lines),
            sum(line.kind != "refuse" for line in fsm.lines),
        )
        for fsm in lookup_of(protocol).family
    ]


def write_tables(out: Path, tables: Tables) -> None:
    """Each table as a Parquet file; one that an earlier analysis left and this one has not is removed."""
    out.mkdir(parents=True, exist_ok=True)
    for name, lines in tables.items():
        path = out / f"{name}.parquet"
        if lines:
            pq.write_table(pa.Table.from_pylist(lines), path, compression="zstd")
        else:
            path.unlink(missing_ok=True)


def write_summary(path: Path, analysis: Analysis) -> None:
    """What a program wants to know: everything but the long tables."""
    summary = {
        "held": analysis.held,
        "runs": analysis.runs,
        "rows": analysis.rows,
        "torn": analysis.torn,
        "checks": analysis.checks,
        "coverage": analysis.coverage,
        **{name: analysis.tables[name] for name in ("findings", "latencies", "totals", "faults")},
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2))
