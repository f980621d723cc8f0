"""What the exit code of a command says."""

from __future__ import annotations

import sys
from enum import IntEnum

import typer


class Exit(IntEnum):
    """0 held, 1 violated, 2 wrong usage, 3 inconclusive; 4: a node whose name a newer process has taken;
    5: gapless itself failed, and nothing was decided; 130: Ctrl-C or SIGTERM has ended it."""

    HELD = 0
    VIOLATED = 1
    USAGE = 2
    INCONCLUSIVE = 3
    SUPERSEDED = 4
    FAILED = 5
    INTERRUPTED = 130


def end_if(*cases: tuple[object, Exit] | tuple[object, Exit, str]) -> None:
    """End the command with the exit code of the first case that is so, said on stderr; with none of them it goes on."""
    for is_so, code, *said in cases:
        if is_so:
            if said:
                print(*said, file=sys.stderr)
            raise typer.Exit(code)
