"""Page: what one or several analyses found, as one HTML file that needs nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import pyarrow.parquet as pq

from statemachines.kernel import Fsm, name_of
from statemachines_reports import draw_histogram, draw_machine, draw_sequence
from statemachines_reports.draw_histogram import duration
from statemachines_reports.pipeline import Analysis
from statemachines_reports.runs import machines_of
from statemachines_reports.trace_set import TraceSet, parameters

MEASURES = {
    "grant": ("Grant", "from assigning a stream until its borrower answered"),
    "revoke": ("Revoke", "from taking a stream back until it is free"),
    "failover": ("Fail-over", "from the death of a consumer until a stream of its is delivered again"),
}


class Part(msgspec.Struct):
    """A section of the page: one analysis, and the trace it is of."""

    name: str
    analysis: Analysis
    totals: list[tuple[str, str]]
    histograms: list[tuple[str, str, Any]]
    faults: list[dict[str, Any]]
    picture: Any


def part_of(name: str, analysis: Analysis, directory: Path, out: Path, protocol: str = "shared_subscriptions") -> Part:
    """Make ready what the page shows of an analysis of the trace in `directory`."""
    trace = TraceSet(directory if not (out / "merged").is_dir() else out / "merged", out, machines_of(protocol))
    return Part(
        name, analysis, _totals(analysis), _histograms(analysis), _faults(analysis, trace), _picture(analysis, trace)
    )


def write_page(path: Path, title: str, lead: str, parts: list[Part], protocol: str = "shared_subscriptions") -> None:
    """Write the page; it appears whole."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("statemachines_reports", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    family = {fsm.name: fsm for machine in machines_of(protocol) for fsm in machine.family()}
    text = environment.get_template("page.html.j2").render(
        title=title, lead=lead, parts=parts, machines=[_machine(fsm, parts) for fsm in family.values()]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)


def _totals(analysis: Analysis) -> list[tuple[str, str]]:
    accounts, totals = analysis.tables["accounts"], analysis.tables["totals"]

    def summed(column: str) -> str:
        return f"{sum(line[column] for line in accounts):,}"

    def counted(kind: str) -> str:
        return f"{sum(line['count'] for line in totals if line['kind'] == kind):,}"

    return [
        ("runs", f"{analysis.runs:,}"),
        ("rows of trace", f"{analysis.rows:,}"),
        ("messages published", summed("published")),
        ("delivered", summed("delivered")),
        ("delivered again", summed("duplicates")),
        ("packets sent", counted("send")),
        ("packets dropped", counted("drop")),
        ("torn lines", f"{analysis.torn:,}"),
    ]


def _histograms(analysis: Analysis) -> list[tuple[str, str, Any]]:
    shown = []
    for line in analysis.tables["latencies"]:
        name, caption = MEASURES[line["measure"]]
        bins = {
            one["bin"]: one["measured"] for one in analysis.tables["histograms"] if one["measure"] == line["measure"]
        }
        marks = {percentile: line[f"{percentile}_ns"] for percentile in ("p50", "p90", "p99")}
        caption = f"{caption}; {line['measured']:,} measured, the longest {duration(line['max_ns'])}"
        shown.append((name, caption, draw_histogram.draw(name, bins, marks)))
    return shown


def _faults(analysis: Analysis, trace: TraceSet) -> list[dict[str, Any]]:
    """The table of faults: of the runs that had one how many held, and what else happened in them, per run."""
    injected = {number: parameters(run).get("faults", {}) for number, run in trace.runs.items()}
    broken = {line["run"] for line in analysis.tables["findings"]}
    broken |= {number for number, run in trace.runs.items() if run.outcome != "held"}
    lines = []
    for line in analysis.tables["faults"]:
        if line["fault"].startswith("end_") or line["fault"] in ("heal", "restart", "resume"):
            continue
        had = [number for number, faults in injected.items() if line["fault"] in faults] or list(trace.runs)
        held = line["runs"] - len(broken.intersection(had))
        per_run = {name: f"{line[name] / line['runs']:,.1f}" for name in ("duplicates", "dropped", "resent")}
        lines.append({**line, **per_run, "held": held})
    return lines


def _picture(analysis: Analysis, trace: TraceSet) -> Any:
    """A failing run if there is one (the shortest), else the first."""
    failing = {line["run"] for line in analysis.tables["findings"]}
    failing |= {number for number, run in trace.runs.items() if run.outcome != "held"}
    number = min(failing, key=lambda run: parameters(trace.runs[run]).get("rows", 0)) if failing else min(trace.runs)
    for path in trace.files:
        if pq.read_table(path, columns=["run"], filters=[("run", "=", number)]).num_rows:
            return draw_sequence.draw(path, number)
    return None


def _machine(fsm: Fsm[Any], parts: list[Part]) -> dict[str, Any]:
    uses: dict[tuple[str, str], int] = {}
    taken: dict[int, int] = {}
    for part in parts:
        for line in part.analysis.tables["coverage"]:
            if line["machine"] == fsm.name:
                edge = (line["source"], line["dest"])
                uses[edge] = uses.get(edge, 0) + line["count"]
                taken[line["row"]] = taken.get(line["row"], 0) + line["count"]
    rows = [
        {
            "number": line.number,
            "event": name_of(line.event),
            "source": ", ".join(str(state.value) for state in line.sources),
            "dest": "" if line.dest is None else str(line.dest.value),
            "guard": line.guard_name,
            "action": line.action_name or ("" if line.kind == "row" else line.kind),
            "clause": line.clause,
            "count": taken.get(line.number, 0),
        }
        for line in fsm.lines
        if line.kind != "refuse"
    ]
    return {
        "name": fsm.name,
        "rows": rows,
        "taken": sum(1 for row in rows if row["count"]),
        "svg": draw_machine.draw(fsm, uses),
    }
