"""`gapless analyze --follow`: a folder is judged as files come into it; what they show is printed at once."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from statemachines.commands.exits import Exit
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json, plain_line
from statemachines.spark.spark_settings import SparkSettings

if TYPE_CHECKING:
    from statemachines_reports.follow.log_piece import FileBatch
    from statemachines_reports.pipeline import Analysis


def follow_one(
    traces: list[Path],
    out: Path,
    spark: bool | None,
    settings: SparkSettings,
    times: tuple[float, float | None],
    json: bool,
) -> tuple[list[Analysis], bool]:
    """The analysis of a folder that was followed to its end, and whether Ctrl-C ended it; `times`: lateness and idle.

    Logs without an end are judged as far as they show something by themselves, and that is printed: no analysis.
    """
    from statemachines_reports.follow.folder_follower import FollowTimes, count_wrong, follow, list_waiting

    if len(traces) != 1:
        raise ConfigurationError("--follow", len(traces), "follows one folder: give each a command of its own")
    if spark is False:
        raise ConfigurationError("--engine", "local", "does not follow: Spark does; leave it out, or --follow")
    done = follow(traces[0], out, settings, FollowTimes(*times), partial(print_batch, json=json))
    if done.analysis is not None:
        return [done.analysis], done.is_stopped
    wrong = count_wrong(done.batches)
    files = sum(len(batch.files) for batch in done.batches)
    waiting = list_waiting(done.batches)
    if json:
        print(plain_json({"files": files, "waiting": waiting, "wrong": wrong, "ended": False}))
    else:
        print(f"{files} files, {waiting} of them wait for segments before them")
        print(f"wrong by now: {', '.join(f'{count} {check}' for check, count in sorted(wrong.items())) or 'nothing'}")
    said = f"inconclusive: the run has no end; place {traces[0] / 'run.end'} when no node writes any more"
    print(said, file=sys.stderr)
    if done.is_stopped:
        raise typer.Exit(Exit.INTERRUPTED)
    raise typer.Exit(Exit.VIOLATED if wrong else Exit.INCONCLUSIVE)


def print_batch(batch: FileBatch, json: bool) -> None:
    """What a batch brought: at least once, with the number of the batch."""
    to = sys.stderr if json else sys.stdout
    wrong = sum(batch.wrong.values())
    print(f"batch {batch.number}: {len(batch.files)} files, {wrong} violations", file=to)
    for one in batch.findings:
        print(f"  {one.check}: {plain_line(one.where)} row {one.seq}: {plain_line(one.detail)}", file=to)
    to.flush()
