"""Pipeline: a trace is opened, judged, and what was found becomes checks, tables and a summary."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from statemachines_reports.coverage import Coverage, coverage_of, never_taken
from statemachines_reports.plain import plain_tables
from statemachines_reports.runs import lookup_of
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

PROMISED_BY_EXCLUSIVE: Final = ("exclusivity", "duplicates")
"""What holds only where hand-over is exclusive."""

HELD: Final = "held"
VIOLATED: Final = "VIOLATED"
NOT_PROMISED: Final = "not promised by this configuration"

CLAIMS: Final = {
    "rows": "every step takes a row of its table",
    "continuity": "every step begins where the one before ended",
    "assignments": "a leader gives a stream to one borrower at a time (S2)",
    "exclusivity": "a stream is delivered by one session at a time (S5)",
    "duplicates": "nothing is delivered twice without a reason (S13)",
    "acknowledged": "every published message is acknowledged, and no other (L5)",
    "monitors": "nothing was violated while the run was made",
}


SHORT: Final = (
    "findings", "scenarios", "latencies", "fail_overs", "recoveries", "faults", "never", "totals",
)  # fmt: skip
"""The tables that are in `summary.json` too."""


class Check(msgspec.Struct, frozen=True):
    """A verdict over everything: `level` rows or properties; `checked` in what the check looks at.

    `verdict` is `HELD`, `VIOLATED`, or `NOT_PROMISED` where no run promises it; `waived` counts what would be wrong,
    had the configuration of its run promised it.  Only what is violated is not `held`.
    """

    name: str
    level: str
    claim: str
    held: bool
    checked: int
    wrong: int
    waived: int
    verdict: str


class Analysis(msgspec.Struct):
    """What `analyze` found: the checks, and the tables as lists of records (also in `out/tables`)."""

    trace: TraceSet
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


Judge = Callable[[TraceSet, str], Tables]
"""What makes the tables of a trace of a protocol: `Session.tables`, or `plain_tables`."""

Say = Callable[[str], None]


def analyze(
    directory: Path,
    out: Path,
    protocol: str = "shared_subscriptions",
    progress: Say | None = None,
    *,
    spark: bool = True,
) -> Analysis:
    """Judge the trace in `directory`; tables and `summary.json` go to `out`.

    Without Spark everything is done in this process, with the same results: sooner where there are less than some
    million steps.  `progress` is called with what begins.
    """
    (analysis,) = analyze_all([(directory, out)], protocol, progress, spark=spark)
    return analysis


def analyze_all(
    traces: Sequence[tuple[Path, Path]],
    protocol: str = "shared_subscriptions",
    progress: Say | None = None,
    *,
    spark: bool = True,
) -> list[Analysis]:
    """Judge several traces, each (directory, out) as `analyze` does it; Spark is started once."""
    say = progress or (lambda text: None)
    opened = [TraceSet(directory, out) for directory, out in traces]
    if not spark:
        return [judge(trace, out, protocol, plain_tables, say) for trace, (_, out) in zip(opened, traces, strict=True)]
    say("starting Spark")
    with Session() as session:
        return [
            judge(trace, out, protocol, session.tables, say) for trace, (_, out) in zip(opened, traces, strict=True)
        ]


def judge(trace: TraceSet, out: Path, protocol: str, tables_of: Judge, say: Say) -> Analysis:
    """One trace."""
    say(f"judging {len(trace.files)} files")
    tables = tables_of(trace, protocol)
    trace.check_runs([line["run"] for line in tables["runs"]])
    say("writing tables")
    family = lookup_of(protocol).family
    tables["never"] = never_taken(tables["coverage"], family)
    analysis = Analysis(
        trace,
        len(trace.runs),
        sum(line["rows"] for line in tables["runs"]),
        trace.torn,
        checks_of(tables["verdicts"], trace),
        coverage_of(tables["coverage"], tables["pairs"], family),
        tables,
    )
    write_tables(out / "tables", tables)
    write_summary(out / "summary.json", analysis)
    return analysis


def checks_of(verdicts: list[dict[str, Any]], trace: TraceSet) -> list[Check]:
    """The checks in the order of `CLAIMS`."""
    by_name = {line["check"]: (line["checked"], line["wrong"], line["waived"]) for line in verdicts}
    by_name["monitors"] = len(trace.runs), sum(run.outcome != "held" for run in trace.runs.values()), 0
    promised = any(trace.exclusive.values())
    checks = []
    for name, claim in CLAIMS.items():
        if name in by_name:
            checked, wrong, waived = by_name[name]
            verdict = VIOLATED if wrong else HELD
            if name in PROMISED_BY_EXCLUSIVE and not promised:
                verdict = NOT_PROMISED
            checks.append(Check(name, LEVELS[name], claim, not wrong, checked, wrong, waived, verdict))
    return checks


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
        **{name: analysis.tables[name] for name in SHORT},
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2))
