"""`gapless bench`: measure against baselines."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError


def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Default: all but the long.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the rows; measure nothing.")] = False,
    save: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Also write each result there as it is measured, as JSON.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the rows in --save that were measured on this commit.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Measure against baselines, in turns; exit code 1 if a target is missed.

    One row, one baseline: targets are ratios, since absolute times are those of this machine.  Benchmarks come with a
    checkout, and not with the package that pip installs.

    Each row is printed when it ends, and the table of all rows at the end.  Exit code 3 if interrupted: the table has
    what was measured by then, and `--save PATH --resume` measures the other rows.
    """
    try:
        import statemachines_bench as benchmarks
    except ModuleNotFoundError as error:
        if error.name != "statemachines_bench":
            raise
        rule = "come with a checkout alone; run `make bench` in one"
        raise ConfigurationError("benchmarks", "not installed", rule) from error
    from statemachines import show as shown

    chosen = benchmarks.choose(names or [], has_long=listed)
    begin_work()
    if listed:
        print(benchmarks.list_json(chosen).decode()) if json else shown.write(benchmarks.list_rows(chosen))
        return
    if resume and save is None:
        raise ConfigurationError("--resume", True, "needs the file of the results to keep: give --save")
    file = None if save is None else benchmarks.SavedResults(save, benchmarks.find_commit(Path(benchmarks.__path__[0])))
    found = file.read(chosen) if file is not None and resume else {}
    left = [row for row in chosen if row.name not in found]
    if not names and not json:
        text = f"{len(left)} rows, some of which take minutes; `gapless bench NAME` measures one, --list names them"
        print(text, file=sys.stderr, flush=True)
    with suppress(KeyboardInterrupt):
        for result in benchmarks.measure_all(left, progress=partial(_show_progress, json)):
            found[result.row.name] = result
            if not json:
                print(benchmarks.summarize_result(result), flush=True)
            if file is not None:
                file.write(found.values())
    results = [found[row.name] for row in chosen if row.name in found]
    if json:
        print(benchmarks.results_json(results).decode())
    else:
        shown.write(benchmarks.render_results(results))
    said = f"interrupted after {len(results)} of {len(chosen)} rows"
    is_held = all(result.holds for result in results)
    end_if((not is_held, Exit.VIOLATED), (len(results) < len(chosen), Exit.INCONCLUSIVE, said))


def _show_progress(json: bool, text: str) -> None:
    """Where somebody is looking, and where stdout says nothing until all rows are measured."""
    if json or sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)
