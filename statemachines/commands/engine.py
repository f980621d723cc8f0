"""`--engine`: who takes the steps of machines."""

from __future__ import annotations

from typing import Annotated

import typer

Engine = Annotated[
    str,
    typer.Option(metavar="NAME", help="Who takes steps: compiled (default), or transitions: the same steps, slower."),
]
