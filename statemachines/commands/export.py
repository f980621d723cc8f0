"""`gapless export`: a run as a file of another tool."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from statemachines.interrupts import begin_work
from statemachines.plain_text import plain_json, plain_line


class ExportFormat(Enum):
    """A format of another tool."""

    PERFETTO = "perfetto"
    SHIVIZ = "shiviz"
    OTLP = "otlp"


def export(
    trace: Annotated[Path, typer.Argument(metavar="DIR", help="A trace (Parquet), or the logs of a real run.")],
    to: Annotated[ExportFormat, typer.Option("--to", help="The format.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write.")],
    run: Annotated[
        int | None, typer.Option(min=0, max=2**63 - 1, help="The number of the run, where the trace has several.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Write one run as a file for another tool.

        gapless export out/sim --run 7 --to perfetto --out run.json

    perfetto: JSON trace events, for ui.perfetto.dev and chrome://tracing. shiviz: a log with vector clocks. otlp:
    OpenTelemetry spans as JSON lines.
    """
    from statemachines.whole_file import check_name, whole_file
    from statemachines_reports.export.exported_run import Write, read_exported, write_otlp, write_perfetto, write_shiviz

    writers: dict[ExportFormat, Write] = {
        ExportFormat.PERFETTO: write_perfetto, ExportFormat.SHIVIZ: write_shiviz, ExportFormat.OTLP: write_otlp,
    }  # fmt: skip
    check_name(out, "--out")
    begin_work()
    found = read_exported(trace, run)
    with whole_file(out) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        file.writelines(writers[to](found))
    told = {"file": out, "run": found.run, "scenario": found.scenario, "rows": len(found.rows), "format": to.value}
    text = f"{out}: run {found.run} of {found.scenario}, {len(found.rows):,} rows, as {to.value}"
    print(plain_json(told) if json else plain_line(text))
