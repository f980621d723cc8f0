"""`gapless analyze`: judge a trace, or compare several; write tables and a page."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.commands.following import follow_one
from statemachines.commands.progress import say_progress
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json, plain_line
from statemachines.spark.spark_settings import SparkSettings, read_settings
from statemachines.whole_file import local_path, store_path

if TYPE_CHECKING:
    from statemachines.kernel import Protocol
    from statemachines_reports.comparison import Comparison
    from statemachines_reports.judge import Judges
    from statemachines_reports.pipeline import Analysis


class Engine(StrEnum):
    """Where the work is done."""

    AUTO = "auto"
    SPARK = "spark"
    LOCAL = "local"


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
    engine: Annotated[
        Engine, typer.Option(help="On Spark, or in this process (local); auto: on Spark from 100 million rows on.")
    ] = Engine.AUTO,
    master: Annotated[
        str,
        typer.Option(metavar="URL", help="Spark's master, such as spark://host:7077; else what Spark is set to."),
    ] = "",
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A setting of Spark, as of spark-submit; repeatable."),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of a protocol that no package registers, or a factory of adopted machines: module:ATTRIBUTE.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Judge files on Spark as they come into DIR, until DIR/run.end is there.")
    ] = False,
    idle: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="With --follow: end when no file has come for so long."),
    ] = None,
    lateness: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="With --follow: so long after run.end files may come.")
    ] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Judge every step of a trace; measure it, and write tables (Parquet), summary.json and a page (index.html).

    Checked: every step is in the tables of its machine, whatever protocol it is of; messages arrive as they were sent,
    what is done follows a step, and no clock goes back; and what each protocol adds: that nothing is lost, say, and
    nothing comes twice without a reason. `gapless damage` shows what each check sees.  Measured: latencies, what
    faults did, which rows were taken.

    Spark and this process give the same tables.  The executors of a cluster are sent our code, and need what is in it
    (page "Spark on a cluster"); what they share with this process is only the files of the trace.  `--master` and
    `--conf` mean Spark.  What they name wins over Spark's own configuration, which wins over our defaults.

    Several directories are analyzed one by one and put side by side, say the same seeds with and without exclusive
    hand-over:

        gapless campaign storm --trace out/on
        gapless campaign storm --set configuration.exclusive=false --trace out/off
        gapless analyze out/on out/off

    With `--follow` violations are printed as their files come, and are final.  What needs the logs of other nodes is
    judged when `run.end` is there; without it the logs of a cluster are inconclusive.  The same command with the same
    `--out` goes on where it was, even after a kill (page "Follow a run").

    Exit code 1 if anything does not hold; what a configuration does not promise is shown, and is no failure.  Exit code
    3 if all else holds and the trace has machines of a protocol that is not installed: their steps cannot be judged.
    Ctrl-C ends it with what is judged by then (exit code 130): of several traces those that are done, and of
    the one that is not the files that are.
    """
    from statemachines.s3_path import show_path
    from statemachines_reports.comparison import compare, side_names, write_comparison
    from statemachines_reports.page import beside_of, part_of, write_page
    from statemachines_reports.pipeline import analyze_all

    begin_work()
    settings = read_settings(master, conf or ())
    chosen = choose_spark(engine, settings)
    named = [_find_protocol(name).name for name in protocol or ()]
    traces = [local_path(one, "trace") if follow else store_path(one) for one in traces]
    out = local_path(out, "--out") if follow else store_path(out, "--out")
    names = side_names(traces)
    single = len(traces) == 1
    places = [out] if single else [out / name.replace("/", "_") for name in names]
    is_stopped = False
    if follow:
        chosen, analyses, is_stopped = True, *follow_one(traces, out, chosen, settings, (lateness, idle), json)
    else:
        analyses = analyze_all(
            list(zip(traces, places, strict=True)),
            progress=say_progress,
            spark=chosen,
            settings=settings,
            partly=True,
            named=named,
        )
    end_if((not analyses, Exit.INTERRUPTED, "interrupted: nothing is judged yet, and nothing is written"))
    sides = dict(zip(names, analyses, strict=False))
    comparison = None
    if len(analyses) > 1:
        comparison = compare(sides)
        write_comparison(out, comparison)
    parts = [part_of("Trace" if single else name, analysis) for name, analysis in sides.items()]
    lead = ", ".join(str(trace) for trace in traces)
    title = f"Trace {names[0]}" if single else f"{len(names)} traces side by side"
    page = out / "index.html"
    write_page(
        page, title, lead, parts, beside=None if comparison is None else beside_of(comparison, analyses[0].judges)
    )
    if json:
        print(plain_json(_as_json(sides, comparison) | {"engine": analyses[0].engine}))
    else:
        if chosen is None:
            print(f"engine {analyses[0].engine.name}: {analyses[0].engine.why}")
        _print(sides, comparison, analyses[0].judges)
        tables = ", ".join(show_path(place / "tables") for place in places[: len(analyses)])
        print(f"tables: {tables}; page: {show_path(page)}")
    last = analyses[-1]
    done, unjudged = len(last.trace.files), last.unjudged_files
    files = f", of the last {done} of {done + unjudged} files" if unjudged else ""
    said = f"interrupted: {len(analyses)} of {len(traces)} traces are judged{files}"
    end_if((len(analyses) < len(traces) or unjudged, Exit.INTERRUPTED, said), (is_stopped, Exit.INTERRUPTED))
    _exit(analyses)


def choose_spark(engine: Engine, settings: SparkSettings) -> bool | None:
    """Whether Spark is named (None: neither); raises `ConfigurationError` for options that contradict each other."""
    if engine is Engine.LOCAL and settings.all_settings:
        rule = "is not on Spark, so it has no --master and no --conf: leave these out, or give --engine spark"
        raise ConfigurationError("--engine", engine.value, rule)
    return {Engine.AUTO: None, Engine.SPARK: True, Engine.LOCAL: False}[engine]


def _find_protocol(name: str) -> Protocol:
    """The protocol called so, or at `module:ATTRIBUTE`; a factory there is one of machines that were adopted."""
    from statemachines import registry
    from statemachines.adoption.declared_table import protocol_of
    from statemachines.kernel import Protocol

    if ":" in name:
        found = registry.load(name, object, "protocol")
        if callable(found) and not isinstance(found, Protocol):
            return protocol_of(name)
    return registry.protocol(name)


def _as_json(sides: dict[str, Analysis], comparison: Comparison | None) -> dict[str, Any]:
    """What a program wants: of one trace its checks, of several those of each and the comparison."""
    found = [
        {
            "checks": one.checks,
            "runs": one.runs,
            "rows": one.rows,
            "coverage": one.coverage,
            "unjudged": one.unjudged_steps,
            "absent": one.absent,
        }
        for one in sides.values()
    ]
    if comparison is None:
        return found[0]
    return {"sides": dict(zip(sides, found, strict=True)), "comparison": comparison}


def _print(sides: dict[str, Analysis], comparison: Comparison | None, judges: Judges) -> None:
    for name, analysis in sides.items():
        if comparison is not None:
            print(f"\n{plain_line(name)}")
        print(f"{analysis.runs} runs, {analysis.rows} rows, {analysis.torn} torn lines dropped")
        for name, count in analysis.unjudged_steps.items():
            print(
                f"protocol {plain_line(name)} is not installed here: {count:,} steps of its machines cannot be judged"
            )
        for check in analysis.checks:
            found = f"{check.checked:>12,} looked at {check.wrong:>8,} wrong"
            if check.waived:
                found = f"{check.checked:>12,} looked at {check.waived:>8,} found"
            verdict = check.verdict if len(check.verdict) < 10 else "-"
            print(f"{check.name:13} {check.level:11} {verdict:9} {found}   {check.claim}{_not_promised(check)}")
        for finding in analysis.tables["findings"][:SHOWN]:
            kind = "" if finding["promised"] else "not promised: "
            print(f"  run {finding['run']} seq {finding['seq']}: {kind}{plain_line(finding['detail'])}")
    if comparison is not None:
        _print_comparison(comparison, judges)


def _not_promised(check: Any) -> str:
    return f": {plain_line(check.verdict)}" if check.verdict.startswith("not ") else ""


def _print_comparison(comparison: Comparison, judges: Judges) -> None:
    from statemachines_reports.page import beside_of

    lines = beside_of(comparison, judges).lines
    width = max(len(what) for what, _ in lines)
    print(f"\nside by side: {comparison.common} of {comparison.seeds} seeds are on every side")
    heads = [line["side"] for line in comparison.lines]
    widths = [max(len(head), *(len(values[place]) for _, values in lines)) for place, head in enumerate(heads)]
    for what, values in (("", heads), *lines):
        cells = (f"{plain_line(value):>{size}}" for value, size in zip(values, widths, strict=True))
        print(f"{what:{width}}  {'  '.join(cells)}")


def _exit(analyses: list[Analysis]) -> None:
    missing = sorted({name for analysis in analyses for name in analysis.unjudged_steps})
    absent = sorted({log for analysis in analyses for log in analysis.absent})
    is_end = all(log.startswith("the end of ") for log in absent)
    advice = "end what still runs, or start it again after a kill" if is_end else "put it beside the others"
    is_empty = any(check.level == "rows" and not check.checked for analysis in analyses for check in analysis.checks)
    end_if(
        (not all(analysis.is_held for analysis in analyses), Exit.VIOLATED),
        (
            missing,
            Exit.INCONCLUSIVE,
            f"inconclusive: {plain_line(', '.join(missing))} is not installed here, so its steps cannot be judged; "
            "install it, or name it with --protocol module:ATTRIBUTE",
        ),
        (
            absent,
            Exit.INCONCLUSIVE,
            f"inconclusive: there is no log of {plain_line(', '.join(absent[:SHOWN]))}; {advice}, and analyze again",
        ),
        (is_empty, Exit.INCONCLUSIVE, "inconclusive: there is no step in this trace"),
    )
