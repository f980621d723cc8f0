"""`gapless explore`: step through a closed system, or a counterexample of it, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json


def explore(
    protocol: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="Its name, or module:ATTRIBUTE of one, or of a system.")
    ],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="Where the page goes.")],
    system: Annotated[str, typer.Option(metavar="NAME", help="Which system; `gapless check list` lists them.")] = "",
    size: Annotated[str, typer.Option(help="How large; `gapless check list` (default: the first, seconds).")] = "",
    variant: Annotated[str, typer.Option(help="Other rules; see `gapless check list`.")] = "",
    without: Annotated[
        list[str] | None, typer.Option(metavar="ORDER", help="Switch a deadline order off, by its name.")
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, compiled (numba) or plain Python.")] = "auto",
    states_max: Annotated[int, typer.Option(min=1000, help="Look for a counterexample in so many states.")] = 1_000_000,
    shown_max: Annotated[int, typer.Option(min=1, max=20_000, help="The page holds at most so many states.")] = 2_000,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Write a page on which a reader steps through a system: its parties, what can happen now, click, back.

        gapless explore mine:PROTOCOL --system NAME --html page.html

    Where a property breaks within the bounds, the page marks a shortest run to it, step by step.  Each state says which
    properties hold in it.  The page is one file, needs nothing else, and holds the states of the counterexample and
    those nearest to the first.

    Exit code 0: nothing breaks. 1: a property breaks, and the page shows how. 3: the bounds were not reached.
    """
    from statemachines.step_page import write_step_page
    from statemachines.timer_registry import check_timers
    from statemachines_spec.coverage import machines_in
    from statemachines_spec.explorer.explore import explore as explore_system
    from statemachines_spec.protocol import choose_systems
    from statemachines_spec.state_page import make_page

    begin_work(compiles=True)
    picked = choose_systems(protocol, (system,) if system else (), size, variant, tuple(without or ()))
    if len(picked.systems) != 1:
        there = ", ".join(one.name for one in picked.systems)
        raise ConfigurationError("--system", system, f"a page is of one system; choose one: {there}")
    (one,) = picked.systems
    check_timers(machines_in(picked.systems))
    result = explore_system(one, engine=engine, states_max=states_max, partly=True)
    if result.path is not None:
        verdict = "VIOLATED"
        said = f"{result.path.broken}: {result.path.why}; a shortest run has {len(result.path.legs)} steps"
    elif result.ended == "complete":
        verdict, said = "HELD", f"everything, in all {result.states:,} states"
    else:
        verdict, said = "INCONCLUSIVE", f"nothing broke in the first {result.states:,} states"
    page = make_page(one, result.path, (verdict, said), shown_max)
    write_step_page(html, page)
    told = {"system": one.name, "verdict": verdict, "why": said, "page": html, "shown": len(page.states)}
    text = f"{one.name}: {verdict} {said}\npage: {html}, {len(page.states):,} states"
    print(plain_json(told) if json else text)
    end_if((result.path is not None, Exit.VIOLATED), (result.ended != "complete", Exit.INCONCLUSIVE))
