"""Counterexamples as schedules: `gapless check --schedule --trace` writes them, `gapless replay` follows them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from statemachines.commands.exits import Exit

if TYPE_CHECKING:
    from statemachines_sim.replayed import Replayed
    from statemachines_spec.explorer.path import Path as Run
    from statemachines_spec.explorer.system import System
    from statemachines_spec.schedule import Schedule

LISTED = 10
"""Deviations of each sort that are printed; `--json` has more."""


def is_schedule(path: Path) -> bool:
    """Whether the file says that it is a schedule; a file that cannot be read is none."""
    from statemachines_spec.schedule import looks_like_one

    try:
        with path.open("rb") as file:
            return looks_like_one(file.read(200))
    except OSError:
        return False


def keep(system: System, run: Run, variant: str, schedule_to: Path | None, trace_to: Path | None) -> None:
    """Write the counterexample `run` as a schedule, and as the trace that the simulator makes of it."""
    from statemachines_spec import schedule as schedules
    from statemachines_spec.scheduling import Unschedulable, schedule_of

    try:
        made = schedule_of(system, run, variant=variant)
    except Unschedulable as error:
        print(f"no schedule and no trace: {error}", file=sys.stderr)
        return
    if schedule_to is not None:
        schedules.write(schedule_to, made)
        print(f"schedule: {schedule_to}; repeat it with: gapless replay {schedule_to}", file=sys.stderr)
    if trace_to is not None:
        replayed = simulated(made, "", trace_to, data=False)
        broke = replayed.broken.get(replayed.name, "it does not break there")
        print(f"trace: {trace_to}; {replayed.breaks}: {broke}", file=sys.stderr)


def replay(path: Path, variant: str, runtime: bool, trace: Path | None, data: bool, json: bool) -> None:
    """Follow a schedule, and print what came of it."""
    from statemachines_spec import schedule as schedules
    from statemachines_spec.shared_subscriptions.variants import known

    if variant:
        known(variant)
    made = schedules.read(path)
    if not json:
        bug = f", with the bug {made.bug}" if made.bug and not variant else ""
        rules = f"as {variant}" if variant else made.variant
        print(f"schedule of {made.system} ({rules}{bug}), {len(made.steps)} steps, breaks {made.breaks}: {made.why}")
    replayed = live(made, variant, trace) if runtime else simulated(made, variant, trace, data=data)
    if json:
        print(msgspec.json.encode(replayed).decode())
    else:
        show(replayed)
    if replayed.broken:
        raise typer.Exit(Exit.VIOLATED)
    if replayed.followed.stopped:
        raise typer.Exit(Exit.INCONCLUSIVE)


def simulated(made: Schedule, variant: str, trace: Path | None, *, data: bool) -> Replayed:
    """In the simulator; its trace goes to the directory `trace`."""
    from statemachines_sim.scheduled import run_row, simulate

    replayed, rows = simulate(made, variant, data=data)
    if trace is not None:
        from statemachines.trace.parquet import TraceWriter

        with TraceWriter(trace, f"schedule-{made.system}") as writer:
            writer.add(run_row(made, replayed, variant), rows)
    return replayed


def live(made: Schedule, variant: str, trace: Path | None) -> Replayed:
    """On the asyncio runtime; the logs of its nodes go to the directory `trace`."""
    from statemachines_sim.live import run_live

    return run_live(made, variant, trace)


def show(replayed: Replayed) -> None:
    """What came of a schedule, for people."""
    followed = replayed.followed
    print(f"followed {followed.steps} of {followed.of} steps" + (f"; {followed.stopped}" if followed.stopped else ""))
    for title, lines in (
        ("unknown to the schedule, and lost", followed.unknown),
        ("expected, and never sent", followed.missing),
        ("sooner than the schedule has it", followed.early),
    ):
        for line in lines[:LISTED]:
            print(f"  {title}: {line}")
        if len(lines) > LISTED:
            print(f"  {title}: {len(lines) - LISTED} more")
    for name, detail in replayed.broken.items():
        if name != replayed.name:
            print(f"also broken: {name}: {detail}")
    if replayed.reached:
        print(f"VIOLATED {replayed.breaks}: {replayed.broken[replayed.name]}")
    else:
        print(f"{replayed.breaks} does not break here" + ("" if replayed.broken else ", nor does anything else"))
