"""Verbs: `gapless tickets ...`."""

from pathlib import Path

import typer

app = typer.Typer(no_args_is_help=True, help="Look at the tickets.")


@app.callback()
def _options() -> None:
    """More verbs may come."""


@app.command()
def count(journal: Path) -> None:
    """How many numbers the dispenser has given out."""
    from made_up.machines import Journal
    from statemachines.drivers.files import FileService

    print(FileService(Journal(), journal).read().next - 1)
