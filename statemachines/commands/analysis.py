"""`gapless analyze`: judge a trace, or compare several; write tables and a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from statemachines.commands.exits import Exit

if TYPE_CHECKING:
    from statemachines_reports.comparison import Comparison
    from statemachines_reports.pipeline import Analysis

SHOWN = 20
"""Findings that are printed of each analysis; the page and the tables have more."""


def analyze(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR",
            help="Parquet of simulated runs, or the logs (*.ndjson) of a real one. Several are compared.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables and page go.")] = Path("out/report"),
    spark: Annotated[
        bool,
        typer.Option("--spark/--no-spark", help="On Spark; or in this process: sooner below some ten million rows."),
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Judge every step of a trace; measure it, and write tables (Parquet), summary.json and a page (index.html).

    Checked: every step is in the tables of its machine, nobody delivers beside another, nothing is lost, nothing comes
    twice without a reason.  Measured: grants, revokes, fail-overs, recovery from faults, what was sent again, which
    rows were taken.

    Several directories are analyzed one by one and put side by side, say the same seeds with and without exclusive
    hand-over:

        gapless campaign storm --trace out/on
        gapless campaign storm --set configuration.exclusive=false --trace out/off
        gapless analyze out/on out/off

    Exit code 1 if anything does not hold; what a configuration does not promise is shown, and is no failure.
    """
    from statemachines_reports.comparison import compare, side_names, write_comparison
    from statemachines_reports.page import beside_of, part_of, write_page
    from statemachines_reports.pipeline import analyze_all

    names = side_names(traces)
    single = len(traces) == 1
    places = [out] if single else [out / name.replace("/", "_") for name in names]
    analyses = analyze_all(list(zip(traces, places, strict=True)), progress=_progress, spark=spark)
    sides = dict(zip(names, analyses, strict=True))
    comparison = None
    if not single:
        comparison = compare(sides)
        write_comparison(out, comparison)
    parts = [part_of("Trace" if single else name, analysis) for name, analysis in sides.items()]
    lead = ", ".join(str(trace) for trace in traces)
    title = f"Trace {names[0]}" if single else f"{len(names)} traces side by side"
    page = out / "index.html"
    write_page(page, title, lead, parts, beside=None if comparison is None else beside_of(comparison))
    if json:
        print(msgspec.json.encode(_as_json(sides, comparison)).decode())
    else:
        _print(sides, comparison)
        print(f"tables: {', '.join(str(place / 'tables') for place in places)}; page: {page}")
    _exit(analyses)


def _progress(text: str) -> None:
    """Only where somebody is looking."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)


def _as_json(sides: dict[str, Analysis], comparison: Comparison | None) -> dict[str, Any]:
    """What a program wants: of one trace its checks, of several those of each and the comparison."""
    found = [
        {"checks": one.checks, "runs": one.runs, "rows": one.rows, "coverage": one.coverage} for one in sides.values()
    ]
    if comparison is None:
        return found[0]
    return {"sides": dict(zip(sides, found, strict=True)), "comparison": comparison}


def _print(sides: dict[str, Analysis], comparison: Comparison | None) -> None:
    for name, analysis in sides.items():
        if comparison is not None:
            print(f"\n{name}")
        print(f"{analysis.runs} runs, {analysis.rows} rows, {analysis.torn} torn lines dropped")
        for check in analysis.checks:
            found = f"{check.checked:>12,} looked at {check.wrong:>8,} wrong"
            if check.waived:
                found = f"{check.checked:>12,} looked at {check.waived:>8,} found"
            verdict = check.verdict if len(check.verdict) < 10 else "-"
            print(f"{check.name:13} {check.level:11} {verdict:9} {found}   {check.claim}{_not_promised(check)}")
        for finding in analysis.tables["findings"][:SHOWN]:
            kind = "" if finding["promised"] else "not promised: "
            print(f"  run {finding['run']} seq {finding['seq']}: {kind}{finding['detail']}")
    if comparison is not None:
        _print_comparison(comparison)


def _not_promised(check: Any) -> str:
    return f": {check.verdict}" if check.verdict.startswith("not promised") else ""


def _print_comparison(comparison: Comparison) -> None:
    from statemachines_reports.page import beside_of

    lines = beside_of(comparison).lines
    width = max(len(what) for what, _ in lines)
    print(f"\nside by side: {comparison.common} of {comparison.seeds} seeds are on every side")
    heads = [line["side"] for line in comparison.lines]
    widths = [max(len(head), *(len(values[place]) for _, values in lines)) for place, head in enumerate(heads)]
    for what, values in (("", heads), *lines):
        cells = (f"{value:>{size}}" for value, size in zip(values, widths, strict=True))
        print(f"{what:{width}}  {'  '.join(cells)}")


def _exit(analyses: list[Analysis]) -> None:
    if not all(analysis.held for analysis in analyses):
        raise typer.Exit(Exit.VIOLATED)
    if any(check.level == "rows" and not check.checked for analysis in analyses for check in analysis.checks):
        print("inconclusive: there is no step in this trace", file=sys.stderr)
        raise typer.Exit(Exit.INCONCLUSIVE)
