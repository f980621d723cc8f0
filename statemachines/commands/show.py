"""`gapless show`: machines, processes and protocols as tables, diagrams and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JSON = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def show(
    machine: Annotated[
        str,
        typer.Argument(
            metavar="MACHINE",
            help="A machine: its name, protocol/name, or module:ATTRIBUTE; a process; or a protocol; without one, all.",
        ),
    ] = "",
    mermaid: Annotated[bool, typer.Option("--mermaid", help="A Mermaid state diagram.")] = False,
    graphviz: Annotated[bool, typer.Option("--graphviz", help="A Graphviz digraph.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="The table in Markdown.")] = False,
    graphml: Annotated[bool, typer.Option("--graphml", help="The table as a graph in GraphML.")] = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page there, on which one clicks through the machine.")
    ] = None,
    json: JSON = False,
) -> None:
    """Show a machine: its table, its timers, and the clauses that its rows carry out."""
    from statemachines import catalogue, diagrams, registry
    from statemachines import show as shown

    drawn = (
        (mermaid, diagrams.mermaid),
        (graphviz, diagrams.graphviz),
        (markdown, diagrams.markdown),
        (graphml, diagrams.graphml),
    )
    if mermaid + graphviz + markdown + graphml + json > 1:
        raise typer.BadParameter("choose one of --mermaid, --graphviz, --markdown, --graphml, --json")
    drawings = [draw for wanted, draw in drawn if wanted]
    if drawings and not machine:
        raise typer.BadParameter("a diagram needs a MACHINE; `gapless show` lists them")
    if html is not None:
        _write_page(html, machine)
        return
    process = catalogue.find_process(machine) if machine and ":" not in machine else None
    if process is not None:
        if drawings and not mermaid:
            raise typer.BadParameter("a process has a Mermaid diagram, or JSON; its machine is shown with it")
        if mermaid:
            print(diagrams.mermaid_process(process), end="")
        elif json:
            print(shown.describe_process_json(process).decode())
        else:
            shown.write(shown.describe_process(process))
    elif drawings:
        print(drawings[0](catalogue.machine(machine)), end="")
    elif machine in registry.names():
        print(shown.overview_json(machine).decode()) if json else shown.write(shown.render_overview(machine))
    elif json:
        print((shown.description_json(machine) if machine else shown.listing_json()).decode())
    else:
        shown.write(shown.render_description(machine) if machine else shown.render_listing())


def _write_page(path: Path, machine: str) -> None:
    from statemachines import catalogue
    from statemachines.step_page import write_step_page
    from statemachines_reports.draw_machine import make_page

    if not machine:
        raise typer.BadParameter("a page needs a MACHINE; `gapless show` lists them")
    fsm = catalogue.machine(machine)
    write_step_page(path, make_page(fsm, catalogue.summary(machine)))
    print(f"page: {path}")
