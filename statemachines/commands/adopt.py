"""`gapless adopt`: somebody's `transitions` machine, as it is: searched for the shortest run that breaks it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statemachines.commands.exits import Exit
from statemachines.drivers.plain_text import plain_json, plain_line, plain_lines
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError

if TYPE_CHECKING:
    from statemachines.adoption import Adopted, Verdict


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
    from statemachines.adoption.adopted import adopt as adopt_factory
    from statemachines.adoption.adopted import name_promises
    from statemachines.adoption.trigger_arguments import parse_arguments

    made: Any = registry.load(factory, object, "factory")
    adopted = adopt_factory(
        made,
        invariants=name_promises(holds or []),
        within=name_promises(within or []),
        triggers=parse_arguments(args or []),
        ports=port or [],
        allow=allow or [],
        raises=raises or [],
        auto=auto,
        place=factory,
    )
    begin_work()
    seen = sys.stderr.isatty()
    try:
        verdict = adopted.search(states_max=states_max, seconds=seconds, progress=_progress if seen else None)
    finally:
        if seen:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
    if json:
        print(plain_json(_for_programs(adopted, verdict)))
    else:
        print(plain_lines(_describe(adopted, verdict)))
    _end(verdict)


def _progress(states: int, steps: float) -> None:
    print(f"\r{states:,} states, {steps:,.0f} steps\033[K", end="", file=sys.stderr, flush=True)


def _end(verdict: Verdict) -> None:
    if verdict.found.ended == "interrupted":
        raise typer.Exit(Exit.INTERRUPTED)
    if not verdict.held:
        raise typer.Exit(Exit.VIOLATED)
    if not verdict.is_complete:
        raise typer.Exit(Exit.INCONCLUSIVE)


def _describe(adopted: Adopted, verdict: Verdict) -> str:
    from statemachines.adoption.verdict_text import describe_verdict

    return describe_verdict(adopted, verdict)


def _for_programs(adopted: Adopted, verdict: Verdict) -> dict[str, Any]:
    from statemachines.adoption.verdict_text import list_verdict

    return list_verdict(adopted, verdict)


__all__ = ["ConfigurationError", "adopt", "plain_line"]
