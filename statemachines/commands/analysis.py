"""`gapless analyze`: judge a trace, write tables and a page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from statemachines.commands.exits import Exit


def analyze(
    trace: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Parquet of simulated runs, or the logs (*.ndjson) of a real one."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables and page go.")] = Path("out/report"),
    spark: Annotated[
        bool, typer.Option("--spark/--no-spark", help="On Spark; or in this process, sooner for a few million rows.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Judge every step of a trace with Spark: rows, continuity, exclusivity, accounting; tables and a page.

    The logs of a real run are merged first: each node's order is kept, a send comes before its deliver, then time.
    Exit code 1 if anything does not hold.
    """
    from statemachines_reports.page import part_of, write_page
    from statemachines_reports.pipeline import analyze as judge

    def progress(text: str) -> None:
        if sys.stderr.isatty():
            print(text, file=sys.stderr)

    analysis = judge(trace, out, progress=progress, spark=spark)
    page = out / "index.html"
    write_page(page, f"Trace {trace.name}", str(trace), [part_of("Trace", analysis, trace, out)])
    if json:
        print(msgspec.json.encode({"checks": analysis.checks, "runs": analysis.runs, "rows": analysis.rows}).decode())
    else:
        print(f"{analysis.runs} runs, {analysis.rows} rows, {analysis.torn} torn lines dropped")
        for check in analysis.checks:
            verdict = "held" if check.held else "VIOLATED"
            print(
                f"{check.name:13} {check.level:11} {verdict:9} {check.checked:>12,} looked at {check.wrong:>8,} wrong"
                f"   {check.claim}"
            )
        for finding in analysis.tables["findings"][:20]:
            print(f"  run {finding['run']} seq {finding['seq']}: {finding['detail']}")
        print(f"tables: {out / 'tables'}; page: {page}")
    if not analysis.held:
        raise typer.Exit(Exit.VIOLATED)
    if any(check.level == "rows" and not check.checked for check in analysis.checks):
        print("inconclusive: there is no step in this trace", file=sys.stderr)
        raise typer.Exit(Exit.INCONCLUSIVE)
