"""Rows that no explored system takes: python tools/rows_reached.py PROTOCOL [--states-max N] [--write]

Explores the directed systems and the systems of a protocol at their first size, each up to so many states, and counts
the rows of its machines that were taken.  `--write` puts the table in the place of the one in
spec/PROTOCOL/systems.md that has the same head.  Rows that refuse an event are not counted: a system that holds
cannot take them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from statemachines import catalogue
from statemachines.whole_file import write_whole
from statemachines_spec.coverage import Cell, RowsReached, find_reached
from statemachines_spec.explorer.explore import explore
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape

HEAD = "| machine | taken | never, by clause |"


def main(
    protocol: Annotated[str, typer.Argument(help="Its name.")],
    states_max: Annotated[int, typer.Option(min=100, help="Of each system no more states than these.")] = 2_000,
    write: Annotated[bool, typer.Option("--write", help="Write the table into the page of its systems.")] = False,
) -> None:
    """Count the rows that are taken."""
    cells: set[Cell] = set()
    directed_systems = CampaignScope(CampaignShape(protocol)).list_directed()
    for number, directed in enumerate(directed_systems, 1):
        typer.echo(f"{number} of {len(directed_systems)}: {directed.name}", err=True)
        cells |= set(explore(directed.make(), engine="plain", hashing=False, states_max=states_max).cells)
    lines = table(find_reached(catalogue.machines(protocol), cells))
    typer.echo("\n".join(lines))
    if write:
        put(catalogue.page(protocol).with_name("systems.md"), lines)


def table(found: tuple[RowsReached, ...]) -> list[str]:
    """In Markdown: of each machine, of how many rows so many were taken, and how many of each clause never were."""
    lines = [HEAD, "|---|---|---|"]
    for one in found:
        never = Counter(row.clause for row in one.unreached if not row.partly)
        said = ", ".join(f"{clause} ({count})" if count > 1 else clause for clause, count in never.items())
        lines.append(f"| {one.machine.rpartition('/')[2]} | {one.taken} of {one.rows} | {said} |")
    return lines


def put(page: Path, lines: list[str]) -> None:
    """The table in the place of the one that is there."""
    before = page.read_text().splitlines()
    if HEAD not in before:
        raise typer.BadParameter(f"{page} has no table that begins with {HEAD}")
    begin = before.index(HEAD)
    end = next(n for n in range(begin, len(before) + 1) if n == len(before) or not before[n].startswith("|"))
    write_whole(page, "\n".join([*before[:begin], *lines, *before[end:], ""]).encode())


if __name__ == "__main__":
    typer.run(main)
