"""`gapless bench`: measure against baselines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from statemachines.commands.exits import Exit
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.whole_file import write_whole


def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Rows; default all.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the rows; measure nothing.")] = False,
    save: Annotated[Path | None, typer.Option(metavar="PATH", help="Also write the results there, as JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Measure against baselines, in turns; exit code 1 if a target is missed.

    One row, one baseline: targets are ratios, since absolute times are those of this machine.  Benchmarks come with a
    checkout, and not with the package that pip installs.
    """
    try:
        import statemachines_bench as benchmarks
    except ModuleNotFoundError as error:
        if error.name != "statemachines_bench":
            raise
        rule = "come with a checkout alone; run `make bench` in one"
        raise ConfigurationError("benchmarks", "not installed", rule) from error
    from statemachines import show as shown

    chosen = benchmarks.choose(names or [])
    begin_work()
    if listed:
        _print_json(benchmarks.list_json(chosen)) if json else shown.write(benchmarks.list_rows(chosen))
        return
    results = benchmarks.measure_all(chosen, progress=_progress)
    if save is not None:
        write_whole(save, benchmarks.results_json(results) + b"\n")
    if json:
        _print_json(benchmarks.results_json(results))
    else:
        shown.write(benchmarks.render_results(results))
    if not all(result.holds for result in results):
        raise typer.Exit(Exit.VIOLATED)


def _print_json(text: bytes) -> None:
    print(text.decode())


def _progress(text: str) -> None:
    """Only where somebody is looking."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
