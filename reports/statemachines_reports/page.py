"""Page: what one or several analyses found, as one HTML file that needs nothing else.

Drawing of a comparison: one measure of several sides, as horizontal bars, as SVG.

Shown run: of all runs of an analysis the one that the page tells, and all that it shows of it.

Page head: the verdict in a sentence, and what somebody needs who wants to see it again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import jinja2
import msgspec
from markupsafe import Markup, escape

from statemachines import __version__
from statemachines.kernel import Fsm
from statemachines.plain_text import plain_lines
from statemachines.whole_file import write_whole
from statemachines_reports import draw_histogram, draw_machine, draw_sequence, draw_timeline
from statemachines_reports.columns import Columns, columns_of_run, read_run
from statemachines_reports.comparison import Comparison, settings_of
from statemachines_reports.coverage import RowCoverage, coverage_of, describe_line, list_takeable
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.draw_timeline import RunStory, read_story, time_of
from statemachines_reports.judge import Judges
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
from statemachines_reports.protocol import FaultColumns, Measure, PageDrawing, Section, Story
from statemachines_reports.tables import ALL, amounts_of

MOST_NAMES: Final = 6
"""Scenarios, nodes or versions that are named."""

MOST_VIOLATIONS: Final = 30
"""Of a run, so many are listed in their order."""


class PageHead(msgspec.Struct, frozen=True):
    """`verdict`: HELD, VIOLATED or INCONCLUSIVE; `sentence`: of what; `facts`: (what, value); `settings` by key."""

    verdict: str
    sentence: str
    facts: list[tuple[str, str]]
    command: str
    settings: dict[str, str]


def head_of(analysis: Analysis) -> PageHead:
    """What stands first of an analysis."""
    verdict, sentence = _verdict(analysis)
    runs = list(analysis.trace.runs.values())
    made_by = {f"{name} {number}" for run in runs for name, number in _decode(run.versions).items()}
    seeds = sorted({run.seed for run in runs if run.scenario != "real"})
    nodes = [str(one) for facts in analysis.trace.parameters.values() for one in facts.get("nodes") or ()]
    facts = [
        ("scenario", _names(sorted({run.scenario for run in runs if run.scenario != "real"}))),
        ("seed" if len(seeds) == 1 else "seeds", _range(seeds)),
        ("nodes", _names(nodes)),
        ("made by", _names(sorted(made_by))),
        ("judged by", f"gapless {__version__}, {analysis.engine.name}"),
    ]
    return PageHead(
        verdict,
        sentence,
        [(what, value) for what, value in facts if value],
        _command(analysis),
        settings_of(analysis.trace),
    )


def _verdict(analysis: Analysis) -> tuple[str, str]:
    runs = f"{analysis.runs:,} run{'s' if analysis.runs != 1 else ''}, {analysis.rows:,} rows"
    broken = [check.name for check in analysis.checks if check.verdict == VIOLATED]
    if broken:
        bad = {line["run"] for line in analysis.tables["findings"] if line["promised"]}
        bad |= {number for number, run in analysis.trace.runs.items() if run.outcome != "held"}
        where = f"in {len(bad):,} of {runs}" if analysis.runs > 1 else f"in {runs}"
        return "VIOLATED", f"{_names(broken)} {where}"
    lacking = [*(f"{name} is not installed" for name in analysis.unjudged_steps), *analysis.absent]
    if lacking:
        return "INCONCLUSIVE", f"missing: {_names(lacking)}; {runs}"
    held = sum(check.checked > 0 for check in analysis.checks)
    return "HELD", f"{held} checks over {runs}"


def _command(analysis: Analysis) -> str:
    """What makes these runs again; "" for runs of real nodes, and of several scenarios."""
    runs = list(analysis.trace.runs.values())
    if len({run.scenario for run in runs}) != 1 or runs[0].scenario == "real":
        return ""
    given = analysis.trace.parameters[runs[0].run]
    if "set" not in given:
        return ""
    name = f"{given['protocol']}/{runs[0].scenario}" if given.get("protocol") else runs[0].scenario
    sets: Sequence[Any] = given.get("set") or ()
    words = [word for one in sets for word in ("--set", str(one))]
    seeds = sorted(run.seed for run in runs)
    if len(seeds) == 1:
        return shlex.join(["gapless", "simulate", name, "--seed", str(seeds[0]), *words, "--trace", "DIR"])
    counted = ["--from", str(seeds[0]), "--seeds", str(seeds[-1] - seeds[0] + 1)]
    return shlex.join(["gapless", "campaign", name, *counted, *words, "--trace", "DIR"])


def list_violations(analysis: Analysis, run: int) -> list[dict[str, Any]]:
    """What is wrong in a run, in the order in which it happened: a cause stands before its consequences.  The rows of a
    trace keep the order of each node, and a message stands before what it brought.  What has no row, since it is about
    the end of a run, comes last; so does what the monitors said while the run was made."""
    found = [line for line in analysis.tables["findings"] if line["run"] == run and line["promised"]]
    found.sort(key=lambda line: (line["seq"] < 0, line["seq"], line["check"]))
    lines = [{name: line[name] for name in ("check", "seq", "detail")} for line in found[:MOST_VIOLATIONS]]
    outcome = analysis.trace.runs[run].outcome
    if outcome != "held":
        lines.append({"check": "monitor, while it ran", "seq": -1, "detail": outcome})
    return lines


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _range(seeds: list[int]) -> str:
    if len(seeds) < 3 or seeds != list(range(seeds[0], seeds[-1] + 1)):
        return _names([str(seed) for seed in seeds])
    return f"{seeds[0]} to {seeds[-1]}"


def _decode(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


WIDTH, LINE, TOP = 540, 26, 10
LABEL, VALUE = 190, 90


def draw(name: str, bars: list[tuple[str, float | None]], shown: Callable[[float], str]) -> Markup:
    """`bars`: side -> value (None: nothing was measured); `shown` writes a value."""
    most = max((value for _, value in bars if value is not None), default=0.0) or 1.0
    height = 2 * TOP + LINE * len(bars)
    parts = [
        f'<svg class="chart bars" viewBox="0 0 {WIDTH} {height}" style="max-width:{WIDTH}px" role="img">'
        f"<title>{escape(name)}</title>"
    ]
    for number, (side, value) in enumerate(bars):
        y = TOP + number * LINE
        width = 0.0 if value is None else (WIDTH - LABEL - VALUE) * value / most
        text = "nothing measured" if value is None else shown(value)
        parts.append(f'<text class="side" x="{LABEL - 10}" y="{y + 17}">{escape(shorten_label(side))}</text>')
        parts.append(
            f'<rect class="bar side-{number % 4}" x="{LABEL}" y="{y + 4}" width="{max(width, 1.5):.1f}" '
            f'height="{LINE - 9}" rx="2"/>'
        )
        parts.append(f'<text class="value" x="{LABEL + width + 8:.1f}" y="{y + 17}">{escape(text)}</text>')
    return Markup("".join(parts) + "</svg>")


def shorten_label(side: str) -> str:
    """What fits beside a bar."""
    return side if len(side) <= 28 else f"…{side[-27:]}"


class ShownRun(msgspec.Struct):
    """`name`: which run it is, in words; `violations`: what is wrong in it, in its order, each with its time;
    `repeated`: cause -> messages that were delivered again."""

    name: str
    violations: list[dict[str, Any]] = []
    repeated: dict[str, int] = {}
    timeline: PageDrawing | None = None
    picture: draw_sequence.Picture | None = None
    drawings: list[PageDrawing] = []


def show_run(analysis: Analysis) -> ShownRun:
    """Of a failing run if there is one (the shortest), else of a counterexample to what is not promised, else of the
    first: its messages, and what its protocols draw of it."""
    number, found = _choose(analysis)
    run = analysis.trace.runs[number]
    name = f"run {number}" if run.scenario == "real" else f"run {number}: {run.scenario}, seed {run.seed}"
    seq = None if found is None else found["seq"]
    story = _story(analysis, "" if found is None else _owners(analysis)[found["check"]])
    for path in analysis.trace.files:
        if not read_run(path, ["run"], number).num_rows:
            continue
        columns = columns_of_run(path, number)
        told = read_story(columns, [report.roles for report in analysis.judges.reports.values()])
        violations = _timed(list_violations(analysis, number), columns, told)
        broken = None if found is None else time_of(columns, found["seq"])
        return ShownRun(
            name,
            violations,
            told.repeated or {},
            draw_timeline.draw(told, broken if violations else None),
            draw_sequence.draw(path, number, story, seq),
            _drawings(analysis, columns, number, seq),
        )
    return ShownRun(name)


def _choose(analysis: Analysis) -> tuple[int, dict[str, Any] | None]:
    """The run, and what it is told of: the first that a protocol's own check finds in it, by its place in the run."""
    trace = analysis.trace
    findings = analysis.tables["findings"]
    failing = {line["run"] for line in findings if line["promised"]}
    failing |= {number for number, run in trace.runs.items() if run.outcome != "held"}
    owners = _owners(analysis)
    placed = [line for line in findings if owners[line["check"]] and line["seq"] >= 0]
    if failing:
        number = min(failing, key=lambda run: trace.parameters[run].get("rows", 0))
    else:
        number = placed[0]["run"] if placed else min(trace.runs)
    mine = [line for line in placed if line["run"] == number and (line["promised"] or not failing)]
    return number, min(mine, key=lambda line: line["seq"], default=None)


def _owners(analysis: Analysis) -> dict[str, str]:
    """Check as shown -> its protocol."""
    return {shown: protocol for shown, protocol, _ in analysis.judges.checks}


def _timed(violations: list[dict[str, Any]], columns: Columns, told: RunStory) -> list[dict[str, Any]]:
    """With the time since the run began, where a row says it."""
    for line in violations:
        at = time_of(columns, line["seq"]) if line["seq"] >= 0 else None
        line["at"] = "" if at is None else format_ns(max(0, at - told.begin_ns))
    return violations


def _drawings(analysis: Analysis, columns: Columns, number: int, seq: int | None) -> list[PageDrawing]:
    """What the protocols draw of a run, if any of them draws."""
    parameters = analysis.trace.parameters[number]
    reports = analysis.judges.reports.values()
    return [one for report in reports for one in report.pictures(columns, parameters, seq)]


def _story(analysis: Analysis, protocol: str) -> Story:
    """Of the protocol whose finding is told, or of the only one there is; several tell everything."""
    reports = analysis.judges.reports
    if protocol:
        return reports[protocol].story
    return next(iter(reports.values())).story if len(reports) == 1 else Story()


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
    owners = _owners(analysis)
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
        (one.title, draw(one.title, [(line["side"], line[one.key]) for line in lines], one.shown_as)) for one in charts
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
