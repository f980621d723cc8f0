"""`gapless show-loss`: the table of losses of a receiver."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from statemachines.plain_text import plain_json

app = typer.Typer(rich_markup_mode=None)


@app.command()
def show_loss(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="The socket of a running node (`--losses`), its log (*.ndjson), a trace (*.parquet), or a directory.",
        ),
    ],
    utc: Annotated[bool, typer.Option("--utc", help="Times of UTC, and not of this machine.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Show what was lost: repeated, not subscribed, lost, and lost of the inbox, for each peer, with the last times.

    A loss of unknown size counts as no message; how many publishers have one is said below the table. A running node
    says how many subjects it keeps, and their bytes: 128 and the subject, and 512 for each publisher beyond its first.
    """

    from statemachines.drivers.sequence_windows.loss_report import read_losses

    report = read_losses(source)
    if json:
        print(plain_json(report))
    else:
        print(report.text(0 if utc else time.localtime().tm_gmtoff))
