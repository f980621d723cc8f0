"""`gapless adopt`: somebody's `transitions` machine, as it is: searched for the shortest run that breaks it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json, plain_lines

if TYPE_CHECKING:
    from statemachines.adoption import AdoptedMachine, AdoptionVerdict


def adopt(
    factory: Annotated[
        str, typer.Argument(metavar="MODULE:FACTORY", help="A function without arguments that makes the machine.")
    ],
    holds: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPRESSION", help='What must hold in every state: "paid >= 0". May be repeated.'),
    ] = None,
    within: Annotated[
        list[str] | None,
        typer.Option(metavar="EXPRESSION", help='States beyond are not looked at: "paid <= 3". May be repeated.'),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Option(metavar="TRIGGER=NAME:VALUES", help="Arguments of a trigger: pay=amount:0,1,2. May be repeated."),
    ] = None,
    call: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD", help="Call a method of the model: reset, charge=amount:1,2. May be repeated."),
    ] = None,
    port: Annotated[
        list[str] | None,
        typer.Option(metavar="ATTRIBUTE", help="Replace it by a recorder, whose calls are shown. May be repeated."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="Do not block it: files, sockets, processes, threads, time or random. May be repeated."
        ),
    ] = None,
    raises: Annotated[
        list[str] | None, typer.Option(metavar="EXCEPTION", help="It is no error. May be repeated.")
    ] = None,
    auto: Annotated[bool, typer.Option("--auto", help="Also call the to_STATE triggers of auto_transitions.")] = False,
    states_max: Annotated[int, typer.Option(min=1, help="Give up beyond so many states.")] = 100_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Give up after so long.")] = 60.0,
    show: Annotated[
        bool, typer.Option("--show", help="Show its table and a diagram (Mermaid); search nothing.")
    ] = False,
    test: Annotated[
        bool, typer.Option("--test", help="Hypothesis drives one model through long runs, and shrinks what breaks.")
    ] = False,
    simulate: Annotated[
        int, typer.Option(metavar="N", min=0, help="Simulate so many instances, with callbacks that fail and crashes.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="With --simulate: another seed is another simulation.")] = 0,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write what was run there, as a trace for `analyze`.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Search a plain `transitions` machine: every trigger in every state, until a promise breaks.

    The machine is not changed, and no file has to be written. Its own callbacks run, each step on a fresh model, twice,
    while files, sockets, processes, threads, clocks and chance are blocked.

        gapless adopt shop:make_order --holds "paid >= 0" --within "paid <= 3" --args pay=amount:1,2

    Exit code 0: nothing broke within the bounds that are printed. 1: a promise breaks, or a callback raises; a shortest
    run is shown. 2: it cannot be adopted; one line says why. 3: a limit was reached first, or a trigger was not called.
    """
    from statemachines import registry
    from statemachines.adoption.adopted_machine import adopt as adopt_factory
    from statemachines.adoption.adopted_machine import name_promises
    from statemachines.adoption.trigger_arguments import parse_arguments, parse_methods
    from statemachines.adoption.verdict_text import describe_verdict, list_verdict

    made: Any = registry.load(factory, object, "factory")
    adopted = adopt_factory(
        made,
        invariants=name_promises(holds or []),
        within=name_promises(within or []),
        triggers=parse_arguments(args or []),
        methods=parse_methods(call or []),
        ports=port or [],
        allow=allow or [],
        raises=raises or [],
        auto=auto,
        place=factory,
    )
    if show + test + bool(simulate) > 1:
        raise ConfigurationError("--show, --test, --simulate", "", "do different things; give one of them")
    if json and (show or test):
        raise ConfigurationError("--json", True, "is of a search and of --simulate; leave it out")
    if trace is not None and (show or test):
        raise ConfigurationError("--trace", str(trace), "is written by a search and by --simulate; leave the other out")
    if show:
        print(plain_lines(_show(adopted)))
        return
    begin_work()
    if test:
        _test(adopted)
        return
    if simulate:
        _simulate(adopted, simulate, seed, trace, json)
        return
    seen = sys.stderr.isatty()
    try:
        verdict = adopted.search(states_max=states_max, seconds=seconds, progress=_progress if seen else None)
    finally:
        if seen:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
    if json:
        print(plain_json(list_verdict(adopted, verdict)))
    else:
        print(plain_lines(describe_verdict(adopted, verdict)))
    if trace is not None:
        _trace_run(adopted, verdict, trace)
    end_if(
        (verdict.found.ended == "interrupted", Exit.INTERRUPTED),
        (not verdict.is_held, Exit.VIOLATED),
        (not verdict.is_complete, Exit.INCONCLUSIVE),
    )


def _show(adopted: AdoptedMachine) -> str:
    from statemachines import diagrams
    from statemachines.adoption.declared_table import build_fsm
    from statemachines.adoption.verdict_text import describe_head

    subject = adopted.stepper.first
    parts = [describe_head(adopted)]
    for place in range(len(subject.machines)):
        fsm = build_fsm(subject, place, automatic=adopted.request.automatic)
        parts += ["", diagrams.markdown(fsm), diagrams.mermaid(fsm)]
    hidden = sum(row.automatic for row in adopted.stepper.rows)
    if hidden and not adopted.request.automatic:
        parts.append(f"{hidden} automatic transitions (to_STATE) are not shown; --auto shows them")
    return "\n".join(parts).rstrip("\n")


def _test(adopted: AdoptedMachine) -> None:
    from statemachines.testing.adopted_test import EXAMPLES, STEPS, find_failure

    failure = find_failure(adopted)
    if failure is None:
        print(f"Hypothesis: {EXAMPLES} runs of at most {STEPS} calls, and nothing broke")
        return
    print(plain_lines(failure))
    raise typer.Exit(Exit.VIOLATED)


def _simulate(adopted: AdoptedMachine, instances: int, seed: int, trace: Path | None, json: bool) -> None:
    from statemachines.adoption.production_log import write_runs
    from statemachines.adoption.random_simulation import describe_simulation, list_simulation, simulate

    found = simulate(adopted, instances, seed=seed, traced=trace is not None)
    if trace is not None:
        parameters = {"instances": instances}
        outcome = "held" if found.broken is None else f"{found.broken.name}: {found.broken.why}"
        rows = write_runs(trace, "simulated", adopted.place, [(outcome, seed, parameters, found.rows)])
        _say_trace(adopted, trace, rows)
    if json:
        print(plain_json(list_simulation(adopted, found)))
    else:
        print(plain_lines(describe_simulation(adopted, found)))
    again = f"again: the same command with --seed {seed}"
    end_if((found.broken is not None, Exit.VIOLATED, again), (adopted.unexplored, Exit.INCONCLUSIVE))


def _trace_run(adopted: AdoptedMachine, verdict: AdoptionVerdict, trace: Path) -> None:
    """Write the counterexample."""
    from statemachines.adoption.production_log import RowMaker, write_runs

    broken = verdict.found.broken
    if broken is None:
        print("nothing broke, so there is no trace of it", file=sys.stderr)
        return
    maker = RowMaker(adopted.stepper.first, adopted.place, "node-1")
    rows = [
        row
        for number, leg in enumerate(broken.legs)
        for row in maker.rows_of(number, "node-1~1/1", adopted.stepper, leg.action, leg.outcome)
    ]
    written = write_runs(trace, "counterexample", adopted.place, [(f"{broken.name}: {broken.why}", 0, {}, rows)])
    _say_trace(adopted, trace, written)


def _say_trace(adopted: AdoptedMachine, trace: Path, rows: int) -> None:
    said = f"gapless analyze {trace} --protocol {adopted.place}"
    print(f"trace: {rows:,} rows in {trace}; judge them with: {said}", file=sys.stderr)


def _progress(states: int, steps: float) -> None:
    print(f"\r{states:,} states, {steps:,.0f} steps\033[K", end="", file=sys.stderr, flush=True)
