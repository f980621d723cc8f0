"""Page: what one or several analyses found, as one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from statemachines.kernel import Fsm
from statemachines.plain_text import plain_lines
from statemachines.whole_file import write_whole
from statemachines_reports import draw_bars, draw_histogram, draw_machine
from statemachines_reports.comparison import Comparison
from statemachines_reports.coverage import RowCoverage, coverage_of, describe_line, list_takeable
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.judge import Judges
from statemachines_reports.page_head import PageHead, head_of
from statemachines_reports.pipeline import (
    NO_DATA,
    NO_LOG,
    NOT_JUDGED,
    NOT_PROMISED,
    VIOLATED,
    Analysis,
    CheckSummary,
    own_tables,
)
from statemachines_reports.protocol import FaultColumns, Measure, Section
from statemachines_reports.shown_run import ShownRun, show_run
from statemachines_reports.tables import ALL, amounts_of

PERCENTILES = ("p50", "p90", "p99", "max")
NOTHING = "\N{EN DASH}"
"""Stands where nothing was measured."""


class PageSection(msgspec.Struct):
    """A section of the page: one analysis, and the trace it is of."""

    name: str
    analysis: Analysis
    totals: list[tuple[str, str]]
    measures: list[dict[str, Any]]
    histograms: list[tuple[str, str, Any]]
    unit: str
    sections: list[Section]
    head: PageHead
    shown: ShownRun
    groups: list[tuple[str, list[CheckSummary]]]
    """Protocol ("": what is asked of every protocol, or of the only one) -> its checks."""
    lead: str = ""


class PageGlance(msgspec.Struct, frozen=True):
    """A card at the top: what was `done`, numbers with what they count, the verdict, and the first part it is about
    (-1: none)."""

    title: str
    done: str
    counts: tuple[tuple[int, str], ...]
    held: bool
    part: int


class Beside(msgspec.Struct):
    """What the page shows of a comparison: lines of a table (what, a value for each side), and charts."""

    comparison: Comparison
    lines: list[tuple[str, list[str]]]
    charts: list[tuple[str, Any]]


def part_of(name: str, analysis: Analysis, lead: str = "") -> PageSection:
    """Make ready what the page shows of an analysis, behind the `lead`."""
    reports = analysis.judges.reports
    return PageSection(
        name,
        analysis,
        _totals(analysis),
        _measures(analysis),
        _histograms(analysis),
        "; ".join(f"{report.unit}" for report in reports.values() if report.unit),
        [
            *(
                msgspec.structs.replace(section, title=f"{name}: {section.title}") if len(reports) > 1 else section
                for name, report in reports.items()
                for section in report.sections(own_tables(analysis, name))
            ),
            _faults(analysis),
        ],
        head_of(analysis),
        show_run(analysis),
        _groups(analysis),
        lead,
    )


def _groups(analysis: Analysis) -> list[tuple[str, list[CheckSummary]]]:
    """The checks, protocol by protocol where there are several."""
    if len(analysis.judges.reports) < 2:
        return [("", analysis.checks)]
    owners = {shown: protocol for shown, protocol, _ in analysis.judges.checks}
    groups: dict[str, list[CheckSummary]] = {name: [] for name in ("", *analysis.judges.reports)}
    for check in analysis.checks:
        groups[owners.get(check.name, "")].append(check)
    return list(groups.items())


def write_page(
    path: Path,
    title: str,
    lead: str,
    parts: list[PageSection],
    beside: Beside | None = None,
    glances: Sequence[PageGlance] = (),
) -> None:
    """Write the page; it appears whole.  `beside`: the parts compared; `glances`: cards in place of a navigation."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("statemachines_reports", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    family = {fsm.full_name: fsm for part in parts for fsm in part.analysis.judges.lookup.family}
    short = [fsm.name for fsm in family.values()]
    machines = [
        {"name": fsm.name if short.count(fsm.name) == 1 else fsm.full_name, **_machine(fsm, parts)}
        for fsm in family.values()
    ]
    taken = [machine for machine in machines if machine["covered"].taken]
    text = environment.get_template("page.html.j2").render(
        title=title,
        lead=lead,
        parts=parts,
        beside=beside,
        glances=glances,
        machines=taken,
        idle=[machine for machine in machines if machine not in taken],
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        verdict_class=_verdict_class,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, plain_lines(text).encode())


def _verdict_class(verdict: str) -> str:
    if verdict == VIOLATED:
        return "broken"
    return "waived" if verdict == NOT_PROMISED or verdict.startswith((NOT_JUDGED, NO_LOG, NO_DATA)) else "held"


def _totals(analysis: Analysis) -> list[tuple[str, str]]:
    scenarios, totals = analysis.tables["scenarios"], analysis.tables["totals"]

    def format_total(kind: str) -> str:
        return f"{sum(line['count'] for line in totals if line['kind'] == kind):,}"

    cards = [
        (amount.card, f"{sum(line[name] for line in scenarios):,}")
        for name, _, amount in amounts_of(analysis.judges)
        if amount.card and amount.scenarios
    ]
    unjudged = [(f"steps of {name}, not judged", f"{count:,}") for name, count in analysis.unjudged_steps.items()]
    found = [
        ("runs", f"{analysis.runs:,}"),
        ("rows of trace", f"{analysis.rows:,}"),
        *cards,
        ("packets sent", format_total("send")),
        ("packets dropped", format_total("drop")),
        ("torn lines", f"{analysis.torn:,}"),
        *unjudged,
    ]
    return [(what, count) for what, count in found if count != "0"]


def _measures_of(judges: Judges) -> dict[str, Measure]:
    """Measure as shown -> what it is."""
    shown = judges.names(lambda report: (one.name for one in report.measures))
    return {shown[protocol, one.name]: one for protocol, report in judges.reports.items() for one in report.measures}


def beside_of(comparison: Comparison, judges: Judges) -> Beside:
    """Make ready what the page shows of a comparison; `judges`: those of a side."""
    lines = comparison.lines
    counted = [(amount.compared, name) for name, _, amount in amounts_of(judges) if amount.compared]
    checks = [shown for shown, _, check in judges.checks if check.level == "properties"]
    plain = (("runs", "runs"), *counted, ("faults", "faults"), *((f"found by {name}", name) for name in checks))
    shown = [(what, [f"{line[name]:,}" for line in lines]) for what, name in plain]
    shown += [(f"verdict of {name}", [line[f"{name}_verdict"] for line in lines]) for name in checks]
    shown += [(f"{key}", values) for key, values in comparison.differences.items()]
    for name, measure in _measures_of(judges).items():
        for percentile in PERCENTILES:
            values = [line[f"{name}_{percentile}_ns"] for line in lines]
            shown.append((f"{measure.title.lower()}, {percentile}", [_time(value) for value in values]))
    charts = [chart for report in judges.reports.values() for chart in report.charts]
    drawn = [
        (one.title, draw_bars.draw(one.title, [(line["side"], line[one.key]) for line in lines], one.shown_as))
        for one in charts
    ]
    return Beside(comparison, shown, drawn)


def _time(value_ns: float | None) -> str:
    return NOTHING if value_ns is None else format_ns(value_ns)


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
    lines, known = analysis.tables["latencies"], _measures_of(analysis.judges)
    several = len({line["scenario"] for line in lines}) > 2
    return [
        {
            "scenario": "all" if line["scenario"] == ALL else line["scenario"],
            "measure": known[line["measure"]].title,
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
        measure = _measures_of(analysis.judges)[line["measure"]]
        bins = {
            one["bin"]: one["measured"] for one in analysis.tables["histograms"] if one["measure"] == line["measure"]
        }
        marks = {percentile: line[f"{percentile}_ns"] for percentile in ("p50", "p90", "p99")}
        caption = f"{measure.about}; {line['measured']:,} measured, the longest {format_ns(line['max_ns'])}"
        shown.append((measure.title, caption, draw_histogram.draw(measure.title, bins, marks)))
    return shown


def _faults(analysis: Analysis) -> Section:
    """The table of faults: of the runs that had one how many held, what else happened in them, and what each protocol
    says of it."""
    amounts = [(name, amount.faults) for name, _, amount in amounts_of(analysis.judges) if amount.faults]
    amounts.append(("dropped", "packets dropped, a run"))
    reports = analysis.judges.reports
    found = (report.fault_columns(own_tables(analysis, name)) for name, report in reports.items())
    more: list[FaultColumns] = [columns for columns in found if columns is not None]
    heads = ("fault", "runs with it", "of them held", "injected", *(words for _, words in amounts))
    lines = []
    for line in analysis.tables["faults"]:
        cells = [line["fault"], *(f"{line[name]:,}" for name in ("runs", "held", "injected"))]
        cells += [f"{line[name] / line['runs']:,.1f}" for name, _ in amounts]
        for columns in more:
            cells += columns.cells.get(line["fault"], (NOTHING,) * len(columns.heads))
        lines.append(tuple(cells))
    captions = " ".join(columns.caption for columns in more)
    return Section("Faults against outcomes", (*heads, *(head for one in more for head in one.heads)), lines, captions)


def _covered(fsm: Fsm[Any], parts: list[PageSection]) -> RowCoverage:
    """What all parts together have taken of a machine."""
    used = [line for part in parts for line in part.analysis.tables["coverage"]]
    pairs = [line for part in parts for line in part.analysis.tables["pairs"]]
    (covered,) = coverage_of(used, pairs, [fsm])
    return covered


def _machine(fsm: Fsm[Any], parts: list[PageSection]) -> dict[str, Any]:
    uses: dict[tuple[str, str], int] = {}
    taken: dict[int, int] = {}
    for part in parts:
        for line in part.analysis.tables["coverage"]:
            if line["machine"] == fsm.full_name:
                edge = (line["source"], line["dest"])
                uses[edge] = uses.get(edge, 0) + line["count"]
                taken[line["row"]] = taken.get(line["row"], 0) + line["count"]
    rows = [
        {"number": line.number, **describe_line(line), "count": taken.get(line.number, 0)}
        for line in list_takeable(fsm)
    ]
    return {
        "rows": rows,
        "covered": _covered(fsm, parts),
        "never": [row for row in rows if not row["count"]],
        "svg": draw_machine.draw(fsm, uses),
    }
