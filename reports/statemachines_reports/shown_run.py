"""Shown run: of all runs of an analysis the one that the page tells, and all that it shows of it."""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines_reports import draw_sequence, draw_timeline
from statemachines_reports.columns import Columns, columns_of_run, read_run
from statemachines_reports.draw_histogram import format_ns
from statemachines_reports.page_head import list_violations
from statemachines_reports.pipeline import Analysis
from statemachines_reports.protocol import PageDrawing, Story, no_pictures
from statemachines_reports.run_story import RunStory, read_story, time_of


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
    drawing = [report for report in analysis.judges.reports.values() if report.pictures is not no_pictures]
    return [one for report in drawing for one in report.pictures(columns, parameters, seq)]


def _story(analysis: Analysis, protocol: str) -> Story:
    """Of the protocol whose finding is told, or of the only one there is; several tell everything."""
    reports = analysis.judges.reports
    if protocol:
        return reports[protocol].story
    return next(iter(reports.values())).story if len(reports) == 1 else Story()
