"""`gapless simulate` and `replay`: runs of any protocol under failures."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final

import typer

from statemachines import catalogue
from statemachines.commands import scripts
from statemachines.commands.engine import Engine
from statemachines.commands.exits import Exit, end_if
from statemachines.commands.progress import bar
from statemachines.input_file import read_input
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json
from statemachines.whole_file import check_folder

if TYPE_CHECKING:
    from statemachines_sim.fault import Fault
    from statemachines_sim.scenario import Scenario
    from statemachines_sim.world import RunOutcome

JSON = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]
ScenarioName = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="Name of a shipped scenario (storm, or PROTOCOL/storm), or a .toml file; `list` lists them.",
    ),
]
TraceTo = Annotated[Path | None, typer.Option("--trace", metavar="DIR", help="Write the trace there, as Parquet.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a key of the scenario, e.g. configuration.exclusive=false; repeatable."
    ),
]


SEED_MAX: Final = 2**63 - 1
"""Seeds stand in a trace as whole numbers of 64 bits."""

LIST = "list"
"""In place of a scenario: say which there are."""

PROTOCOL_MODULE: Final = re.compile(rb'"protocol": ?"(\w+)[\w.]*:')
"""In a run file or script: the package of a protocol that is named by `module:ATTRIBUTE`."""

KEPT = Path("out/failures")
"""Where run files of failures are kept."""


def simulate(
    scenario: ScenarioName,
    seed: Annotated[int, typer.Option(min=0, max=SEED_MAX, help="Everything random follows from it.")] = 0,
    trace: TraceTo = None,
    data: Annotated[bool, typer.Option("--data", help="Fill the trace's data column with the events' fields.")] = False,
    settings: Set = None,
    engine: Engine = "",
    json: JSON = False,
) -> None:
    """Run one scenario with one seed; a failure is shrunk and kept as a file that `replay` repeats.

    `gapless simulate list` says which scenarios there are.  The same scenario, seed and settings are the same run, byte
    for byte.  Exit code 1 if a property is violated.
    """
    from statemachines_sim.override import override
    from statemachines_sim.scenario import find_scenario
    from statemachines_sim.schedule import draw

    if scenario == LIST:
        show_scenarios()
        return
    begin_work()
    if engine:
        catalogue.use_engine(engine)
    given = tuple(settings or ())
    chosen = override(find_scenario(scenario), given)
    if trace is not None:
        check_folder(trace, "--trace")
    if not json:
        print(f"scenario {chosen.name}, seed {seed}{''.join(f', {one}' for one in given)}")
        show_swarm(chosen, seed)
    schedule = draw(chosen, seed)
    outcome = run_one(chosen, seed, schedule, trace, data, given)
    show(outcome, json)
    if not outcome.is_held:
        keep_failure(chosen, outcome, schedule)
        raise typer.Exit(Exit.VIOLATED)


def replay(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A run file of `simulate` or `campaign`, or a script of `check`."),
    ],
    variant: Annotated[
        str, typer.Option(help="Follow a script by these rules instead of its own: a variant of its protocol.")
    ] = "",
    runtime: Annotated[
        bool,
        typer.Option(
            "--runtime",
            help="Follow a script on the asyncio runtime instead of the simulator.",
        ),
    ] = False,
    trace: TraceTo = None,
    data: Annotated[bool, typer.Option("--data", help="Fill the trace's data column with the events' fields.")] = False,
    json: JSON = False,
) -> None:
    """Repeat a run from its file, byte for byte, or follow a script; exit code 1 if it fails again.

    A script is a counterexample of `gapless check --script FILE`: which message arrives when, which timer fires.
    On the asyncio runtime the trace is the nodes' logs.  Exit code 3: nothing broke, and the script cannot be
    followed to its end.
    """
    from statemachines_spec.script.script import looks_like_one

    content = read_input(path, "run file")
    find_module_above(path, content)
    if looks_like_one(content[:200]):
        begin_work()
        scripts.replay(path, content, variant, runtime, trace, data, json)
        return
    if variant or runtime:
        raise typer.BadParameter("--variant and --runtime are for scripts; a run file says itself how it runs")
    from statemachines_sim import runfile

    begin_work()
    run = runfile.read(path, content)
    if not json:
        print(f"scenario {run.scenario.name}, seed {run.seed}, {count_faults(len(run.schedule))}")
        show_swarm(run.scenario, run.seed)
        for fault in run.schedule:
            print(f"  {describe(run.scenario, fault)}")
    tables = runfile.tables(run.scenario.sim.name)
    if run.fingerprints and run.fingerprints != tables:
        from statemachines.trace.tables import describe_tables

        print(
            f"note: kept with tables {describe_tables(run.fingerprints)}; these are {describe_tables(tables)}",
            file=sys.stderr,
        )
    outcome = run_one(run.scenario, run.seed, run.schedule, trace, data)
    show(outcome, json)
    end_if((not outcome.is_held, Exit.VIOLATED))


def find_module_above(path: Path, content: bytes) -> None:
    """The module of the protocol, where the file names one that is neither installed nor in the working directory, is
    looked for in the folders above the file; so it is repeated from anywhere."""
    named = PROTOCOL_MODULE.search(content)
    if named is None:
        return
    module = named[1].decode()
    folders = (Path.cwd(), *path.resolve().parents)
    found = next((one for one in folders if (one / module).is_dir() or (one / f"{module}.py").is_file()), None)
    if found not in {None, folders[0]} and find_spec(module) is None:
        sys.path.append(str(found))
        print(f"note: the module {module} is looked for in {found}, too", file=sys.stderr)


def run_one(
    scenario: Scenario,
    seed: int,
    schedule: tuple[Fault, ...],
    trace: Path | None,
    data: bool,
    settings: tuple[str, ...] = (),
) -> RunOutcome:
    """One run, its trace in `trace`."""
    from statemachines_sim.campaign import run_row
    from statemachines_sim.world import World

    world = World(scenario, seed, schedule=schedule, data=data)
    outcome = world.run()
    if trace is not None:
        from statemachines.trace.parquet import TraceWriter

        try:
            with TraceWriter(trace, f"{scenario.name}-{seed}") as writer:
                writer.add(run_row(scenario, outcome, 0, settings, schedule), world.rows)
        except (OSError, ConfigurationError) as error:
            if outcome.is_held:
                raise
            print(f"there is no trace of it: {error}", file=sys.stderr)  # the verdict is what counts
    return outcome


def show(outcome: RunOutcome, json: bool) -> None:
    """The outcome of a run."""
    if json:
        print(plain_json(outcome))
        return
    faults = ", ".join(f"{count} {kind}" for kind, count in outcome.faults.items()) or "none"
    if outcome.tally:
        print(", ".join(f"{name} {count}" for name, count in outcome.tally.items()))
    print(f"{outcome.sent} packets sent, {outcome.dropped} dropped; faults: {faults}")
    print(f"{outcome.lasted_ns / 1e9:.1f} s simulated, {outcome.rows} rows of trace")
    for name, times in outcome.noted.items():
        print(f"{name} is out of scope here, and was broken {times} times")
    print("held" if outcome.is_held else f"VIOLATED {outcome.monitor}: {outcome.detail}")


def show_swarm(scenario: Scenario, seed: int) -> None:
    """What the seed drew, if the scenario lets it."""
    from statemachines_sim.swarm import draw_values

    for name, value in draw_values(scenario, seed).items():
        text = ", ".join(str(one) for one in value) if isinstance(value, list | tuple) else str(value)
        print(f"  {name}: {text or 'none'}")


def keep_failure(scenario: Scenario, failed: RunOutcome, schedule: tuple[Fault, ...]) -> None:
    """Shrink the schedule, keep the run, and say last how to repeat it."""
    from statemachines_sim import runfile
    from statemachines_sim.shrink import RUNS_MAX, shrink

    print(f"seed {failed.seed}: {failed.monitor}: {failed.detail}", file=sys.stderr)
    with bar("shrinking") as advance:
        schedule, outcome = shrink(scenario, failed, schedule, lambda runs, left: advance(runs, RUNS_MAX))
    tables = runfile.tables(scenario.sim.name)
    kept = runfile.RunFile(scenario, failed.seed, schedule, outcome.monitor, outcome.detail, tables)
    unkept, path = "", KEPT
    try:
        path = runfile.keep(KEPT, kept)
    except (OSError, ConfigurationError) as error:  # the verdict is what counts
        unkept = f"its run file cannot be kept ({error}); run it again where a file can be written"
    print(f"shrunk to {count_faults(len(schedule))}: {outcome.monitor}: {outcome.detail}", file=sys.stderr)
    for fault in schedule:
        print(f"  {describe(scenario, fault)}", file=sys.stderr)
    print(unkept or f"repeat it with: {replay_line(path)}", file=sys.stderr)


def replay_line(path: Path) -> str:
    """The command that repeats what is in the file, as a shell takes it."""
    return f"gapless replay {quote(str(path))}"


def count_faults(count: int) -> str:
    return "1 fault" if count == 1 else f"{count} faults"


def describe(scenario: Scenario, fault: Fault) -> str:
    """One fault as text."""
    where = f" of {fault.target}" if fault.target else ""
    where += f" to {fault.peer}" if fault.peer else ""
    rate = f", rate {fault.rate}" if fault.rate else ""
    unit = scenario.kinds[fault.kind].unit
    amount = f"{fault.amount / 1e9:.3f} s" if unit == "ns" else f"{fault.amount} {unit}"
    rate += f", amount {amount}" if fault.amount else ""
    return f"{fault.kind}{where} at {fault.at_ns / 1e9:.3f} s for {fault.for_ns / 1e9:.3f} s{rate}"


def show_scenarios() -> None:
    """What comes with each protocol, under the shortest name that serves."""
    from statemachines_sim.scenario import list_shipped, read

    known = list_shipped()
    short = [name.partition("/")[2] for name in known]
    protocol = ""
    for name, path in known.items():
        of, _, own = name.partition("/")
        if of != protocol:
            print(f"{protocol and chr(10)}{of}")
            protocol = of
        print(f"  {own if short.count(own) == 1 else name:20} {read(path).about}")
