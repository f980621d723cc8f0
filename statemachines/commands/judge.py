"""`gapless judge`: the logs of somebody else's system, under a mapping that says what their columns are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json, plain_line

if TYPE_CHECKING:
    from statemachines_reports.foreign_log import LogVerdict


def judge(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Logs: NDJSON, CSV or Parquet, older ones first.")
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option("--map", metavar="FILE", help="A mapping (TOML): which column is what.")
    ] = None,
    template: Annotated[
        str, typer.Option(metavar="NAME", help="Print a mapping to begin with: jetstream, kafka, mqtt or redis.")
    ] = "",
    run: Annotated[str, typer.Option(metavar="NAME", help="Of several runs in the logs, judge this one.")] = "",
    master: Annotated[
        str, typer.Option(metavar="URL", help="Judge on this Spark master, such as local[*]; else only large logs are.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Judge logs of a system that is not ours: at level states, events or deliveries, as the mapping says.

        gapless judge --template redis > map.toml

        gapless judge logs/*.ndjson --map map.toml

    Exit code 0: what the mapping promises held. 1: something is violated; its lines are named. 2: a file or the mapping
    is wrong; one line says where, and the mend. 3: it could not be judged, such as what may follow the end.
    """
    from statemachines_reports.foreign_log.log_analysis import judge_files
    from statemachines_reports.foreign_log.log_mapping import read_mapping, read_template

    if template:
        if files or mapping:
            raise ConfigurationError("--template", template, "prints a mapping and judges nothing; leave the files out")
        print(read_template(template), end="")
        return
    if mapping is None:
        raise ConfigurationError("--map", "", "is missing: give a mapping; --template NAME prints one to begin with")
    chosen = read_mapping(mapping)
    if run:
        if "run" not in chosen.roles:
            raise ConfigurationError("--run", run, "needs columns.run in the mapping, which says where it stands")
        chosen = msgspec.structs.replace(chosen, run=run)
    begin_work()
    verdict = judge_files(files or [], chosen, master)
    print(plain_json(verdict) if json else _describe(verdict))
    end_if((verdict.verdict == "VIOLATED", Exit.VIOLATED), (verdict.verdict != "held", Exit.INCONCLUSIVE))


def _describe(verdict: LogVerdict) -> str:
    """The verdict first, then a line a check, then places."""
    counts = ", ".join(f"{count:,} {kind}" for kind, count in verdict.counts.items() if count)
    files = f"{len(verdict.files)} file{'s' if len(verdict.files) > 1 else ''}"
    torn = f"; {verdict.torn} last lines were not ended, and are left out" if verdict.torn else ""
    said = verdict.verdict.upper()
    lines = [
        f"{said} at level {verdict.level}: {files}, {verdict.rows:,} lines{f' ({counts})' if counts else ''}{torn}"
    ]
    for one in verdict.checks:
        looked = f"{one.checked:>12,} looked at {one.found:>9,} found" if one.checked else " " * 38
        claim = one.why if one.verdict == "counted" else f"{one.claim}{f': {one.why}' if one.why else ''}"
        lines.append(f"{one.name:15} {one.verdict:13} {looked}   {claim}")
        lines += [f"  {detail}" for detail in one.details]
        if one.found > len(one.details) > 0:
            lines.append(f"  and {one.found - len(one.details):,} more")
    return "\n".join(map(plain_line, lines))
