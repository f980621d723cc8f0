"""Page: what one or several analyses found, as one HTML file that needs nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jinja2
import msgspec
import pyarrow.parquet as pq

from statemachines.kernel import Fsm
from statemachines_reports import draw_bars, draw_histogram, draw_machine, draw_sequence
from statemachines_reports.comparison import Comparison
from statemachines_reports.coverage import Coverage, coverage_of, described, takeable
from statemachines_reports.draw_histogram import duration
from statemachines_reports.pipeline import NOT_PROMISED, VIOLATED, Analysis
from statemachines_reports.queries import ALL
from statemachines_reports.runs import machines_of
from statemachines_reports.trace_set import parameters

MEASURES = {
    "grant": ("Grant", "from assigning a stream until its borrower answered"),
    "revoke": ("Revoke", "from taking a stream back until it is free"),
    "failover": ("Fail-over", "from the fault of a consumer until another was granted a stream of its"),
}

PERCENTILES = ("p50", "p90", "p99", "max")
NOTHING = "\N{EN DASH}"
"""Stands where nothing was measured."""


class Part(msgspec.Struct):
    """A section of the page: one analysis, and the trace it is of."""

    name: str
    analysis: Analysis
    totals: list[tuple[str, str]]
    measures: list[dict[str, Any]]
    histograms: list[tuple[str, str, Any]]
    faults: list[dict[str, Any]]
    picture: Any


class Beside(msgspec.Struct):
    """What the page shows of a comparison: lines of a table (what, a value for each side), and charts."""

    comparison: Comparison
    lines: list[tuple[str, list[str]]]
    charts: list[tuple[str, Any]]


def part_of(name: str, analysis: Analysis) -> Part:
    """Make ready what the page shows of an analysis."""
    return Part(
        name,
        analysis,
        _totals(analysis),
        _measures(analysis),
        _histograms(analysis),
        _faults(analysis),
        _picture(analysis),
    )


def write_page(
    path: Path,
    title: str,
    lead: str,
    parts: list[Part],
    protocol: str = "shared_subscriptions",
    beside: Beside | None = None,
) -> None:
    """Write the page; it appears whole.  `beside`: the parts compared."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("statemachines_reports", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    family = {fsm.full_name: fsm for machine in machines_of(protocol) for fsm in machine.family()}
    text = environment.get_template("page.html.j2").render(
        title=title,
        lead=lead,
        parts=parts,
        beside=beside,
        machines=[_machine(fsm, parts) for fsm in family.values()],
        verdict_class={VIOLATED: "broken", NOT_PROMISED: "waived"},
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


def beside_of(comparison: Comparison) -> Beside:
    """Make ready what the page shows of a comparison."""
    lines = comparison.lines
    plain = (
        ("runs", "runs"),
        ("messages published", "published"),
        ("acknowledged", "acknowledged"),
        ("delivered again", "duplicates"),
        ("faults", "faults"),
        ("deliveries amid another's (S5)", "exclusivity"),
    )
    shown = [(what, [f"{line[name]:,}" for line in lines]) for what, name in plain]
    shown.append(("verdict of exclusivity", [line["exclusivity_verdict"] for line in lines]))
    shown += [(f"{key}", values) for key, values in comparison.differences.items()]
    for measure in ("failover", "grant", "revoke"):
        for name in PERCENTILES:
            values = [line[f"{measure}_{name}_ns"] for line in lines]
            shown.append((f"{MEASURES[measure][0].lower()}, {name}", [_time(value) for value in values]))
    charts = [
        ("Delivered again, of 1000 deliveries", "duplicates_per_1000", lambda value: f"{value:.1f}"),
        ("Deliveries amid another's (S5)", "exclusivity", lambda value: f"{value:,.0f}"),
        ("Fail-over, p50", "failover_p50_ns", duration),
        ("Fail-over, p99", "failover_p99_ns", duration),
    ]
    drawn = [
        (name, draw_bars.draw(name, [(line["side"], line[key]) for line in lines], shown_as))
        for name, key, shown_as in charts
    ]
    return Beside(comparison, shown, drawn)


def _time(value_ns: float | None) -> str:
    return NOTHING if value_ns is None else duration(value_ns)


def _spread(line: dict[str, Any]) -> dict[str, str]:
    """Percentiles as people read them: times, and beside them the units of the configuration."""
    shown = {}
    for name in PERCENTILES:
        units = line[f"{name}_units"]
        shown[name] = _time(line[f"{name}_ns"])
        shown[f"{name}_units"] = "" if units is None else f"{units:.2f}"
    return shown


def _measures(analysis: Analysis) -> list[dict[str, Any]]:
    """A line for each scenario and measure; for all scenarios together only where there are several."""
    lines = analysis.tables["latencies"]
    several = len({line["scenario"] for line in lines}) > 2
    return [
        {
            "scenario": "all" if line["scenario"] == ALL else line["scenario"],
            "measure": MEASURES[line["measure"]][0],
            "measured": f"{line['measured']:,}",
            **_spread(line),
        }
        for line in lines
        if several or line["scenario"] != ALL
    ]


def _histograms(analysis: Analysis) -> list[tuple[str, str, Any]]:
    shown = []
    for line in analysis.tables["latencies"]:
        if line["scenario"] != ALL:
            continue
        name, caption = MEASURES[line["measure"]]
        bins = {
            one["bin"]: one["measured"] for one in analysis.tables["histograms"] if one["measure"] == line["measure"]
        }
        marks = {percentile: line[f"{percentile}_ns"] for percentile in ("p50", "p90", "p99")}
        caption = f"{caption}; {line['measured']:,} measured, the longest {duration(line['max_ns'])}"
        shown.append((name, caption, draw_histogram.draw(name, bins, marks)))
    return shown


def _faults(analysis: Analysis) -> list[dict[str, Any]]:
    """The table of faults: of the runs that had one how many held, what else happened in them, and recovery."""
    recoveries = {line["fault"]: line for line in analysis.tables["recoveries"]}
    lines = []
    for line in analysis.tables["faults"]:
        per_run = {name: f"{line[name] / line['runs']:,.1f}" for name in ("duplicates", "dropped", "resent")}
        recovery = recoveries.get(line["fault"])
        spread = dict.fromkeys(PERCENTILES, NOTHING) if recovery is None else _spread(recovery)
        counted = {name: NOTHING if recovery is None else f"{recovery[name]:,}" for name in ("disturbed", "recovered")}
        lines.append({**line, **per_run, **counted, **spread})
    return lines


def _picture(analysis: Analysis) -> Any:
    """A failing run if there is one (the shortest), else a counterexample to what is not promised, else the first."""
    trace = analysis.trace
    findings = analysis.tables["findings"]
    failing = {line["run"] for line in findings if line["promised"]}
    failing |= {number for number, run in trace.runs.items() if run.outcome != "held"}
    number = min(failing, key=lambda run: parameters(trace.runs[run]).get("rows", 0)) if failing else min(trace.runs)
    seq = None
    counter = [line for line in findings if line["check"] == "exclusivity"]
    if counter and not failing:
        number = counter[0]["run"]
    if counter and number in {line["run"] for line in counter}:
        seq = next(line["seq"] for line in counter if line["run"] == number)
    for path in trace.files:
        if pq.read_table(path, columns=["run"], filters=[("run", "=", number)]).num_rows:
            return draw_sequence.draw(path, number, seq)
    return None


def _covered(fsm: Fsm[Any], parts: list[Part]) -> Coverage:
    """What all parts together have taken of a machine."""
    used = [line for part in parts for line in part.analysis.tables["coverage"]]
    pairs = [line for part in parts for line in part.analysis.tables["pairs"]]
    (covered,) = coverage_of(used, pairs, [fsm])
    return covered


def _machine(fsm: Fsm[Any], parts: list[Part]) -> dict[str, Any]:
    uses: dict[tuple[str, str], int] = {}
    taken: dict[int, int] = {}
    for part in parts:
        for line in part.analysis.tables["coverage"]:
            if line["machine"] == fsm.full_name:
                edge = (line["source"], line["dest"])
                uses[edge] = uses.get(edge, 0) + line["count"]
                taken[line["row"]] = taken.get(line["row"], 0) + line["count"]
    rows = [{"number": line.number, **described(line), "count": taken.get(line.number, 0)} for line in takeable(fsm)]
    return {
        "name": fsm.full_name,
        "rows": rows,
        "covered": _covered(fsm, parts),
        "never": [row for row in rows if not row["count"]],
        "svg": draw_machine.draw(fsm, uses),
    }
