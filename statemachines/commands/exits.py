"""What the exit code of a command says."""

from __future__ import annotations

from enum import IntEnum


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
